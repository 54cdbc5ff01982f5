"""The estimate grows where it must, in a straight line where it should, and never where it should not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.estimate.corpus import assumed, measured
from corpusmill.pipeline.dedup.estimate.model import estimate
from corpusmill.pipeline.dedup.estimate.plan_text import Limits, exceeded
from corpusmill.pipeline.dedup.estimate.quantities import cells, quantities, runs, widths
from corpusmill.pipeline.dedup.estimate.step_loads import loads
from corpusmill.pipeline.engine.planning.constants import LOCAL
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Estimate

PARAMS = DedupParams()
GROWING = ("candidates", "verified", "exact_removed", "near_removed", "output_bytes", "union_bytes")
# Where files begin to be put together there are fewer slices; where partitions begin to be compared in groups,
# there are fewer tasks.
NEARLY = ("tasks", "read_bytes", "shuffled_bytes", "cpu_seconds")


def plan(documents: int = 1_000_000, workers: int = 10, size: float = 3000, **params: object) -> Estimate:
    checked = DedupParams.model_validate(params)
    return estimate(assumed(documents, size, 64 << 20, 0.5, 0.3), checked, banding(checked), workers)


@given(st.integers(1_000, 10**10), st.floats(1.1, 10))
def test_more_documents_cost_more_of_everything(documents: int, times: float) -> None:
    less, more = plan(documents), plan(int(documents * times))
    for name in GROWING:
        assert getattr(more, name) >= getattr(less, name) * (1 - 1e-9), name
    for name in NEARLY:
        assert getattr(more, name) >= getattr(less, name) * 0.75, name


@given(st.integers(1, 500), st.integers(1, 500))
def test_more_workers_change_the_time_alone(a: int, b: int) -> None:
    few, many = plan(workers=min(a, b)), plan(workers=max(a, b))
    assert many.seconds <= few.seconds
    same = {"workers", "seconds", "steps"}
    assert few.model_dump(exclude=same) == many.model_dump(exclude=same)


def test_straight_lines() -> None:
    """Bytes, CPU and findings are proportional to the corpus; requests are not: slices are a product."""
    one, two = plan(20_000_000), plan(40_000_000)
    for name in ("candidates", "verified", "near_removed", "exact_removed", "shuffled_bytes", "output_bytes"):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name), rel=0.02), name
    one_step, two_step = (found.step("signatures") for found in (one, two))
    assert two_step.cpu_seconds == pytest.approx(2 * one_step.cpu_seconds, rel=0.01)
    assert two.step("candidates").gets > 3.5 * one.step("candidates").gets


@given(st.integers(16, 4096), st.integers(100_000, 10**9))
def test_a_range_task_stays_within_the_budget(memory_mb: int, documents: int) -> None:
    found = plan(documents, memory_mb=memory_mb)
    budget = (memory_mb << 20) + 1e6
    for name in ("exact copies", "candidates", "election"):
        assert found.step(name).worker_bytes <= 1.2 * budget, name


def test_bands_cost_what_their_records_are() -> None:
    few, many = plan(bands=10, rows=7), plan(bands=20, rows=5)
    texts = 1_000_000  # of a partition: copies lie in other partitions
    wide = widths(PARAMS).band
    written = [found.step("signatures").written_bytes for found in (few, many)]
    assert written[1] - written[0] == pytest.approx(10 * wide * texts, rel=0.02)
    assert many.candidates > few.candidates


def test_without_minhash_there_are_no_bands() -> None:
    found = plan(minhash=False)
    assert [step.name for step in found.steps] == [
        "signatures", "exact copies", "survivors", "removals", "table of clusters", "on the driver", "transform",
    ]  # fmt: skip
    assert found.candidates == found.near_removed == 0 and found.exact_removed > 0


def test_an_empty_corpus_costs_nothing_worth_naming() -> None:
    found = plan(0)
    assert found.candidates == found.near_removed == found.exact_removed == 0
    assert found.shuffled_bytes < 1e6 and found.cpu_seconds < 1


def test_every_unit_has_a_price() -> None:
    params = DedupParams()
    q = quantities(assumed(1000, 1000, 1e6, 0.5, 0.3), params, banding(params))
    for load in loads(q, widths(params), params):
        assert load.units.keys() == measured().seconds[load.name].keys()
        assert all(price >= 0 for price in measured().seconds[load.name].values())


def test_json_and_back() -> None:
    found = plan()
    assert Estimate.model_validate_json(found.model_dump_json()) == found
    assert json.loads(found.model_dump_json())["bands"] == 13


def test_local_files_are_faster_than_an_object_store() -> None:
    corpus, params = assumed(1_000_000, 3000, 64 << 20, 0.5, 0.3), DedupParams()
    far = estimate(corpus, params, banding(params), 10)
    near = estimate(corpus, params, banding(params), 10, LOCAL)
    assert near.seconds < far.seconds and near.cpu_seconds == far.cpu_seconds


@given(st.floats(0, 1e12), st.floats(1, 1e6), st.floats(1, 1e6))
@example(2.2250738585072014e-308, 107.0, 120426.25)
def test_slices_that_are_not_empty(records: float, rows: float, columns: float) -> None:
    found = cells(records, rows, columns)
    assert 0 <= found <= min(records, rows * columns) * (1 + 1e-9)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e3))
def test_requests_for_neighbours(wanted: float, of: float, gap: float) -> None:
    requests, read = runs(wanted, of, gap)
    assert 0 <= requests <= max(1.0, wanted) * (1 + 1e-9)
    assert wanted * (1 - 1e-9) <= read <= max(wanted, of) * (1 + 1e-9)
    assert runs(10, 10, gap) == (1.0, 10)


def test_requests_for_neighbours_by_simulation() -> None:
    generator = np.random.default_rng(1)
    for wanted, of, gap in [(40, 800, 16), (300, 1000, 3), (5, 500, 50)]:
        requests, read = [], []
        for _ in range(300):
            places = np.sort(generator.choice(of, wanted, replace=False))
            gaps = np.diff(places) - 1
            over = gaps > gap
            requests.append(1 + over.sum())
            read.append(wanted + gaps[~over].sum())
        found = runs(wanted, of, gap)
        assert found[0] == pytest.approx(np.mean(requests), rel=0.1)
        assert found[1] == pytest.approx(np.mean(read), rel=0.1)


def test_limits_are_listed_worst_first_with_advice() -> None:
    assert exceeded(plan(100_000), Limits()) == []
    lines = exceeded(plan(10**10, workers=100), Limits())
    assert lines[0].startswith("requests: ") and "ingest.partition_mb" in lines[0]
    driver = next(line for line in lines if line.startswith("driver: "))
    assert "for union-find" in driver and "ingest.partition_mb" in driver
    small = exceeded(plan(1_000_000, memory_mb=4096), Limits(worker_bytes=1e9, disk_bytes=1e6))
    assert [line.split(":")[0] for line in small] == ["disk", "worker"]
    assert "lower dedup.memory_mb" in small[1]


def test_pairs_are_counted_by_the_curve() -> None:
    """All pairs in one bin: candidates are its share of them, and the bands that find each are written."""
    corpus = assumed(1_000_000, 3000, 64 << 20, 0, 0).model_copy(
        update={"pairs": tuple(1e4 if i == 90 else 0.0 for i in range(100))}
    )
    found = quantities(corpus, PARAMS, Banding(13, 7))
    assert found.candidates == pytest.approx(1e4 * Banding(13, 7).found(0.905), rel=1e-3)
    assert found.verified == found.candidates
    assert found.candidates <= found.edges - found.planted <= 1e4 * 13 * 0.91**7
    assert found.near_removed == pytest.approx(found.verified, rel=0.02)
