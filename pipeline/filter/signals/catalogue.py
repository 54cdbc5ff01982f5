"""Every signal measured on the text alone: the families, in the order of their columns."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy.typing as npt

from pipeline.filter.signals import c4, document, fineweb, gopher
from pipeline.filter.signals.registry import MEASURES, ON_DEMAND
from pipeline.filter.text.view import TextView
from schemas.signals import SignalSpec

FAMILIES = (document, gopher, c4, fineweb)  # imported: their decorators have registered them


def text_specs(asked: Collection[str] = ()) -> list[SignalSpec]:
    """The specs of the signals that need no model, in the order of their columns; of those measured on demand
    the ones `asked` for."""
    return [spec for name, (spec, _) in MEASURES.items() if name not in ON_DEMAND or name in asked]


def measure(view: TextView, asked: Collection[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """The values of `text_specs(asked)` of a view, by name."""
    return {spec.name: MEASURES[spec.name][1](view) for spec in text_specs(asked)}
