"""Precision: 1 if all removals are right, and each wrong one is found, whichever code made it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.quality import precision
from corpusmill.pipeline.dedup.quality.precision import AUDIT, audit, measure_precision
from corpusmill.pipeline.engine.shuffle import Records
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text import shingling
from tests.pipeline.dedup.helpers import docs_of, partitions
from tests.pipeline.dedup.quality.made import job_of, made_up, map_for, replaced

PER = 40  # documents of a partition


def corpus(folder: Folder, count: int = 60) -> tuple[list[Partition], Records]:
    """Pairs of a text and its near-copy (one word of 150, Jaccard 0.934) over three partitions, as audits of
    true removals."""
    generator = random.Random(7)
    originals = [" ".join(made_up(generator, 150)) for _ in range(count)]
    texts = originals + [replaced(generator, text, 1) for text in originals]
    parts = partitions(folder / "in", docs_of(texts), len(texts) // PER)
    audits = np.zeros(count, AUDIT)
    audits["draw"] = generator.sample(range(10**9), count)
    audits["survivor"] = place(np.arange(count))
    audits["location"] = place(count + np.arange(count))
    audits["jaccard"] = 141 / 151
    return parts, audits


def place(row: np.ndarray) -> np.ndarray:
    return (row // PER << 32) | (row % PER)


def test_true_removals(tmp_path: Path) -> None:
    job = job_of(Folder(tmp_path))
    parts, audits = corpus(Folder(tmp_path))
    found = measure_precision(job, parts, audits, map_for(job))
    assert (found["value"], found["found"], found["of"], found["disagree"]) == (1.0, 60, 60, 0)
    assert found["least"] == round(141 / 151, 6) and 0.9 < found["low"] < 1 == found["high"]
    assert found["too_long"] == 0
    sizes = [entry.size for entry in (job.work / "precision").list() if entry.path.endswith(".texts")]
    assert len(sizes) == 3 and sum(sizes) == 120 * (150 * 8 - 1), "only the texts asked for"


def test_false_removals_are_found(tmp_path: Path) -> None:
    """Three documents removed for texts that are not like them, recorded as if they were."""
    job = job_of(Folder(tmp_path))
    parts, audits = corpus(Folder(tmp_path))
    audits["survivor"][[3, 20, 41]] = audits["survivor"][[4, 21, 42]]
    found = measure_precision(job, parts, audits, map_for(job))
    assert (found["found"], found["of"], found["disagree"], found["least"]) == (57, 60, 3, 0.0)
    assert found["low"] < 0.95 < found["high"]


@pytest.mark.parametrize("params", [{}, {"shingle": "char", "ngram": 20}], ids=str)
def test_colliding_hashes_do_not_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    """Kernels under which all texts are equal: the judge does not ask them."""
    job = job_of(Folder(tmp_path), **params)
    parts, audits = corpus(Folder(tmp_path), 40)
    audits["survivor"] = np.roll(audits["survivor"], 1)
    monkeypatch.setattr(
        shingling, "_sets", lambda offsets, data, rows, *rest: (np.arange(len(rows) + 1), np.ones(len(rows)))
    )
    found = measure_precision(job, parts, audits, map_for(job))
    assert found["found"] == 0 and found["of"] == 40


def test_similarity_asked_for_is_the_measure(tmp_path: Path) -> None:
    job = job_of(Folder(tmp_path), similarity=0.94)
    parts, audits = corpus(Folder(tmp_path), 40)
    assert measure_precision(job, parts, audits, map_for(job))["found"] == 0


def test_words_of_datatrove_are_its_own(tmp_path: Path) -> None:
    """It drops punctuation and tells numbers by zeros: such texts are equal there and not here."""
    texts = [
        " ".join(f"item {i} costs {i}9" for i in range(30)),
        " ".join(f"item {i}! costs {i}7" for i in range(30)),
    ]
    audits = np.zeros(1, AUDIT)
    audits["location"], audits["survivor"] = 1, 0
    for preset, right in (("datatrove", 1), ("corpusmill", 0)):
        folder = Folder(tmp_path) / preset
        job = job_of(folder, preset=preset)
        found = measure_precision(job, partitions(folder / "in", docs_of(texts)), audits, map_for(job))
        assert (found["found"], found["of"]) == (right, 1)


def test_nothing_removed(tmp_path: Path) -> None:
    job = job_of(Folder(tmp_path))
    parts, audits = corpus(Folder(tmp_path))
    found = measure_precision(job, parts, audits[:0], map_for(job))
    assert found["value"] is None and found["of"] == 0 and (found["low"], found["high"]) == (0.0, 1.0)


def test_copies_without_words_and_long_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal texts are equal, whatever they hold; what is too long is counted, not judged."""
    monkeypatch.setattr(precision, "LONGEST", 500)
    job = job_of(Folder(tmp_path))
    parts = partitions(Folder(tmp_path) / "in", docs_of(["", "", "?!", "?!", "a " * 500, "a " * 500]))
    audits = np.zeros(3, AUDIT)
    audits["location"], audits["survivor"], audits["jaccard"] = [0, 2, 4], [1, 3, 5], 1.0
    found = measure_precision(job, parts, audits, map_for(job))
    assert (found["found"], found["of"], found["too_long"], found["disagree"]) == (2, 2, 1, 0)


def test_text_compared_is_bounded_the_same_for_any_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pairs that fit, in the order of their draws, whether their texts lie together or apart."""
    monkeypatch.setattr(precision, "BYTES", 25 * 2 * 1199)
    generator = random.Random(8)
    texts = [" ".join(made_up(generator, 150)) for _ in range(40)]
    texts += [replaced(generator, text, 1) for text in texts]
    order = generator.sample(range(40), 40)
    found = []
    for count in (1, 3, 80):
        folder = Folder(tmp_path / str(count))
        per = [len(part) for part in np.array_split(np.arange(80), count)]
        starts = np.r_[0, np.cumsum(per)]
        rows = np.arange(80)
        index = np.searchsorted(starts, rows, side="right") - 1
        location = index << 32 | (rows - starts[index])
        audits = np.zeros(40, AUDIT)
        audits["draw"] = order
        audits["location"], audits["survivor"] = location[40:], location[:40]
        audits["jaccard"] = np.where(np.array(order) < 5, 0.5, 141 / 151)
        job = job_of(folder)
        parts = partitions(folder / "in", docs_of(texts), count)
        found.append(measure_precision(job, parts, audit(audits), map_for(job)))
    assert found[0] == found[1] == found[2]
    assert found[0]["of"] == 25 and found[0]["disagree"] == 5, "with the least draws"


def test_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(Folder(tmp_path))
    parts, audits = corpus(Folder(tmp_path))
    found = measure_precision(job, parts, audits, map_for(job))
    monkeypatch.setattr(precision, "_gather", None)
    monkeypatch.setattr(precision, "_compare", None)
    assert measure_precision(job, parts, audits, map_for(job)) == found
    with pytest.raises(TypeError):
        measure_precision(job, parts, audits[1:], map_for(job))


@given(
    st.integers(0, 2**32), st.integers(0, 300), st.lists(st.integers(0, 300), max_size=5), st.integers(0, 50)
)
def test_audits_of_parts_give_that_of_the_whole(seed: int, count: int, cuts: list[int], size: int) -> None:
    generator = np.random.default_rng(seed)
    records = np.zeros(count, AUDIT)
    records["draw"] = generator.integers(0, 50, count)
    records["location"] = generator.permutation(count)
    whole = audit(records, size)
    parts = [audit(part, size) for part in np.split(records, sorted(min(cut, count) for cut in cuts))]
    np.testing.assert_array_equal(audit(np.concatenate(parts), size), whole)
    assert len(whole) == min(size, count)
