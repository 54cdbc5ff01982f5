"""Bradley-Terry scores: the closed form of two models, a search by brute force, and what was planted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corpusmill.train.evaluate.judge.ranking import ranked, scores, solvable, wins
from tests.train.evaluate.judge.made import drawn, judgement


def test_two_models_have_the_closed_form() -> None:
    rows = [judgement(choice, str(n)) for n, choice in enumerate("a" * 14 + "b" * 5)]
    rows += [judgement("tie", f"t{n}") for n in range(4)] + [judgement("both_bad", "u")]
    found = ranked(rows)
    won, lost = 14 + 2.5, 5 + 2.5  # ties and both bad are half a win each
    assert found["x"].value - found["y"].value == pytest.approx(math.log(won / lost), abs=1e-9)
    assert found["x"].value == pytest.approx(-found["y"].value, abs=1e-9) and list(found) == ["x", "y"]
    low, high = found["x"].low, found["x"].high
    assert low is not None and high is not None and low < found["x"].value < high
    assert found["x"].n == 24 and found["x"].clusters == 24


def likelihood(theta: np.ndarray, won: np.ndarray) -> float:
    return float(-(won * np.log1p(np.exp(theta[None, :] - theta[:, None]))).sum())


def test_three_models_equal_a_search_of_the_highest_likelihood() -> None:
    won = np.array([[0, 7, 3.5], [4, 0, 9], [6.5, 2, 0]])
    best, width = np.zeros(2), 2.0
    for _ in range(60):  # a grid that gets finer around the best point
        offsets = np.linspace(-width, width, 9)
        points = [best + np.array([x, y]) for x in offsets for y in offsets]
        best = max(points, key=lambda point: likelihood(np.array([*point, 0.0]), won))
        width *= 0.75
    wanted = np.array([*best, 0.0])
    np.testing.assert_allclose(scores(won), wanted - wanted.mean(), atol=1e-6)


def test_planted_strengths_are_found() -> None:
    planted = {"weak": -0.8, "middle": 0.0, "strong": 0.8}
    found = ranked(drawn(planted, 400, ties=0.0))
    assert list(found) == ["strong", "middle", "weak"]
    for name, value in planted.items():
        low, high = found[name].low, found[name].high
        assert low is not None and high is not None and low - 0.05 < value < high + 0.05 and high - low < 0.5
    assert ranked(drawn(planted, 400, ties=0.0)) == found  # the same resamples


def test_ratings_of_one_prompt_are_not_independent() -> None:
    single = drawn({"x": 0.0, "y": 0.4}, 40)
    thrice = [row.model_copy(update={"rater": rater}) for row in single for rater in "abc"]
    assert ranked(thrice)["x"].se == pytest.approx(ranked(single)["x"].se)


def test_without_a_solution_there_are_no_scores() -> None:
    assert ranked([judgement("a", str(n)) for n in range(5)]) == {}
    chain = [judgement("a", "1", "x", "y"), judgement("a", "2", "y", "z")]
    assert ranked(chain) == {} and ranked([*chain, judgement("b", "3", "x", "z")])
    won, _ = wins(chain, ["x", "y", "z"])
    assert not solvable(won.sum(0))
    # One win against many: half of the resamples have none, and the interval has no end.
    found = ranked([judgement("a" if n else "b", str(n)) for n in range(8)])
    assert found["x"].low is None and found["x"].value == pytest.approx(math.log(7) / 2)
