"""A generalised additive model over stored signals (Hastie & Tibshirani 1986): its file, and the scores of a table of signals.

log-odds = bias + the sum over signals of f(value); f is linear between a few knots and constant beyond them, 0 on the average
document that it was trained on, and 0 where a value was not measured. So what each signal contributed can be read from the stored
values alone (as in explainable boosting machines, Lou et al. 2012, without their pairs).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers.calibration import logistic
from corpusmill.pipeline.filter.classifiers.fasttext_model import check
from corpusmill.pipeline.filter.quality_signals.inputs import Direction
from corpusmill.pipeline.filter.text.view import Array

FILE: Final = "quality_signals.json"
FORMAT: Final = "corpusmill signals model 1"
DIRECTIONS: Final = ("up", "down", "free")


class Curve(NamedTuple):
    """What one signal contributes, in log-odds: `values` at `knots`, ascending. `version` is the signal's, as trained on."""

    signal: str
    version: str
    direction: Direction
    knots: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, x: Array) -> Array:
        """float64[D]: the contribution of each value; 0 where it is NaN. Monotone in x, in floating point too, where the
        values are: every step is, and a segment never leaves the values at its ends."""
        knots, values = np.array(self.knots), np.array(self.values)
        x = np.asarray(x, np.float64)
        place = np.clip(np.searchsorted(knots, x, "right") - 1, 0, len(knots) - 2)
        low, high = values[place], values[place + 1]
        share = (np.clip(x, knots[0], knots[-1]) - knots[place]) / (knots[place + 1] - knots[place])
        found = np.clip(low + share * (high - low), np.minimum(low, high), np.maximum(low, high))
        return np.asarray(np.where(np.isnan(x), 0.0, found))


class SignalModel(NamedTuple):
    """A loaded model. `label` is what its score is the probability of; `languages` those that it is made for (none: any);
    `fasttext` is the xxh3_128 of the model whose `quality.score` it has learnt from, where it reads that."""

    label: str
    bias: float
    curves: tuple[Curve, ...]
    languages: tuple[str, ...] = ()
    fasttext: str | None = None

    @property
    def labels(self) -> list[str]:
        """The one label, as other models have several."""
        return [self.label]

    def contributions(self, columns: Mapping[str, Any]) -> Array:
        """float64[D, signals]: what each signal adds to the log-odds of each document; 0 for one that is null or no column."""
        size = len(next(iter(columns.values()))) if columns else 0
        out = np.zeros((size, len(self.curves)), np.float64)
        for place, curve in enumerate(self.curves):
            if curve.signal in columns:
                out[:, place] = curve.at(_floats(columns[curve.signal]))
        return out

    def log_odds(self, contributions: Array) -> Array:
        """float64[D]: the bias and the contributions of each document, added up in their order."""
        total = np.full(len(contributions), self.bias)
        for column in contributions.T:
            total += column
        return total

    def probability(self, columns: Mapping[str, Any]) -> Array:
        """float32[D]: the score of each document."""
        return logistic(self.log_odds(self.contributions(columns))).astype(np.float32)


def _floats(column: Any) -> Array:
    """float64[D] of an Arrow or NumPy column, NaN for null."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        return np.asarray(column.to_numpy(), np.float64)
    return np.asarray(column, np.float64)


def to_bytes(model: SignalModel) -> bytes:
    """The file: one small JSON."""
    body = {
        "format": FORMAT, "label": model.label, "languages": list(model.languages), "fasttext": model.fasttext,
        "bias": model.bias, "signals": [curve._asdict() for curve in model.curves],
    }  # fmt: skip
    return (json.dumps(body, indent=1) + "\n").encode()


def from_bytes(data: bytes, where: str) -> SignalModel:
    """The model of a file's bytes; raises `UserError` of one line, which names `where`, for what is none."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise UserError(
            f"{where}: no model over signals of this version ({FORMAT}); `corpusmill classifier train --on-signals` makes one"
        )
    try:
        curves = tuple(_curve(entry) for entry in body["signals"])
        bias, label, fasttext = float(body["bias"]), body["label"], body["fasttext"]
        languages = tuple(map(str, body["languages"]))
        if not np.isfinite(bias) or not isinstance(label, str) or not isinstance(fasttext, str | None):
            raise ValueError("bias, label or fasttext is not of its kind")
        if len({curve.signal for curve in curves}) < len(curves):
            raise ValueError("a signal is there twice")
    except (KeyError, TypeError, ValueError) as error:
        wrong = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{where}: a damaged model over signals: {wrong}; fetch or train it again") from None
    return SignalModel(label, bias, curves, languages, fasttext)


def _curve(entry: Mapping[str, Any]) -> Curve:
    knots, values = (tuple(float(one) for one in entry[key]) for key in ("knots", "values"))
    curve = Curve(str(entry["signal"]), str(entry["version"]), entry["direction"], knots, values)
    if curve.direction not in DIRECTIONS:
        raise ValueError(
            f"{curve.signal}: direction is '{curve.direction}' (allowed: {', '.join(DIRECTIONS)})"
        )
    if len(knots) < 2 or len(knots) != len(values) or not np.isfinite([*knots, *values]).all():
        raise ValueError(f"{curve.signal}: two finite knots are needed, and a value for each")
    if (np.diff(knots) <= 0).any():
        raise ValueError(f"{curve.signal}: knots do not ascend")
    steps = np.diff(values)
    if (curve.direction == "up" and (steps < 0).any()) or (curve.direction == "down" and (steps > 0).any()):
        raise ValueError(f"{curve.signal}: values do not go {curve.direction}")
    return curve


@lru_cache(maxsize=4)
def load(path: str, xxh3: str) -> SignalModel:
    """The model of a file, read once per process. Raises `UserError` if it is none, `WorkError` if its bytes are not those of
    the checksum."""
    check(path, xxh3)
    try:
        return from_bytes(Path(path).read_bytes(), path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def is_signal_model(path: str) -> bool:
    """Whether a file is named as these models are."""
    return Path(path).suffix == Path(FILE).suffix


def fits(model: SignalModel, versions: Mapping[str, str], where: str) -> None:
    """Raises `UserError` if a signal that the model reads is not measured, or by now means something else than it was trained on."""
    for curve in model.curves:
        now = versions.get(curve.signal)
        if now is None:
            raise UserError(
                f"{where}: reads the signal {curve.signal}, which is not measured (corpusmill signals --list)"
            )
        if now != curve.version:
            raise UserError(
                f"{where}: was trained on version {curve.version} of {curve.signal}, which is at {now} now; train it again"
            )


def strongest(contributions: Sequence[float], count: int = 3) -> list[int]:
    """The places of the contributions that weigh most, the largest first; none that is 0."""
    order = sorted(range(len(contributions)), key=lambda place: (-abs(contributions[place]), place))
    return [place for place in order[:count] if contributions[place] != 0]
