"""The quality figures of a whole run of the stage."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.quality import recall
from tests.pipeline.dedup.helpers import Result, dedup, docs_of
from tests.pipeline.dedup.quality.made import made_up, replaced
from tests.pipeline.text.reference import expected_sets


def family(seed: int, pairs: int, edits: tuple[int, ...], length: int = 150) -> list[str]:
    """Pairs of a text and its copy with so many words replaced."""
    generator = random.Random(seed)
    texts = []
    for i in range(pairs):
        text = " ".join(made_up(generator, length))
        texts += [text, replaced(generator, text, edits[i % len(edits)])]
    return texts


def report(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.read("quality.json"))["measured"]
    return found


def test_measured_recall_is_the_true_one(tmp_path: Path) -> None:
    """A banding that misses much: the run must report it, and by how much."""
    texts = family(1, 120, (2, 3))
    result = dedup(Folder(tmp_path), docs_of(texts), 3, bands=2, rows=14, planted=100)
    found = report(result)
    sets = [set(expected_sets(text, 5)) for text in texts]
    near = 0
    for a, b in itertools.combinations(sets, 2):
        near += len(a & b) / len(a | b) >= 0.8
    assert found["texts"] == len(texts) and found["recall"]["of"] == near > 100
    assert found["recall"]["found"] == result.counters["near_removed"]
    assert 0 < found["recall"]["value"] < 0.8
    assert found["recall"]["low"] < found["recall"]["value"] < found["recall"]["high"]
    assert found["planted"]["texts"] > 50 and found["planted"]["recall"]["value"] < 0.8
    for curve in (found["curve"], found["planted"]["curve"], found["combined_curve"]):
        for entry in curve:
            assert entry["of"] == 0 or entry["low"] - 0.05 <= entry["expected"] <= entry["high"] + 0.05


def test_default_promise_holds_where_it_is_hardest(tmp_path: Path) -> None:
    """Pairs just above 0.8: recall at least what was promised there, 0.95."""
    result = dedup(Folder(tmp_path), docs_of(family(2, 300, (3,))), 2, max_source_loss=1.0)
    found = report(result)
    assert json.loads(result.read("quality.json"))["recall_at_similarity"] >= 0.95
    assert found["recall"]["of"] > 200 and found["recall"]["value"] >= 0.95
    assert found["precision"]["of"] == result.counters["near_removed"] and found["precision"]["value"] == 1.0
    assert found["precision"]["disagree"] == 0 and found["planted"]["recall"]["value"] > 0.93


@pytest.mark.parametrize(
    "params",
    [
        {"shingle": "char", "ngram": 12},
        {"preset": "datatrove"},
        {"normalized": True},
        {"similarity": 0.6, "ngram": 3},
    ],
    ids=str,
)
def test_precision_is_whole_whatever_the_shingle(tmp_path: Path, params: dict[str, Any]) -> None:
    texts = family(3, 60, (1, 2), 100)
    texts += [text.upper() + "!" for text in texts[:20]] + texts[20:30]
    result = dedup(Folder(tmp_path), docs_of(texts), 2, **params)
    found = report(result)
    assert found["precision"]["of"] == len(result.removed) > 60
    assert found["precision"]["value"] == 1.0 and found["precision"]["disagree"] == 0


def test_nothing_to_measure_is_reported(tmp_path: Path) -> None:
    generator = random.Random(3)
    texts = [" ".join(made_up(generator, 19)) for _ in range(10)]
    found = report(dedup(Folder(tmp_path), docs_of(texts)))
    assert found["recall"] == {"value": None, "found": 0, "of": 0, "low": 0.0, "high": 1.0}
    assert found["planted"]["texts"] == 0 and found["precision"]["value"] is None


def test_large_sample_is_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whole texts, in strata of 96 and of 192 shingles."""
    monkeypatch.setattr(recall, "HASHES", 96 * 50)
    found = report(dedup(Folder(tmp_path), docs_of(family(4, 60, (1,), 100)), 3))
    assert 48 <= found["texts"] <= 50 and sum(row["texts"] for row in found["strata"]) == found["texts"]


def test_planted_copies_are_in_no_output(tmp_path: Path) -> None:
    """With and without them the same goes; the counters do not count them, but for the work that they
    make."""
    texts = family(5, 80, (1, 4))
    with_them = dedup(Folder(tmp_path) / "with", docs_of(texts), 2, planted=1000)
    without = dedup(Folder(tmp_path) / "without", docs_of(texts), 2, planted=0)
    assert report(with_them)["planted"]["texts"] > 100 and report(without)["planted"]["texts"] == 0
    assert with_them.removed == without.removed
    assert with_them.counters | {"compared": 0} == without.counters | {"compared": 0}
    assert with_them.read("clusters.parquet") == without.read("clusters.parquet")
