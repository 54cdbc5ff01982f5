"""The additive model: directions hold, contributions add up to the log-odds, null counts nothing, damaged files are refused."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.quality_signals.model import (
    Curve,
    SignalModel,
    fits,
    from_bytes,
    is_signal_model,
    load,
    strongest,
    to_bytes,
)

UP = Curve("a.up", "1", "up", (0.0, 0.1, 0.5, 1.0), (-1.3, -0.2, 0.4, 0.4))
DOWN = Curve("a.down", "1", "down", (0.0, 3.0, 10.0), (0.7, 0.1, -2.1))
FREE = Curve("a.free", "2", "free", (-1.0, 0.0, 2.0), (0.3, -0.5, 0.9))
MODEL = SignalModel("good", 0.25, (UP, DOWN, FREE), ("en",), "0" * 32)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def curves(direction: str) -> st.SearchStrategy[Curve]:
    """Curves of one direction, of any knots and steps."""
    knots = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8, unique=True).map(sorted)

    def filled(found: list[float]) -> st.SearchStrategy[Curve]:
        steps = st.lists(st.floats(0, 1e3), min_size=len(found), max_size=len(found))
        sign = 1 if direction == "up" else -1
        return steps.map(lambda s: Curve("a.b", "1", direction, tuple(found), tuple(np.cumsum(s) * sign)))  # type: ignore[arg-type]

    return knots.filter(lambda k: all(b - a > 1e-9 for a, b in pairwise(k))).flatmap(filled)


@given(curves("up"), curves("down"), st.lists(FINITE, min_size=2, max_size=30))
def test_more_of_a_signal_never_moves_the_score_the_wrong_way(
    up: Curve, down: Curve, values: list[float]
) -> None:
    order = np.sort(values)
    model = SignalModel("x", 0.1, (up._replace(signal="u"), FREE, down._replace(signal="d")))
    still = np.full(len(order), 0.5)
    rising = model.probability({"u": order, "a.free": still, "d": still})
    falling = model.probability({"u": still, "a.free": still, "d": order})
    assert (np.diff(rising) >= 0).all() and (np.diff(falling) <= 0).all()


@given(st.lists(st.tuples(*[st.none() | FINITE] * 3), max_size=8))
def test_contributions_add_up_to_the_log_odds_and_null_counts_nothing(
    rows: list[tuple[float | None, ...]],
) -> None:
    columns = {
        curve.signal: pa.array([row[place] for row in rows], pa.float64())
        for place, curve in enumerate(MODEL.curves)
    }
    parts = MODEL.contributions(columns)
    total = MODEL.log_odds(parts)
    for row, own, odds, score in zip(rows, parts, total, MODEL.probability(columns), strict=True):
        assert odds == MODEL.bias + own[0] + own[1] + own[2]
        assert score == np.float32(1 / (1 + math.exp(-odds)))
        assert [own[place] == 0 for place in range(3) if row[place] is None] == [True] * row.count(None)


def test_curves_are_linear_between_knots_and_flat_beyond() -> None:
    assert DOWN.at(np.array([-5.0, 0, 1.5, 3, 6.5, 10, 99])).tolist() == pytest.approx(
        [0.7, 0.7, 0.4, 0.1, -1.0, -2.1, -2.1]
    )
    assert UP.at(np.array([np.nan])).tolist() == [0]


def test_a_column_that_is_not_there_counts_nothing() -> None:
    some = MODEL.contributions({"a.up": pa.array([1.0, None], pa.float32())})
    assert some.tolist() == [[0.4, 0, 0], [0, 0, 0]]
    assert MODEL.contributions({}).shape == (0, 3)
    # As Parquet has them: whole numbers, truth values, chunks.
    whole = MODEL.contributions({"a.down": pa.chunked_array([pa.array([3, 10], pa.int64()), pa.array([0])])})
    assert whole[:, 1].tolist() == [0.1, -2.1, 0.7]


def test_the_three_that_weigh_most() -> None:
    assert strongest([0.1, -3.0, 0.0, 2.0, -0.1]) == [1, 3, 0]
    assert strongest([0.0, 0.2, 0.0]) == [1] and strongest([]) == []


def test_a_file_is_read_back_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(to_bytes(MODEL))
    assert load(str(path), checksum(path.read_bytes())) == MODEL and is_signal_model(str(path))
    with pytest.raises(WorkError, match="changed while the run was using it"):
        load(str(path), "0" * 32)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(max_size=3), lambda c: st.lists(c, max_size=3)).map(lambda v: json.dumps(v).encode()))  # fmt: skip
def test_bytes_that_are_no_model_are_an_error_of_one_line(data: bytes) -> None:
    with pytest.raises(UserError, match=r"^mine\.json: no model over signals of this version") as error:
        from_bytes(data, "mine.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bias": None}, "not 'NoneType'"),
        ({"bias": float("inf")}, "bias, label or fasttext is not of its kind"),
        ({"signals": [{**UP._asdict(), "values": (1.0, 0.0, 2.0, 3.0)}]}, r"a\.up: values do not go up"),
        ({"signals": [{**UP._asdict(), "knots": (0.0, 0.0, 1.0, 2.0)}]}, r"a\.up: knots do not ascend"),
        ({"signals": [{**UP._asdict(), "knots": (0.0,)}]}, r"a\.up: two finite knots are needed"),
        ({"signals": [{**UP._asdict(), "direction": "left"}]}, "direction is 'left'"),
        ({"signals": [UP._asdict(), UP._asdict()]}, "a signal is there twice"),
        ({"signals": [{"signal": "a.up"}]}, "'knots' is missing"),
        ({"signals": 3}, "not iterable"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(change: dict[str, Any], reason: str) -> None:
    body = {**json.loads(to_bytes(MODEL)), **change}
    with pytest.raises(
        UserError, match=rf"^mine\.json: a damaged model over signals: .*{reason}.*train it again$"
    ):
        from_bytes(json.dumps(body).encode(), "mine.json")


def test_signals_must_be_those_that_it_was_trained_on() -> None:
    versions = {"a.up": "1", "a.down": "1", "a.free": "2"}
    fits(MODEL, versions, "mine.json")
    with pytest.raises(UserError, match=r"mine\.json: reads the signal a\.up, which is not measured"):
        fits(MODEL, {}, "mine.json")
    with pytest.raises(
        UserError, match=r"was trained on version 2 of a\.free, which is at 3 now; train it again"
    ):
        fits(MODEL, {**versions, "a.free": "3"}, "mine.json")
