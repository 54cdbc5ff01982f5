"""How a signal is defined: one small function, a view in, one value per document out, and its spec in a decorator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple

from corpusmill.pipeline.filter.text import scan
from corpusmill.pipeline.filter.text.view import Array, TextView, share
from corpusmill.schemas.tables import SignalSpec

Measure = Callable[[TextView], Array]
Dtype = Literal["float", "int", "bool", "string"]


class Registry(NamedTuple):
    """Signals by name, and the names of those measured on demand."""

    measures: dict[str, tuple[SignalSpec, Measure]]
    on_demand: set[str]


BUILT_IN: Final = Registry({}, set())
MEASURES: Final = BUILT_IN.measures
ON_DEMAND: Final = BUILT_IN.on_demand
_open: ContextVar[Registry] = ContextVar("_open", default=BUILT_IN)

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
        registry = _open.get()
        if name in registry.measures or name in MEASURES:
            raise ValueError(f"signal {name} is defined twice")
        spec = SignalSpec(name=name, dtype=dtype, unit=unit, range=range, origin=origin, version=version)
        registry.measures[name] = (spec, measure)
        if on_demand:
            registry.on_demand.add(name)
        return measure

    return register


@contextmanager
def apart() -> Iterator[Registry]:
    """What `signal` registers meanwhile goes into this registry, not among the built-in signals: a plugin's."""
    registry = Registry({}, set())
    token = _open.set(registry)
    try:
        yield registry
    finally:
        _open.reset(token)


def family(name: str, source: str = "", on_demand: bool = False) -> Callable[..., None]:
    """A function that registers the signals of one family: value, unit, measure, then what follows `source` in the origin.

    Its other arguments are those of `signal`.
    """

    def register(value: str, unit: str, measure: Measure, more: str = "", **given: Any) -> None:
        signal(f"{name}.{value}", unit, source + more, on_demand=on_demand, **given)(measure)

    return register


def column(table: Measure, place: int) -> Measure:
    """A column of what is measured as a table."""
    return lambda v: table(v)[:, place]


def ratio(part: Measure, whole: Measure) -> Measure:
    """`part / whole`, 0 where there is no whole."""
    return lambda v: share(part(v), whole(v))


def counted(place: int) -> Measure:
    """One of the counts of `scan`."""
    return lambda v: v.count(place)


def per_char(*columns: int) -> Measure:
    """The sum of counts of `scan` as a share of the characters."""
    return lambda v: share(v.counts[:, columns].sum(axis=1), v.count(scan.CHARS))


def per_word(*columns: int) -> Measure:
    """The sum of counts of `scan` per word."""
    return lambda v: share(v.counts[:, columns].sum(axis=1), v.words)


def lines_with(flag: int) -> Measure:
    """How many lines have a bit of `line_flags`."""
    return lambda v: v.lines_where(v.line_flags & flag != 0)


def share_of_lines(chosen: int | Measure) -> Measure:
    """The share of lines that have a bit of `line_flags`, or of those that are chosen (bool, one per line)."""
    if isinstance(chosen, int):
        return lambda v: share(v.lines_where(v.line_flags & chosen != 0), v.lines)
    return lambda v: share(v.lines_where(chosen(v)), v.lines)
