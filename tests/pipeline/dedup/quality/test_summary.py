"""The figures of a run: true where the truth is known, with intervals by the book."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.quality.planted import PLANTED
from corpusmill.pipeline.dedup.quality.precision import share, wilson
from corpusmill.pipeline.dedup.quality.recall import (
    PAIR,
    SAMPLE,
    Sample,
    draw,
    measure,
    sample_records,
    scattered,
)
from corpusmill.pipeline.dedup.quality.summary import summary
from corpusmill.pipeline.engine.shuffle import Done, Slice, read, write
from tests.pipeline.dedup.quality.made import job_of, made_up, publish_sets, replaced
from tests.pipeline.text.reference import expected_sets

HALF = Banding(2, 7)  # finds 38 % of the pairs at 0.8


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605),
     (0, 20, 0, 0.1611), (1, 29, 0.0061, 0.1718), (29, 29, 0.8830, 1)],
)  # fmt: skip
def test_wilson(found: int, of: int, low: float, high: float) -> None:
    """81 of 263, 15 of 148, 0 of 20 and 1 of 29 are the worked examples of Newcombe (1998), table I."""
    assert list(wilson(found, of)) == pytest.approx([low, high], abs=1e-4)


def test_dependent_things_widen_the_interval() -> None:
    alone, grouped = share(80, 100), share(80, 100, 25.0)
    assert grouped["low"] < alone["low"] and grouped["high"] > alone["high"]
    assert grouped["value"] == alone["value"] == 0.8 and grouped["effective"] == 25.0
    assert [grouped["low"], grouped["high"]] == pytest.approx(wilson(20, 25), abs=1e-6)
    assert share(80, 100, 100.0) == alone and share(0, 0, 0.0)["value"] is None


def test_measured_recall_is_the_true_one(tmp_path: Path) -> None:
    """A banding that misses much, over three partitions: every pair is listed with its similarity, and the
    share found lies where the theory has it."""
    generator = random.Random(1)
    job = job_of(Folder(tmp_path), HALF)
    texts = []
    for i in range(150):
        text = " ".join(made_up(generator, 150))
        texts += [text, replaced(generator, text, i % 8)]
    nodes = np.concatenate([publish_sets(job, part, texts[part::3]) for part in range(3)])
    ordered = [text for part in range(3) for text in texts[part::3]]
    # Copies have equal draws, as near-copies mostly have; all are wanted.
    draws = scattered(np.array([texts.index(text) // 2 for text in ordered], np.uint64), 1)
    sample = draw(sample_records(draws, nodes), 300)
    assert len(sample) == 300
    file = write(job.work, "sample", sample)
    done = measure(job, Sample(Slice("sample", 0, len(sample), file.file.xxh3)))
    pairs = read(job.work, done.files["pairs"].file, PAIR)
    used = read(job.work, done.files["texts"].file, SAMPLE)
    np.testing.assert_array_equal(used["location"], nodes["location"])
    sets = [set(expected_sets(text, 5)) for text in ordered]
    near = {}
    for i, j in itertools.combinations(range(len(sets)), 2):
        if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= 0.5:
            near[i, j] = len(sets[i] & sets[j]) / len(sets[i] | sets[j])
    assert {(a, b): j for a, b, j, _ in pairs.tolist()} == near and len(near) == 150
    # What shared a band is in one cluster.
    labels = np.arange(300)
    for a, b, _, hit in pairs.tolist():
        if hit:
            labels[b] = a
    found = summary(HALF, 0.8, used, pairs, labels, np.zeros(0, PLANTED), {"value": 1.0})
    above = [pair for pair in pairs.tolist() if pair[2] >= 0.8]
    assert found["recall"]["of"] == len(above) and found["recall"]["found"] == sum(pair[3] for pair in above)
    assert found["lsh_recall"]["found"] == found["recall"]["found"] and found["precision"] == {"value": 1.0}
    assert found["lsh_recall"]["low"] < found["lsh_recall"]["expected"] < found["lsh_recall"]["high"]
    for entry in found["curve"]:
        assert entry["of"] == 0 or entry["low"] <= entry["expected"] <= entry["high"]
        assert entry["mean"] is None or entry["jaccard"] <= entry["mean"] <= max(1, entry["jaccard"] + 0.05)
    assert sum(entry["of"] for entry in found["curve"]) == len(near)
    assert sum(row["texts"] for row in found["strata"]) == found["texts"] == 300
    assert sum(row["recall"]["of"] for row in found["strata"]) == len(above)
    assert found["combined_curve"] == found["curve"] and found["planted"]["recall"]["value"] is None


def test_pairs_of_one_cluster_count_as_one() -> None:
    """Ten texts alike give 45 pairs, but one cluster; ten pairs give ten."""
    texts = np.zeros(30, SAMPLE)
    texts["shingles"] = 100
    pairs = np.zeros(55, PAIR)
    crowd = np.array(list(itertools.combinations(range(10), 2)))
    pairs["a"], pairs["b"] = np.r_[crowd[:, 0], 10:30:2], np.r_[crowd[:, 1], 11:30:2]
    pairs["jaccard"] = 0.9
    labels = np.repeat([0, 1], [10, 20])
    found = summary(HALF, 0.8, texts, pairs, labels, np.zeros(0, PLANTED), {})
    assert found["recall"]["found"] == found["recall"]["of"] == 55
    assert found["recall"]["effective"] == round(55**2 / (45**2 + 10), 1)
    few = summary(HALF, 0.8, texts, pairs[45:], labels, np.zeros(0, PLANTED), {})
    assert "effective" not in few["recall"]


def test_planted_and_sample_are_distinguished_and_added_up() -> None:
    planted = np.zeros(6, PLANTED)
    planted["jaccard"] = [0.52, 0.79, 0.81, 0.82, 0.96, 0.99]
    planted["hit"] = [False, True, True, False, True, True]
    planted["found"] = [False, False, True, False, True, True]
    texts = np.zeros(2, SAMPLE)
    texts["shingles"] = [127, 129]
    pairs = np.zeros(1, PAIR)
    pairs["b"], pairs["jaccard"], pairs["hit"] = 1, 0.82, True
    found = summary(HALF, 0.8, texts, pairs, np.array([-1, -1]), planted, {})
    assert (found["planted"]["recall"]["found"], found["planted"]["recall"]["of"]) == (3, 4)
    assert (found["planted"]["lsh_recall"]["found"], found["planted"]["texts"]) == (3, 6)
    assert (found["recall"]["found"], found["lsh_recall"]["found"], found["recall"]["of"]) == (0, 1, 1)
    by_bin = {entry["jaccard"]: (entry["found"], entry["of"]) for entry in found["combined_curve"]}
    assert (
        by_bin[0.8] == (2, 3) and by_bin[0.75] == (1, 1) and by_bin[0.5] == (0, 1) and by_bin[1.0] == (0, 0)
    )
    assert [(row["from"], row["to"], row["texts"]) for row in found["strata"]] == [
        (64, 127, 1),
        (128, 255, 1),
    ]


def test_measuring_is_done_once(tmp_path: Path) -> None:
    job = job_of(Folder(tmp_path))
    nodes = publish_sets(job, 0, ["a b c d e f g", "a b c d e f h"])
    sample = sample_records(np.arange(2, dtype=np.uint64), nodes)
    file = write(job.work, "sample", sample)
    item = Sample(Slice("sample", 0, 2, file.file.xxh3))
    done = measure(job, item)
    (job.work / "sample").delete()
    assert measure(job, item) == done and isinstance(done, Done)
