"""What goes between steps: the groups are those that the stage makes, the slices those that are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.deduplication import new_job
from corpusmill.pipeline.dedup.estimate.corpus import assumed, measured
from corpusmill.pipeline.dedup.estimate.model import estimate
from corpusmill.pipeline.dedup.estimate.quantities import (
    Exchange,
    Quantities,
    comparison,
    exchanges,
    quantities,
    received,
    slices_bytes,
    verify_tasks,
    widths,
)
from corpusmill.pipeline.dedup.estimate.step_loads import loads
from corpusmill.pipeline.dedup.exact_similarity import TASKS, groups_of
from corpusmill.pipeline.dedup.job import BAND, COPIES, MOST_SLICES, NUMBERS, parts
from corpusmill.pipeline.engine.shuffle import Done, once, write
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Estimate

DEFAULTS = DedupParams()


def counts(documents: int, params: DedupParams = DEFAULTS, partition_mb: int = 64) -> Quantities:
    return quantities(assumed(documents, 3000, partition_mb << 20, 0.5, 0.3), params, banding(params))


def plan(documents: int, **params: object) -> Estimate:
    checked = DedupParams.model_validate(params)
    return estimate(assumed(documents, 3000, 64 << 20, 0.5, 0.3), checked, banding(checked), 10)


@given(st.integers(1, 10**10), st.sampled_from([16, 512, 4096]))
def test_files_are_put_together_as_the_stage_decides(documents: int, memory_mb: int) -> None:
    params = DedupParams(memory_mb=memory_mb)
    q = counts(documents, params)
    assert q.slim == (q.partitions * max(q.band_ranges, q.text_ranges) > MOST_SLICES)
    found = exchanges(q, widths(params), params)
    assert ("sent" in found) == ("partners" in found) == q.slim != ("nodes" in found)
    for name, exchange in found.items():
        assert 0 <= exchange.slices <= exchange.places * (1 + 1e-9)
        assert bool(exchange.together) == (q.slim and name != "sent")
        assert exchange.groups <= max(1.0, np.ceil(exchange.files))


@pytest.mark.parametrize("slim", [False, True])
def test_slices_and_groups_are_those_of_the_stage(tmp_path: Path, slim: bool) -> None:
    """Twelve files of 6,000 records over 40 parts, and a budget for five of them a task."""
    files, records, columns = 12, 6_000, 40
    params = DedupParams(memory_mb=16)
    made = new_job(Folder(tmp_path), params, Banding(13, 7), {}, files * records, "")
    most = records * (COPIES * BAND.itemsize + NUMBERS) * 5

    class Small(type(made)):  # type: ignore[misc]
        @property
        def budget(self) -> int:
            return most

    job = Small(**replace(made, slim=slim).__dict__)
    generator = np.random.default_rng(1)

    def publish(number: int) -> Done:
        numbers = np.sort(generator.integers(0, columns, records))
        return Done(
            key="", files={"bands": write(job.work, f"made/{number}.bands", np.zeros(records, BAND), numbers)}
        )

    dones = [once(job.work, f"made/{number}", "", lambda n=number: publish(n)) for number in range(files)]  # type: ignore[misc]
    tasks: list[int] = []

    def mapped(step: object, items: list[object], label: str) -> list[Done]:
        tasks.append(len(items))
        return [step(job, item) for item in items]  # type: ignore[operator]

    found = parts(job, job.work, dones, "bands", mapped)
    expected = Exchange(
        "made", files * records, BAND.itemsize, files, columns, False, True, float(most) if slim else 0.0
    )
    assert sum(map(len, found.values())) == pytest.approx(expected.slices)
    assert tasks == ([expected.groups] if slim else []) and expected.groups == (3 if slim else files)


@given(st.integers(1, 3_000), st.integers(1, 200))
def test_partitions_are_compared_in_so_many_tasks(partitions: int, pairs: int) -> None:
    """Against `groups_of`, each partition with so many pairs."""

    class Some:
        records = pairs

        def joined(self, other: Some) -> Some:
            both = Some()
            both.records = self.records + other.records
            return both

    class Small:
        whole, budget = False, 512 << 20

    found = groups_of(Small(), {index: Some() for index in range(partitions)})  # type: ignore[arg-type, misc]
    wanted = verify_tasks(1e9 * partitions, partitions, (512 << 20) * 10**9 // pairs)
    assert len(found) == pytest.approx(wanted, abs=1)
    assert len(found) >= min(partitions, TASKS)


def test_fewer_requests_once_files_are_put_together() -> None:
    before, after = plan(80_000_000), plan(100_000_000)
    assert not any(step.name == "files together" for step in before.steps)
    step = after.step("files together")
    assert step.puts > 0 and step.read_bytes > after.step("signatures").written_bytes / 2
    assert after.step("candidates").gets < before.step("candidates").gets
    assert after.step("signatures").entries == 0 and before.step("signatures").entries > 0


def test_the_driver_holds_places() -> None:
    constants = measured()
    q, w = counts(20_000_000), widths(DEFAULTS)
    assert not q.slim
    found = exchanges(q, w, DEFAULTS)
    everything = sum(exchange.slices for exchange in found.values())
    held = slices_bytes(found, constants)
    assert 0 < held < everything * (constants.place_bytes + constants.slice_bytes + constants.routing_bytes)
    step = sum(load.entries for load in loads(q, w, DEFAULTS)) - q.partitions
    assert step == pytest.approx(everything)


def test_a_task_opens_what_its_partners_lie_in_once() -> None:
    q, w = counts(10**9), widths(DEFAULTS)
    few = comparison(q, w, DEFAULTS, 10_000, 1)
    many = comparison(q, w, DEFAULTS, 2_000_000, 100)
    assert few.rounds == 1 and few.opened <= 10_001
    assert many.rounds > 1 and many.runs <= 4_000_000
    larger = comparison(q, w, DedupParams(memory_mb=4096), 2_000_000, 100)
    assert larger.rounds < many.rounds and larger.runs <= many.runs and larger.opened == many.opened


def test_sets_that_are_sent_are_not_asked_for_one_by_one() -> None:
    q, w = counts(10**9), widths(DEFAULTS)
    fetches, is_sent = (fetch(q, w, DEFAULTS, 2_000_000, 100) for fetch in (comparison, received))
    assert fetches.runs > 1_900_000 and is_sent.runs < 100_000
    assert is_sent.opened <= 100 < fetches.opened
    sent = exchanges(q, w, DEFAULTS)["sent"]
    assert 0 < sent.slices < q.partitions * q.verify_tasks and sent.records == q.candidates


def test_containment_has_more_records_a_band_range_and_says_what_it_leaves_out() -> None:
    less, more = plan(5_000_000), plan(5_000_000, containment=0.8)
    assert more.step("candidates").read_bytes > 5 * less.step("candidates").read_bytes
    assert more.step("candidates").tasks > 5 * less.step("candidates").tasks
    assert more.step("candidates").worker_bytes < 1.3 * (512 << 20)
    assert more.cpu_seconds > less.cpu_seconds and more.shuffled_bytes > less.shuffled_bytes
    assert less.not_counted == () and more.not_counted == ("pairs that dedup.containment finds",)
    assert plan(10, url=True, lines={}).not_counted == ("dedup.url", "dedup.lines")
