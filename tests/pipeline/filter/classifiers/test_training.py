"""Training and judging, on small made sets."""

from __future__ import annotations

import unittest.mock
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers import predictor, training
from corpusmill.pipeline.filter.classifiers.building import build, thresholds_table
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, chosen, held_out
from corpusmill.pipeline.filter.classifiers.training import (
    Training,
    auc,
    choose_threshold,
    evaluate_classifier,
    pseudo_labelled,
    rounded,
    score_texts,
    train_classifier,
)
from tests.pipeline.filter.classifiers.helpers import made_set

TRAINING = Training(label="spam", epochs=15, buckets=1000, features=2000, seed=3)


def test_training_is_reproducible_and_learns() -> None:
    data = made_set(0)
    trained = train_classifier([data], TRAINING)
    assert trained.binary == train_classifier([data], TRAINING).binary
    (out,) = trained.held_out
    assert 30 < len(out) < 100 and trained.copies == 0
    assert held_out(out.texts, TRAINING.held_out, TRAINING.seed).all()
    result = evaluate_classifier(predictor.load_bytes(trained.binary), "spam", made_set(1), "mean", [0.5])
    assert result.auc is not None and result.auc > 0.99
    precision, recall = result.at(0.5)["precision"], result.at(0.5)["recall"]
    assert precision is not None and recall is not None and precision > 0.9 and recall > 0.9


def test_a_near_copy_of_what_was_learnt_from_judges_nothing() -> None:
    data = made_set(0)
    out = held_out(data.texts, TRAINING.held_out, TRAINING.seed)
    learnt = next(t for t, apart in zip(data.texts, out, strict=True) if not apart and t.count(" ") > 20)
    words = learnt.split()
    near = [" ".join([*words[: i % len(words)], f"new{i}", *words[i % len(words) + 1 :]]) for i in range(200)]
    # A changed word moves some to the other side, where they are copies of what is learnt from.
    moved = held_out(near, TRAINING.held_out, TRAINING.seed)
    assert 0 < moved.sum() < 60
    more = Labelled("made", [*data.texts, *near], [*data.positive, *[True] * 200])
    trained = train_classifier([more], TRAINING)
    assert trained.copies == moved.sum()
    assert not set(near) & set(trained.held_out[0].texts)


def test_texts_that_a_model_is_sure_of_are_trained_on(tmp_path: Path) -> None:
    few = chosen(made_set(0), np.arange(len(made_set(0))) % 4 == 0)
    more = made_set(2)
    first = train_classifier([few], TRAINING)
    model = predictor.load_bytes(first.binary)
    pseudo = pseudo_labelled(model, "more", more.texts, TRAINING, 0.95)
    scores = dict(zip(more.texts, score_texts(model, "spam", more.texts, "mean"), strict=True))
    assert 0 < len(pseudo) < len(more)
    assert all(
        scores[t] >= np.float32(0.95) if p else scores[t] <= np.float32(1 - 0.95)
        for t, p in zip(pseudo.texts, pseudo.positive, strict=True)
    )
    right = dict(zip(more.texts, more.positive, strict=True))
    assert np.mean([right[t] == p for t, p in zip(pseudo.texts, pseudo.positive, strict=True)]) > 0.9
    second = train_classifier([few], TRAINING, [pseudo])
    assert (
        second.binary != first.binary and len(second.held_out) == 1
    )  # nothing of what it labelled itself is held out
    made = build(
        tmp_path / "mine.ftz", "mine", "", [few], [], TRAINING, [0.5], unlabelled={"more": more.texts}, confidence=0.95
    )  # fmt: skip
    assert (tmp_path / "mine.ftz").read_bytes() == second.binary
    assert made.without is not None and made.without.documents == made.held_out.documents
    card = (tmp_path / "mine.md").read_text()
    assert (
        "| with pseudo-labels |" in card
        and f"{len(pseudo):,} of {len(more):,} texts, labelled by a first model" in card
    )


def test_labels_that_fasttext_cannot_hold() -> None:
    for label in ("two words", "", "other"):
        with pytest.raises(UserError, match="one word is needed"):
            train_classifier([made_set(0)], Training(label=label))


def test_one_class_alone_cannot_be_trained_on() -> None:
    with pytest.raises(UserError, match="none without it"):
        train_classifier([Labelled("a", [f"x y z {i}" for i in range(20)], [True] * 20)], TRAINING)
    with pytest.raises(UserError, match="none with it"):
        train_classifier(
            [Labelled("a", ["x y z", "w v", "u t s"], [False] * 3)], Training(label="a", held_out=0.0)
        )


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_auc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    scores, truth = [s for s, _ in rows], [t for _, t in rows]
    pairs = [(a > b) + (a == b) / 2 for a, x in rows for b, y in rows if x and not y]
    found = auc(np.array(scores, np.float32), np.array(truth, np.bool_))
    assert found == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


def test_thresholds() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], np.float32)
    truth = np.array([True, True, False, True, False, False])
    # Above .7 all are right, above .5 three of four, above .4 three of five.
    assert choose_threshold(scores, truth, precision=1.0) == pytest.approx(0.7)
    assert choose_threshold(scores, truth, precision=0.75) == pytest.approx(0.5)
    assert choose_threshold(scores, truth, kept=0.5) == pytest.approx(0.65)
    with pytest.raises(UserError, match="no threshold reaches"):
        choose_threshold(scores, ~truth, precision=1.0)
    for wrong in ({}, {"precision": 0.5, "kept": 0.5}):
        with pytest.raises(UserError, match="either a target precision or a kept share"):
            choose_threshold(scores, truth, **wrong)


def test_a_row_of_an_evaluation_counts_what_is_above(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.1], np.float32)
    monkeypatch.setattr(training, "score_texts", lambda *_: scores)
    data = Labelled("made", ["a", "b", "c", "d"], [True, True, False, False])
    result = evaluate_classifier(unittest.mock.Mock(), "spam", data, "mean", [0.1, 0.5, 0.9])
    assert (result.documents, result.positives, result.auc) == (4, 2, 0.875)
    keys = ("threshold", "precision", "recall", "false_positive_rate", "share_above")
    assert [tuple(row[key] for key in keys) for row in result.rows] == [
        (0.1, 2 / 3, 1.0, 0.5, 0.75), (0.5, 1.0, 0.5, 0.0, 0.25), (0.9, None, 0.0, 0.0, 0.0),
    ]  # fmt: skip
    assert "| 0.500 | 1.000 | 0.500 | 0.000 | 0.250 |" in thresholds_table(result.rows)
    assert "| 0.99997 | – |" in thresholds_table([{"threshold": 0.99997, "precision": None}])


def test_an_unreached_precision_is_reported_with_the_best() -> None:
    scores, truth = np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([True, False, False, True])
    with pytest.raises(UserError, match=r"the best on the held-out texts is 0\.667"):
        choose_threshold(scores, ~truth, precision=0.9)
    with pytest.raises(UserError, match="all of them score the same"):
        choose_threshold(np.full(4, 0.5, np.float32), np.ones(4, np.bool_), precision=0.5)


@pytest.mark.parametrize(
    ("scores", "threshold", "wanted"),
    [
        ([0.9, 0.71234567, 0.2], 0.3, 0.3),
        ([0.9, 0.71234567, 0.2], 0.71234567, 0.71235),
        ([0.9, 0.70004, 0.2], 0.70004, 0.70004),  # .7 would let one more through
        ([0.99999, 0.99998, 0.99997, 0.5], 0.99997, 0.99997),  # above 1 is nothing
        ([0.2, 0.1], 0.123456, 0.1235),
    ],
)
def test_a_rounded_threshold_parts_the_texts_as_it_did(
    scores: list[float], threshold: float, wanted: float
) -> None:
    found = np.array(scores, np.float32)
    short = rounded(float(np.float32(threshold)), found)
    assert short == wanted
    assert ((found > np.float32(short)) == (found > np.float32(threshold))).all()
