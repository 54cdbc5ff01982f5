"""`resources.html` of a run: what its stages were planned to use beside what they did use, from their manifests, and where the time
went, from its profile. It holds times, so each run has its own, under the checksums of the run's record; the report, which depends on
the documents alone, points to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from corpusmill.common.costs import BETWEEN, START
from corpusmill.common.format import number, size, span
from corpusmill.pipeline.engine.planning.costs import Costs, of_profile, shortened
from corpusmill.pipeline.engine.planning.text import summed
from corpusmill.schemas.manifest import Figures, StageResources
from corpusmill.schemas.profile import ProcessCosts, RunProfile

FILE = "resources.html"


def _whole(count: float) -> str:
    return number(round(count))


_COLUMNS = {
    "time": ("seconds", span), "CPU time": ("cpu_seconds", span), "memory of a worker": ("worker_bytes", size),
    "memory of the driver": ("driver_bytes", size), "written": ("written_bytes", size), "requests": ("requests", _whole),
}  # fmt: skip


class _Row(NamedTuple):
    name: str
    cells: list[str]
    total: bool = False


class _Bar(NamedTuple):
    """A stage's share of the time, in percent of the longest bar."""

    stage: str
    cpu: float  # seconds
    waited: float
    phases: list[tuple[Costs, float]]  # percent computed
    rest: float  # percent waited


class _Process(NamedTuple):
    name: str
    seconds: float
    cpu: float
    start: float  # seconds until it was ready
    waited: float  # seconds between tasks


def render(name: str, stages: Mapping[str, StageResources], profile: RunProfile | None = None) -> bytes:
    """The page of a run of this name; what was not planned is a dash."""
    from corpusmill.common.pages import environment

    rows = [_Row(stage, _cells(one.planned, one.actual)) for stage, one in stages.items()]
    planned = [one.planned for one in stages.values() if one.planned is not None]
    whole = summed(planned) if len(planned) == len(stages) else None
    rows.append(_Row("total", _cells(whole, summed([one.actual for one in stages.values()])), total=True))
    costs = shortened(of_profile(profile)) if profile is not None else []
    return (
        environment("corpusmill.pipeline.engine.planning")
        .get_template("resources.html.j2")
        .render(
            name=name, titles=list(_COLUMNS), rows=rows, profile=profile, bars=_bars(costs), span=span,
            costs=costs, processes=[_process(one) for one in profile.processes] if profile else [],
        )
        .encode()
    )  # fmt: skip


def _bars(costs: list[Costs]) -> list[_Bar]:
    stages = dict.fromkeys(one.stage for one in costs)
    mine = {stage: [one for one in costs if one.stage == stage] for stage in stages}
    spans = [sum(one.cpu + one.waited for one in phases) for phases in mine.values()]
    longest = max(spans, default=0.0) or 1.0
    bars = []
    for stage, phases in mine.items():
        cpu, waited = sum(one.cpu for one in phases), sum(one.waited for one in phases)
        shares = [(one, 100 * one.cpu / longest) for one in phases]
        bars.append(_Bar(stage, cpu, waited, shares, 100 * waited / longest))
    return bars


def _process(one: ProcessCosts) -> _Process:
    def of(phase: str) -> float:
        return sum(each.seconds for each in one.phases if not each.stage and each.phase == phase)

    return _Process(one.process, one.seconds, one.cpu_seconds, of(START), of(BETWEEN))


def _cells(planned: Figures | None, actual: Figures) -> list[str]:
    cells = []
    for field, write in _COLUMNS.values():
        for one in (planned, actual):
            cells.append("–" if one is None else write(round(getattr(one, field), 3)))
    return cells
