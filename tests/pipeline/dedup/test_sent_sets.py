"""Sets that are sent arrive whole, at the tasks that want them, in blocks of bounded size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.deduplication import new_job
from corpusmill.pipeline.dedup.exact_similarity import fetched, similarities
from corpusmill.pipeline.dedup.job import PARTNER, Job, copy_fields
from corpusmill.pipeline.dedup.sent_sets import SENT, WRITING, files_of, publish_starts, received, send
from corpusmill.pipeline.dedup.shingle_sets import PLACE, SETS
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.shuffle import Done, by_part
from corpusmill.schemas.dedup import DedupParams


def job_of(folder: Path, budget: int) -> Job:
    made = new_job(Folder(folder), DedupParams(), Banding(13, 7), {}, 100, "")

    class Small(Job):
        @property
        def budget(self) -> int:
            return budget

    return Small(**{**replace(made, slim=True).__dict__})


def partition(index: int, sizes: list[int]) -> tuple[Any, Any]:
    """(places, hashes) of the sets of a partition, each of distinct numbers."""
    nodes = np.zeros(len(sizes), PLACE)
    nodes["location"] = (index << 32) + np.arange(len(sizes)) * 3
    nodes["size"] = sizes
    nodes["start"] = np.r_[0, np.cumsum(sizes)][:-1]
    return nodes, np.arange(sum(sizes), dtype=np.uint64) + np.uint64(index * 1_000_000)


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), min_size=1, max_size=4),
    st.sets(st.integers(0, 9), min_size=1), st.integers(0, 2**32), st.sampled_from([64, 2_000, 1 << 20]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_is_sent_is_received(
    tmp_path_factory: pytest.TempPathFactory, made: list[list[int]], starts: set[int], seed: int, budget: int
) -> None:
    job = job_of(tmp_path_factory.mktemp("job"), budget)
    generator = np.random.default_rng(seed)
    first = sorted(starts)
    published = publish_starts(job, first)
    wanted: dict[int, dict[int, list[int]]] = {start: {} for start in first}  # task -> location -> hashes
    dones = []
    for index, sizes in enumerate(made):
        nodes, hashes = partition(index, sizes)
        partners = np.zeros(generator.integers(0, 30), PARTNER)
        partners["location"] = generator.choice(nodes["location"], len(partners))
        partners["first_in"] = generator.integers(first[0], 12, len(partners))
        for location, first_in in partners.tolist():
            row = int(np.searchsorted(nodes["location"], location))
            task = max(start for start in first if start <= first_in)
            begin = int(nodes["start"][row])
            wanted[task][location] = hashes[begin : begin + int(nodes["size"][row])].tolist()
        files = send(job, f"sets/{index:06d}", partners, published, nodes, hashes)
        dones.append(Done(key="", files=files))
        for file in files.values():
            largest = (2 * max(sizes) + 3) * 8
            assert file.file.bytes <= max(2 * budget // WRITING, largest)
    slices = by_part(files_of(dones), SENT)
    assert sorted(slices) == [task for task in first if wanted[task]]
    for task, mine in slices.items():
        blocks = list(received(job, mine))
        found = {
            int(location): block.hashes[block.bounds[i] : block.bounds[i + 1]].tolist()
            for block in blocks
            for i, location in enumerate(block.location)
        }
        assert found == wanted[task]
        locations = np.concatenate([block.location for block in blocks])
        assert (np.diff(locations) > 0).all()
        assert all((block.size == np.diff(block.bounds)).all() for block in blocks)


def test_blocks_fit_the_budget(tmp_path: Path) -> None:
    job = job_of(tmp_path, 64_000)
    published = publish_starts(job, [0])
    dones = []
    for index in range(20):
        nodes, hashes = partition(index, [50] * 10)
        partners = np.zeros(10, PARTNER)
        partners["location"] = nodes["location"]
        dones.append(Done(key="", files=send(job, f"sets/{index}", partners, published, nodes, hashes)))
    blocks = list(received(job, by_part(files_of(dones), SENT)[0]))
    assert len(blocks) > 4 and all(block.hashes.nbytes <= 16_000 for block in blocks)
    assert sum(len(block.location) for block in blocks) == 200


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    job = job_of(tmp_path, 1 << 20)
    nodes, hashes = partition(0, [5, 6])
    partners = np.zeros(2, PARTNER)
    partners["location"] = nodes["location"]
    files = send(job, "sets/0", partners, publish_starts(job, [0]), nodes, hashes)
    path = job.work / files[f"{SENT}.0000"].file.path
    data = bytearray(path.read())
    data[-1] ^= 1
    path.write(bytes(data))
    with pytest.raises(WorkError, match="its bytes changed"):
        list(received(job, by_part(files_of([Done(key="", files=files)]), SENT)[0]))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_text_without_its_set_is_no_text_that_resembles_none(tmp_path: Path, missing: int) -> None:
    job = job_of(tmp_path, 1 << 20)
    nodes, hashes = partition(0, [4, 5, 6])
    shuffle.write(job.work, SETS.format(0), hashes)
    known = copy_fields(nodes, np.zeros(3, PLACE), ("location", "start", "size"))
    known["sum"] = [hashes[:4].sum(), hashes[4:9].sum(), hashes[9:].sum()]
    a, b = np.repeat(nodes["location"][:1], 3), nodes["location"]
    whole = fetched(job, b, known)
    assert similarities(job, a, b, whole, known)[0].tolist() == [1.0, 0.0, 0.0]
    some = fetched(job, np.delete(b, missing), known)
    with pytest.raises(WorkError, match="has no set there"):
        similarities(job, a, b, some, known)
