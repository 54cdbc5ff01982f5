"""A plan for people, in 80 columns: whole, in short before a run, and beside what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

from corpusmill.common.format import BYTES, count, plain_size, quantity, scaled, short_span, span
from corpusmill.schemas.manifest import Figures, StageResources
from corpusmill.schemas.planning import RunPlan, StagePlan, StepPlan

WIDTH = 79  # a line of 80 characters leaves an empty one behind it on some terminals
_HEAD = ("tasks", "CPU", "time", "worker", "driver", "read", "written", "requests")


def show(plan: RunPlan, steps: bool = False) -> str:
    """Stages, totals, bottleneck and warnings; with `steps` those of each stage too."""
    where = "an object store" if plan.object_store else "a local disk"
    lines = _wrap(
        f"{plain_size(plan.input_bytes)} of input, about {plain_size(plan.text_bytes)} of text in"
        f" {quantity(plan.documents, 'document')}, on {quantity(plan.workers, 'worker')}, from and to {where}"
    )
    lines += ["", _row("stage", *_HEAD)]
    for stage in plan.stages:
        lines.append(_figures(stage.name, stage))
        if steps and len(stage.steps) > 1:
            lines += [_figures(f" {step.name}", step) for step in stage.steps]
    total = plan.total
    lines += [_figures("total", total), ""]
    table = {
        "time": f"{span(total.seconds)}, {span(total.cpu_seconds)} of CPU"
        + (f"; cost {plan.cost:,.0f} for the workers" if plan.cost is not None else ""),
        "memory": f"{plain_size(total.worker_bytes)} a worker, {plain_size(total.driver_bytes)} the driver",
        "disk": f"{plain_size(plan.disk_bytes)} at most while it runs, {plain_size(plan.kept_bytes)} when it is done",
        "requests": f"{count(total.gets)} GET, {count(total.puts)} PUT, {count(total.lists)} LIST",
        "bottleneck": plan.bottleneck,
    }
    for name, text in table.items():
        lines += _wrap(f"{name:<12}{text}", " " * 12)
    for warning in plan.warnings:
        lines += _wrap(f"warning: {warning}", "  ")
    return "\n".join(lines)


def brief(plan: RunPlan) -> str:
    """A few lines before a run."""
    total = plan.total
    lines = _wrap(
        f"plan: about {plain_size(plan.text_bytes)} of text, workers: {plan.workers:,}; {span(total.seconds)},"
        f" {plain_size(total.worker_bytes)} of memory a worker and {plain_size(total.driver_bytes)} the driver,"
        f" {plain_size(plan.disk_bytes)} of disk",
        "  ",
    )
    lines.append(f"  {'stage':<14}{'time':>9}{'CPU':>9}{'worker':>9}{'driver':>9}{'written':>9}")
    lines += [
        f"  {stage.name:<14}{short_span(stage.seconds):>9}{short_span(stage.cpu_seconds):>9}{_size(stage.worker_bytes):>9}"
        f"{_size(stage.driver_bytes):>9}{_size(stage.written_bytes):>9}"
        for stage in plan.stages
    ]
    for warning in plan.warnings:
        lines += _wrap(f"warning: {warning}", "  ")
    return "\n".join(lines)


def beside(stages: Mapping[str, StageResources]) -> str:
    """Planned and actual figures of stages that ran, and their sums. What was planned of no stage is a dash."""
    lines = [
        f"{'':<13}" + "".join(f"{title:>{2 * width}}" for title, _, _, width in _BESIDE),
        f"{'stage':<13}" + "".join(f"{'plan':>{width}}{'used':>{width}}" for *_, width in _BESIDE),
    ]
    lines += [_pair(name, one.planned, one.actual) for name, one in stages.items()]
    planned = [one.planned for one in stages.values() if one.planned is not None]
    whole = summed(planned) if len(planned) == len(stages) else None
    lines.append(_pair("total", whole, summed([one.actual for one in stages.values()])))
    return "\n".join(lines)


def summed(figures: list[Figures]) -> Figures:
    """Of amounts the sum, of memory the most."""
    most = ("worker_bytes", "driver_bytes")
    return Figures(
        **{
            name: (max if name in most else sum)([getattr(one, name) for one in figures] or [0])
            for name in Figures.model_fields
        }
    )


def _pair(name: str, planned: Figures | None, actual: Figures) -> str:
    cells = []
    for _, field, write, width in _BESIDE:
        cells.append(f"{'-' if planned is None else write(getattr(planned, field)):>{width}}")
        cells.append(f"{write(getattr(actual, field)):>{width}}")
    return f"{name[:13]:<13}" + "".join(cells)


def _figures(name: str, one: Figures | StagePlan | StepPlan) -> str:
    return _row(
        name, _number(one.tasks), short_span(one.cpu_seconds), short_span(one.seconds), _size(one.worker_bytes),
        _size(one.driver_bytes), _size(one.read_bytes), _size(one.written_bytes), _number(one.requests),
    )  # fmt: skip


def _row(name: str, *cells: str) -> str:
    return f"{name[:14]:<14}" + "".join(f"{cell:>8}" for cell in cells[:-1]) + f"{cells[-1]:>9}"


def _number(value: float) -> str:
    return count(value).replace(" ", "") if value >= 99_999.5 else f"{value:,.0f}"


def _size(value: float) -> str:
    return scaled(float(f"{value:.2g}"), BYTES, "")


# Title, field, how it is written, columns of the planned one.
_BESIDE: tuple[tuple[str, str, Callable[[float], str], int], ...] = (
    ("time", "seconds", short_span, 7), ("CPU", "cpu_seconds", short_span, 7), ("worker", "worker_bytes", _size, 6),
    ("driver", "driver_bytes", _size, 6), ("written", "written_bytes", _size, 6),
)  # fmt: skip


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
