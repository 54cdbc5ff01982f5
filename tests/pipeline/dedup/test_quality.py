"""The figures that a run reports of itself."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from pipeline.dedup import quality, sketch
from pipeline.dedup.quality import wilson
from pipeline.dedup.records import SAMPLE
from schemas.storage import Folder
from tests.pipeline.dedup.helpers import dedup, docs_of, edited, words
from tests.pipeline.dedup.kernels.test_kernel import expected_sets


def family(seed: int, pairs: int, edits: tuple[int, ...]) -> list[str]:
    generator = random.Random(seed)
    texts = []
    for i in range(pairs):
        text = " ".join(words(generator, 150))
        texts += [text, edited(generator, text, edits[i % len(edits)])]
    return texts


def test_measured_recall_is_the_true_one(tmp_path: Path) -> None:
    """A banding that misses much: the run must say so, and by how much."""
    texts = family(1, 120, (2, 3))
    result = dedup(Folder(tmp_path), docs_of(texts), 3, bands=2, rows=14)
    report = json.loads(result.read("quality.json"))["measured"]
    sets = [set(expected_sets(text, 5)) for text in texts]
    near = []
    for i, j in itertools.combinations(range(len(texts)), 2):
        if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= 0.8:
            near.append((i, j))
    assert report["texts"] == len(texts) and report["recall"]["of"] == len(near) > 100
    assert report["recall"]["found"] == result.counters["near_removed"]
    assert 0 < report["recall"]["value"] < 0.8
    assert report["recall"]["low"] < report["recall"]["value"] < report["recall"]["high"]
    assert sum(entry["of"] for entry in report["curve"]) >= len(near)
    for entry in report["curve"]:
        if entry["of"] >= 20:
            assert entry["low"] - 0.1 <= entry["expected"] <= entry["high"] + 0.1


def test_default_promise_holds_where_it_is_hardest(tmp_path: Path) -> None:
    """Pairs just above 0.8: recall at least what was promised there, 0.95."""
    result = dedup(Folder(tmp_path), docs_of(family(2, 300, (3,))), 2, max_source_loss=1.0)
    report = json.loads(result.read("quality.json"))
    assert report["recall_at_similarity"] >= 0.95
    assert report["measured"]["recall"]["of"] > 200 and report["measured"]["recall"]["value"] >= 0.95
    assert report["precision"]["value"] == 1.0


def test_nothing_to_measure_is_said(tmp_path: Path) -> None:
    generator = random.Random(3)
    result = dedup(Folder(tmp_path), docs_of([" ".join(words(generator, 20)) for _ in range(10)]))
    measured = json.loads(result.read("quality.json"))["measured"]
    assert measured["recall"] == {"value": None, "found": 0, "of": 0, "low": 0.0, "high": 1.0}


def test_large_sample_is_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "HASHES", 146 * 50)
    result = dedup(Folder(tmp_path), docs_of(family(4, 60, (1,))), 3)
    assert json.loads(result.read("quality.json"))["measured"]["texts"] == 50


def test_sample_of_parts_is_the_sample_of_the_whole() -> None:
    generator = np.random.default_rng(5)
    records = np.zeros(20_000, SAMPLE)
    records["draw"] = generator.integers(0, 3000, 20_000)
    records["hi"], records["location"] = generator.integers(0, 15_000, 20_000), np.arange(20_000)
    # A text has one draw.
    records["draw"] = (records["hi"] * np.uint64(2654435761)) % np.uint64(3001)
    whole = sketch.draw(records)
    assert len(whole) == sketch.SAMPLE_SIZE
    assert np.unique(whole["draw"], return_counts=True)[1].max() <= sketch.SAMPLE_CROWD
    parts = [sketch.draw(part) for part in np.array_split(records, 7)]
    np.testing.assert_array_equal(sketch.draw(np.concatenate(parts)), whole)


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(found: int, of: int, low: float, high: float) -> None:
    """81 of 263 is the worked example of Newcombe (1998)."""
    assert list(wilson(found, of)) == pytest.approx([low, high], abs=1e-4)
