"""Fitting the additive model: what it finds, that directions hold, that two trainings give the same bytes, calibration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers.calibration import calibration_error, logistic
from corpusmill.pipeline.filter.quality_signals import fitting
from corpusmill.pipeline.filter.quality_signals.fitting import (
    Options,
    calibrated,
    fit,
    knots_of,
)
from corpusmill.pipeline.filter.quality_signals.inputs import INPUTS, Input
from corpusmill.pipeline.filter.quality_signals.model import SignalModel, from_bytes, to_bytes
from corpusmill.pipeline.filter.signals.catalogue import text_specs

Floats = npt.NDArray[np.float64]
SOME = (
    Input("a.good", "up", ""),
    Input("a.bad", "down", ""),
    Input("a.any", "free", ""),
    Input("a.same", "up", ""),
)
VERSIONS = {one.signal: "1" for one in SOME}


def drawn(seed: int = 1, size: int = 600) -> tuple[dict[str, Floats], npt.NDArray[np.bool_]]:
    """Signals of which `a.good` and `a.any`, in the middle, make a document good, and `a.bad` says the opposite of its name."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.uniform(0, 1, size) for name in ("a.good", "a.bad", "a.any")}
    odds = 6 * columns["a.good"] + 4 * columns["a.bad"] - 12 * np.abs(columns["a.any"] - 0.5) - 1.5
    return {**columns, "a.same": np.ones(size)}, rng.uniform(0, 1, size) < logistic(odds)


def fitted(options: Options = Options(ridge=0.001)) -> SignalModel:
    return fit(*drawn(), SOME, VERSIONS, "good", options)


def test_it_finds_the_shapes_that_it_may() -> None:
    model = fitted()
    # `a.same` has one value alone, `a.bad` would have to go up.
    assert [curve.signal for curve in model.curves] == ["a.good", "a.any"]
    good, either = (np.array(curve.values) for curve in model.curves)
    assert (np.diff(good) >= 0).all() and np.ptp(good) > 2
    assert either.argmax() not in (0, len(either) - 1)
    free = fitted(Options(ridge=0.001, free=True))
    assert np.ptp(free.curves[1].values) > 1 and {curve.direction for curve in free.curves} == {"free"}
    new, truth = drawn(2)
    assert (
        ((free.probability(new) > 0.5) == truth).mean()
        > ((model.probability(new) > 0.5) == truth).mean()
        > 0.7
    )


def test_two_trainings_give_the_same_bytes() -> None:
    assert to_bytes(fitted()) == to_bytes(fitted())
    assert from_bytes(to_bytes(fitted()), "x") == fitted()


def test_the_average_document_and_one_without_values_get_the_same() -> None:
    columns, truth = drawn()
    parts = fitted().contributions(columns)
    weights = fitting.balanced(truth)
    assert weights @ parts == pytest.approx([0, 0], abs=2e-5)
    columns["a.good"][::3] = np.nan
    model = fit(columns, truth, SOME, VERSIONS, "good")
    known = ~np.isnan(columns["a.good"])
    assert model.contributions(columns)[~known, 0].tolist() == [0] * int((~known).sum())
    assert np.average(model.contributions(columns)[known, 0], weights=weights[known]) == pytest.approx(
        0, abs=2e-5
    )


@given(st.lists(st.none() | st.floats(-1e9, 1e9), max_size=40))
@settings(max_examples=50)
def test_knots_ascend(values: list[float | None]) -> None:
    found = knots_of(np.array([np.nan if one is None else one for one in values], np.float64))
    assert (np.diff(found) > 0).all() and np.isfinite(found).all()


def test_calibration_scales_and_shifts_the_curves() -> None:
    columns, truth = drawn()
    model, even = fitted(), np.full(len(truth), 1 / len(truth))
    tempered = model._replace(
        bias=3 * model.bias,
        curves=tuple(c._replace(values=tuple(3 * v for v in c.values)) for c in model.curves),
    )
    odds = tempered.log_odds(tempered.contributions(columns))
    again = calibrated(tempered, odds, truth, even)
    errors = [calibration_error(one.probability(columns), truth) for one in (tempered, again)]
    assert errors[1] < 0.05 < errors[0]
    assert np.corrcoef(again.log_odds(again.contributions(columns)), odds)[0, 1] == pytest.approx(1, abs=1e-6)
    assert calibration_error(np.array([0.25, 0.25, 0.75, 0.75]), np.array([False, True, True, True])) == 0.25


def test_what_is_read_is_measured_by_default() -> None:
    names = [one.signal for one in INPUTS]
    assert names == sorted(set(names))
    assert set(names) - {spec.name for spec in text_specs()} == {"quality.score"}
