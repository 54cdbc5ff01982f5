"""How a signal is defined: one small function, a view in, a value a document out, and its spec in a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy.typing as npt

from pipeline.filter.text.view import TextView, share
from schemas.signals import SignalSpec

Array = npt.NDArray[Any]
Measure = Callable[[TextView], Array]
Dtype = Literal["float", "int", "bool", "string"]

MEASURES: dict[str, tuple[SignalSpec, Measure]] = {}
ON_DEMAND: set[str] = set()

SHARE: Final = (0.0, 1.0)


def signal(
    name: str,
    unit: str,
    origin: str,
    dtype: Dtype = "float",
    range: tuple[float | None, float | None] = (0.0, None),
    version: str = "1",
    on_demand: bool = False,
) -> Callable[[Measure], Measure]:
    """Register a function as the signal `name`: view -> array[D], finite and inside `range`.

    `on_demand`: measured only for a rule that looks at it, such as one tool's reading of another's value.
    """

    def register(measure: Measure) -> Measure:
        if name in MEASURES:
            raise ValueError(f"signal {name} is defined twice")
        spec = SignalSpec(name=name, dtype=dtype, unit=unit, range=range, origin=origin, version=version)
        MEASURES[name] = (spec, measure)
        if on_demand:
            ON_DEMAND.add(name)
        return measure

    return register


def share_of_lines(flag: int) -> Measure:
    """The share of lines that have a bit of `line_flags`."""
    return lambda v: share(v.lines_where(v.line_flags & flag != 0), v.lines)
