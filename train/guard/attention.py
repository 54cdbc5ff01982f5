"""Collapsing attention, noticed in the rows of metrics.jsonl: pure functions. The run prints a line, the dashboard sets a mark;
nothing is decided by it.

A layer has collapsed when, for some measured rows in a row, its attention's entropy is a small share of its maximum: then each
position reads hardly more than one other (Zhai et al. 2023). Attention logits and activations that are too large usually
come before or with it (Dehghani et al. 2023, Wortsman et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from corpusmill.schemas.guard import CollapseConfig

Column = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]  # steps, values

# Key of metrics.jsonl, its key in the config, its name in messages, and whether it must not be lower (else not higher).
SIGNALS = (
    ("attention_entropy_share", "entropy_share", "attention entropy, as a share of its maximum,", True),
    ("attention_logit_max", "attention_logit", "highest attention logit", False),
    ("activation_peak", "activation", "largest activation, mean of the positions,", False),
)


class Collapse(NamedTuple):
    """At `step`, layer number `layer` has been beyond `limit` for as many measured rows as the config asks for."""

    step: int
    layer: int
    signal: str  # key of metrics.jsonl
    value: float
    limit: float


def collapses(columns: Mapping[str, Column], config: CollapseConfig) -> list[Collapse]:
    """The steps at which a layer went beyond a bound, in ascending order. `columns` by flattened name, such as
    `activation_peak/layer_0`."""
    found = []
    for name, (steps, values) in columns.items():
        head, _, layer = name.partition("/layer_")
        for signal, key, _, lowest in SIGNALS:
            limit = getattr(config, key)
            if head == signal and layer.isdigit() and limit is not None:
                beyond = values < limit if lowest else values > limit
                for at in _begins(beyond, config.rows):
                    found.append(Collapse(int(steps[at]), int(layer), signal, float(values[at]), limit))
    return sorted(found)


def _begins(beyond: npt.NDArray[np.bool_], rows: int) -> npt.NDArray[np.int64]:
    """Where a series has been true for exactly `rows` values."""
    number = np.arange(1, len(beyond) + 1)
    since = number - np.maximum.accumulate(np.where(beyond, 0, number))
    return np.flatnonzero(since == rows)


def newest(rows: Sequence[Mapping[str, Any]], config: CollapseConfig) -> list[Collapse]:
    """Of `collapses`, those of the last row."""
    recent: list[Mapping[str, Any]] = []
    for row in reversed(rows):  # rows without a measurement, of a validation, do not count
        if SIGNALS[0][0] in row:
            recent.append(row)
        elif not recent:
            return []
        if len(recent) > config.rows:
            break
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for row in reversed(recent):
        for signal, *_ in SIGNALS:
            for layer, value in row.get(signal, {}).items():
                if value is not None and math.isfinite(value):  # others are null in metrics.jsonl
                    steps, values = columns.setdefault(f"{signal}/{layer}", ([], []))
                    steps.append(int(row["step"]))
                    values.append(float(value))
    arrays = {
        name: (np.array(steps, np.int64), np.array(values, np.float64))
        for name, (steps, values) in columns.items()
    }
    return [found for found in collapses(arrays, config) if found.step == rows[-1]["step"]]


def message(found: Sequence[Collapse]) -> str:
    """In words: which layers, by signal, with the worst value, at one step."""
    parts = []
    for signal, key, words, lowest in SIGNALS:
        mine = [one for one in found if one.signal == signal]
        if mine:
            worst = (min if lowest else max)(one.value for one in mine)
            layers = ", ".join(str(one.layer) for one in mine)
            parts.append(
                f"{words} of layer{'s' if len(mine) > 1 else ''} {layers}: {worst:.3g}"
                f" (guard.collapse.{key} {mine[0].limit:g})"
            )
    return "; ".join(parts)


ADVICE = "lower optimizer.lr, set model.qk_norm, or warm up for longer"
