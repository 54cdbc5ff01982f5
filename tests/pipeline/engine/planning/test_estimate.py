"""The plan of a run: amounts add up, more workers cost time and not CPU, limits are named, and ten billion documents fit."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.planned import stages_of
from corpusmill.pipeline.engine.planning.constants import measured
from corpusmill.pipeline.engine.planning.estimate import Terms, plan, scaled
from corpusmill.pipeline.engine.planning.forecast import Shape
from corpusmill.schemas.manifest import Counts, StageManifest
from corpusmill.schemas.planning import RunPlan
from corpusmill.schemas.recipe import Recipe

LARGE = {
    "ingest": {"partition_mb": 1024}, "dedup": {"memory_mb": 2048}, "split": {"validation_mb": 1000},
    "shard": {"shard_mb": 4000, "block_tokens": 1 << 22},
}  # fmt: skip


def planned(
    gigabytes: float,
    workers: int = 100,
    partitions: float | None = None,
    finished: Any = (),
    terms: Any = None,
    **config: Any,
) -> RunPlan:
    recipe = Recipe.model_validate({"name": "p", "sources": {"web": {"paths": ["-"]}}, **config})
    text = gigabytes * 1e9
    count = partitions or max(1.0, text / (recipe.ingest.partition_mb * 2**20))
    shape = Shape(text, text, max(1.0, gigabytes), count, count)
    stages = [load_stage(name, recipe) for name in stages_of(recipe)]
    return plan(stages, shape, terms or Terms(workers, True), 1, 3000, finished=finished)


def test_sums_are_those_of_the_steps() -> None:
    found = planned(100)
    assert [stage.name for stage in found.stages] == [
        "ingest", "filter", "dedup", "redact", "ledger", "split", "tokenizer", "shard", "report",
    ]  # fmt: skip
    for stage in found.stages:
        assert stage.cpu_seconds == pytest.approx(sum(step.cpu_seconds for step in stage.steps))
        assert stage.gets == pytest.approx(sum(step.gets for step in stage.steps))
        assert stage.worker_bytes == max(step.worker_bytes for step in stage.steps)
        assert 0 <= stage.kept_bytes <= stage.written_bytes <= stage.disk_bytes
    assert found.total.seconds == pytest.approx(sum(stage.seconds for stage in found.stages))
    assert found.kept_bytes <= found.disk_bytes == max(stage.disk_bytes for stage in found.stages)


def test_text_and_documents_flow_from_stage_to_stage() -> None:
    found = planned(100)
    filtered, deduplicated = found.stage("filter"), found.stage("dedup")
    assert filtered and deduplicated
    assert deduplicated.text_bytes == pytest.approx(filtered.text_bytes * measured().of("filter").kept)
    assert (
        found.stages[-2].documents < deduplicated.documents < filtered.documents == pytest.approx(1e11 / 3000)
    )


def test_more_workers_take_less_time_and_the_same_cpu() -> None:
    few, many = planned(1000, 10), planned(1000, 1000)
    assert many.total.seconds < few.total.seconds / 4
    for before, after in zip(few.stages, many.stages, strict=True):
        for one, other in zip(before.steps, after.steps, strict=True):
            if one.one_core:
                assert other.seconds == pytest.approx(one.seconds), one.name
    assert many.total.cpu_seconds == pytest.approx(few.total.cpu_seconds, rel=0.2)  # each process begins once
    price = planned(10, 10, terms=Terms(10, True, price=0.04))
    assert price.cost == pytest.approx(0.04 * 10 * price.total.seconds / 3600)


def test_finished_stages_have_no_part_and_their_counts_are_taken() -> None:
    counts = Counts(docs_in=900, kept=800, removed=100, bytes_in=3_000_000, bytes_kept=2_000_000)
    done = [
        StageManifest(
            stage=name, version="1", key="k", params={}, inputs={}, partitions=["a", "b", "c"], counts=counts
        )
        for name in ("ingest", "filter")
    ]  # fmt: skip
    found = planned(100, finished=done)
    assert [stage.name for stage in found.stages][:2] == ["dedup", "redact"]
    dedup = found.stage("dedup")
    assert dedup and (dedup.documents, dedup.text_bytes, dedup.partitions) == (800, 2_000_000, 3)
    assert dedup.disk_bytes < 1e8


def test_a_scaled_input_has_more_of_the_same_files() -> None:
    assert scaled(Shape(10.0, 5.0, 2.0, 4.0, 6.0), 1000.0) == Shape(1000.0, 500.0, 200.0, 400.0, 600.0)


def test_limits_that_are_exceeded_are_named_with_what_to_change() -> None:
    usual = planned(30_000)
    text = " ".join(usual.warnings)
    assert "driver:" in text and "of 1e9" in text and "ingest.partition_mb" in text
    assert "one core: dedup, on the driver" in text and "hash of the input" not in text
    small = planned(25, 500, terms=Terms(500, False, worker_memory=1e8))
    text = " ".join(small.warnings)
    assert "partitions: ingest has 373 for 500 workers, so 127 workers are idle" in text
    assert "workers: " in text and "driver:" not in text
    # Idle workers are not worth a line where the run takes less than a minute.
    assert "partitions:" not in " ".join(planned(1, 500, terms=Terms(500, False)).warnings)
    sample = " ".join(planned(30_000, tokenizer={"sample_mb": 1_000_000}).warnings)
    assert "one core: tokenizer, training" in sample and "tokenizer.sample_mb" in sample
    tars = " ".join(planned(30_000, shard={"shard_mb": 16}).warnings)
    assert "tars; raise shard.shard_mb" in tars


def test_ten_billion_documents_need_a_driver_below_64_gb_and_a_billion_requests_at_most() -> None:
    """With the layout that docs/planning.md gives; the constants are measured on the structures themselves."""
    large, usual = planned(30_000, 500, partitions=30_000, **LARGE), planned(30_000, 500)
    assert large.documents == 10e9
    assert large.total.driver_bytes < 64e9 < usual.total.driver_bytes
    assert large.total.requests < 1e9 < usual.total.requests
    assert not [warning for warning in large.warnings if "requests" in warning]
    for stage in large.stages:
        if stage.name != "dedup":  # which holds union-find
            assert stage.driver_bytes < 32e9, stage.name


def test_a_given_tokenizer_is_not_trained() -> None:
    trained = planned(10).stage("tokenizer")
    given = planned(10, tokenizer={"path": "tokenizer.json"}).stage("tokenizer")
    assert trained and "training" in [step.name for step in trained.steps]
    assert given and "training" not in [step.name for step in given.steps]


def test_nothing_is_planned_of_nothing() -> None:
    found = planned(0.0)
    assert all(stage.seconds >= 0 for stage in found.stages) and found.documents == 0


def test_a_stage_without_constants_is_named() -> None:
    def named(found: RunPlan) -> list[str]:
        return [line for line in found.warnings if line.startswith("not measured")]

    assert not named(planned(100))
    (line,) = named(planned(100, augment={"copies": [{"perturb": "typos:0.02", "share": 0.1}]}))
    assert "augment" in line and "ingest" not in line
