"""A run's profile for people: a table for the terminal, and what `resources.html` shows of it."""

from __future__ import annotations

from typing import NamedTuple

from corpusmill.common.format import BYTES, quantity, scaled
from corpusmill.schemas.profile import PhaseCosts, RunProfile
from corpusmill.schemas.recipe import LEDGER, LOCAL, STAGES

ITSELF = "run itself"  # what belongs to no stage
LEAST = 0.005  # share of all CPU time below which phases of a stage are one line


class Costs(NamedTuple):
    """Of a phase, or several, over all processes."""

    stage: str
    phase: str
    cpu: float  # seconds
    wall: float  # seconds of processes
    read: int  # bytes
    written: int

    @property
    def waited(self) -> float:
        """Seconds in which its processes had the phase at work, but did not compute."""
        return max(0.0, self.wall - self.cpu)


def of_profile(profile: RunProfile) -> list[Costs]:
    """By stage and phase, over all processes; stages in the order of a recipe, phases by their CPU time."""
    found: dict[str, dict[str, Costs]] = {}
    for process in profile.processes:
        for one in process.phases:
            phases = found.setdefault(one.stage or ITSELF, {})
            phases[one.phase] = _added(one.stage or ITSELF, one, phases.get(one.phase))
    names = (*LOCAL, LEDGER, *(name for name in STAGES if name not in LOCAL), ITSELF)
    ranks = {name: rank for rank, name in enumerate(names)}
    order = sorted(found, key=lambda name: ranks.get(name, len(LOCAL) - 0.5))  # a stage of one's own
    return [
        one
        for name in order
        for one in sorted(found[name].values(), key=lambda costs: (-costs.cpu, costs.phase))
    ]


def _added(stage: str, one: PhaseCosts, before: Costs | None) -> Costs:
    _, _, cpu, wall, read, written = before or Costs(stage, one.phase, 0.0, 0.0, 0, 0)
    return Costs(
        stage, one.phase, cpu + one.cpu_seconds, wall + one.seconds, read + one.read_bytes,
        written + one.written_bytes,
    )  # fmt: skip


def shortened(costs: list[Costs]) -> list[Costs]:
    """Phases of a stage that are next to nothing as one: sums stay."""
    least = LEAST * sum(one.cpu for one in costs)
    shown: list[Costs] = []
    for stage in dict.fromkeys(one.stage for one in costs):
        mine = [one for one in costs if one.stage == stage]
        few = [one for one in mine if max(one.cpu, one.waited) < least]
        shown += [one for one in mine if max(one.cpu, one.waited) >= least]
        if few:
            phase = few[0].phase if len(few) == 1 else "small phases"
            shown.append(
                Costs(
                    stage, phase, sum(one.cpu for one in few), sum(one.wall for one in few), sum(one.read for one in few),
                    sum(one.written for one in few),
                )
            )  # fmt: skip
    return shown


def lines(profile: RunProfile) -> list[str]:
    """The table for a terminal of 80 columns."""
    costs = of_profile(profile)
    whole = sum(one.cpu for one in costs) or 1.0
    found = [
        f"{profile.cpu_seconds:,.2f} CPU s of {quantity(len(profile.processes), 'process', 'processes')} in"
        f" {profile.seconds:,.2f} s; seconds by stage and phase:",
        f"{'stage':<13} {'phase':<28}{'CPU':>8}{'%':>6}{'waited':>8}{'read':>7}{'written':>8}",
    ]
    stage = ""
    for one in shortened(costs):
        name = one.stage if one.stage != stage else ""
        stage = one.stage
        found.append(
            f"{name[:13]:<13} {one.phase[:28]:<28}{one.cpu:>8,.2f}{100 * one.cpu / whole:>6.1f}"
            f"{one.waited:>8,.2f}{_size(one.read):>7}{_size(one.written):>8}"
        )
    return found


def _size(value: float) -> str:
    return scaled(float(f"{value:.2g}"), BYTES, "") if value else "-"
