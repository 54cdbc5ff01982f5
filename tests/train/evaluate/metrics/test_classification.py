"""Precision, recall, F1, Matthews' correlation and correlations of numbers are what their definitions give, class by class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from corpusmill.train.evaluate.metrics.classification import LABEL_METRICS, classification, correlation

PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abcd")), min_size=1, max_size=30)


def divided(top: float, bottom: float) -> float:
    return top / bottom if bottom else 0.0


def by_definition(found: list[str], wanted: list[str], name: str, positive: str) -> float:
    """As scikit-learn documents them, with zero_division=0."""
    pairs = list(zip(found, wanted, strict=True))
    if name == "accuracy":
        return sum(f == w for f, w in pairs) / len(pairs)
    if name == "matthews":  # the correlation of indicator matrices
        classes = sorted({*found, *wanted})
        x, y = (
            np.array([[float(one == c) for c in classes] for one in labels]) for labels in (found, wanted)
        )
        x, y = x - x.mean(0), y - y.mean(0)
        return float(divided((x * y).sum(), np.sqrt((x * x).sum() * (y * y).sum())))

    def of(classes: set[str]) -> tuple[int, int, int]:
        return (
            sum(f == w and f in classes for f, w in pairs),
            sum(f in classes for f, _ in pairs),
            sum(w in classes for _, w in pairs),
        )

    def figure(right: int, predicted: int, there: int) -> float:
        bottom = {"precision": predicted, "recall": there, "f1": (predicted + there) / 2}[name.split("_")[0]]
        return divided(right, bottom)

    every = {*found, *wanted}
    if name.endswith("_micro"):
        return figure(*of(every))
    if name.endswith("_macro"):
        return sum(figure(*of({one})) for one in every) / len(every)
    return figure(*of({positive}))


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_labels(pairs: list[tuple[str, str]]) -> None:
    found, wanted = [f for f, _ in pairs], [w for _, w in pairs]
    names = ["accuracy", *LABEL_METRICS]
    for name, one in classification(found, wanted, names, positive="b").items():
        assert one.value == pytest.approx(by_definition(found, wanted, name, "b"), abs=1e-12), name
        assert one.n == len(pairs) and (one.low or 0) <= one.value + 1e-12


def test_what_is_no_label_is_wrong() -> None:
    found = classification([1, None, "yes", 0], [1, 1, 1, 0], ["accuracy", "f1", "recall"])
    assert [one.value for one in found.values()] == pytest.approx([0.5, 0.5, 1 / 3])


def test_intervals_know_clusters() -> None:
    rng = np.random.default_rng(1)
    right = np.repeat(rng.random(40) < 0.6, 10)
    wanted = rng.integers(0, 2, 400)
    found = np.where(right, wanted, 1 - wanted).tolist()
    alone = classification(found, wanted.tolist(), ["f1", "matthews", "accuracy"])
    shared = classification(
        found, wanted.tolist(), ["f1", "matthews", "accuracy"], clusters=np.repeat(range(40), 10).tolist()
    )
    for name, one in shared.items():
        assert (
            one.clusters == 40
            and (one.se or 0) > 2 * (alone[name].se or 0)
            and one.value == alone[name].value
        )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(-1e3, 1e3)), min_size=3, max_size=30))
def test_correlations_are_scipys(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array([float(a) for a, _ in pairs]), np.array([b for _, b in pairs])
    if np.ptp(x) == 0 or np.ptp(y) < 1e-3:
        assert correlation(x.tolist(), np.full(len(x), 2.0).tolist(), ["pearson"])["pearson"].value == 0
        return
    found = correlation((x + 1e6).tolist(), y.tolist(), ["pearson", "spearman"])
    assert found["pearson"].value == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-6)
    assert found["spearman"].value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert (found["pearson"].high or 0) <= 1
