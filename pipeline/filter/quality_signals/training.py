"""Training a model over signals from labelled text: signals measured, curves fitted, calibrated on texts that each fold left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, chosen, copies, held_out, runs_of
from corpusmill.pipeline.filter.quality_signals.fitting import DEFAULT, Options, calibrated, fit
from corpusmill.pipeline.filter.quality_signals.inputs import INPUTS, QUALITY
from corpusmill.pipeline.filter.quality_signals.measure import columns_of, versions
from corpusmill.pipeline.filter.quality_signals.model import SignalModel
from corpusmill.pipeline.filter.text.view import Array

FOLDS: Final = 5
FEWEST: Final = 10  # texts of a class, to learn from


@dataclass(frozen=True)
class SignalTraining:
    """How a model over signals is made. The same options and texts give the same bytes."""

    label: str
    options: Options = DEFAULT
    seed: int = 0
    held_out: float = 0.2


@dataclass(frozen=True)
class TrainedOnSignals:
    """The model, the held-out part of each set, and how many texts neither learnt from nor held out, being near copies."""

    model: SignalModel
    held_out: list[Labelled]
    copies: int


def train_on_signals(data: Sequence[Labelled], training: SignalTraining) -> TrainedOnSignals:
    """Train on what is not held out (`labelled.held_out`, as for fastText), every text of equal weight.

    Raises `UserError` if a class has less than `FEWEST` texts to learn from.
    """
    sides = [held_out(part.texts, training.held_out, training.seed) for part in data]
    texts = [text for part, out in zip(data, sides, strict=True) for text in chosen(part, ~out).texts]
    truth = np.concatenate(
        [np.asarray(part.positive, np.bool_)[~out] for part, out in zip(data, sides, strict=True)]
    )
    for label, name in ((True, "with"), (False, "without")):
        if (own := int((truth == label).sum())) < FEWEST:
            raise UserError(
                f"training on signals needs {FEWEST} texts {name} the label '{training.label}' beside those held out; there"
                f" are {own}"
            )
    columns, even = columns_of(texts), np.full(len(truth), 1 / len(truth))
    model = _fit(columns, truth, even, training)
    odds = _left_out(columns, truth, even, training, texts)
    known = ~np.isnan(odds)
    if known.any():
        model = calibrated(model, odds[known], truth[known], even[known])
    runs = np.sort(runs_of(texts)[0])
    apart = [chosen(part, out) for part, out in zip(data, sides, strict=True)]
    fresh = [chosen(part, ~copies(part.texts, runs)) for part in apart]
    return TrainedOnSignals(model, fresh, sum(map(len, apart)) - sum(map(len, fresh)))


def _fit(columns: dict[str, Array], truth: Array, weights: Array, training: SignalTraining) -> SignalModel:
    model = fit(columns, truth, INPUTS, versions(), training.label, training.options, weights)
    return with_fasttext(model)


def with_fasttext(model: SignalModel) -> SignalModel:
    """The model with the checksum of the shipped fastText model, where it reads `quality.score`."""
    if QUALITY not in {curve.signal for curve in model.curves}:
        return model
    return model._replace(fasttext=fasttext_model.shipped(fasttext_model.SHIPPED["quality"]).xxh3)


def _left_out(
    columns: dict[str, Array], truth: Array, weights: Array, training: SignalTraining, texts: Sequence[str]
) -> Array:
    """float64[texts]: the log-odds of each text by a model of the other folds; NaN where those have one class only. Near copies
    are in one fold."""
    parts = [held_out(texts, share / FOLDS, training.seed + 1) for share in range(1, FOLDS)]
    fold = np.sum(parts, axis=0)
    odds = np.full(len(truth), np.nan)
    for number in range(FOLDS):
        own = fold == number
        if len(np.unique(truth[~own])) == 2 and own.any():
            others = {name: column[~own] for name, column in columns.items()}
            model = _fit(others, truth[~own], weights[~own], training)
            mine = {name: column[own] for name, column in columns.items()}
            odds[own] = model.log_odds(model.contributions(mine))
    return odds
