"""The driver of a large cluster: how long the tasks of whole runs are, what handing them out costs (`_many_workers.py`), and what
share of a core the driver is busy with that and its own work. Part 3 of `whole_scale.py`, of the runs that it has measured."""

from __future__ import annotations

from typing import NamedTuple

from bench import _many_workers
from bench._many_workers import Handed
from bench.peers import NotMeasured
from bench.whole_run import Ours
from corpusmill.common.costs import START
from corpusmill.pipeline.engine.planning.meter import UNDER_WAY
from corpusmill.schemas.profile import PhaseCosts, RunProfile

START_OF_WORKERS, END_OF_WORKERS = "start of the workers", "end of the workers"


class Tasks(NamedTuple):
    """Of a stage, or of the two that are one task."""

    stage: str
    number: int
    seconds: float  # of one, on average, of the clock


def profile_of(run: Ours) -> RunProfile:
    """What the run wrote; it had something to do."""
    assert run.profile is not None
    return run.profile


def driver_of(run: Ours) -> list[PhaseCosts]:
    """The phases of the driver."""
    return profile_of(run).processes[0].phases


def workers_of(run: Ours) -> list[PhaseCosts]:
    """The phases of all workers."""
    return [one for process in profile_of(run).processes[1:] for one in process.phases]


def tasks_of(run: Ours) -> list[Tasks]:
    """By stage. `ingest` and `filter` are one task for each part of the input."""
    counts = {name: one["resources"]["actual"]["tasks"] for name, one in run.result["stages"].items()}
    seconds: dict[str, float] = {}
    for one in workers_of(run):
        if one.stage:
            name = "ingest" if one.stage == "filter" else one.stage
            seconds[name] = seconds.get(name, 0.0) + one.seconds
    return [
        Tasks("ingest, filter" if name == "ingest" else name, round(counts[name]), whole / counts[name])
        for name, whole in seconds.items()
    ]


def cluster(found: list[tuple[float, Ours]], workers: int) -> None:
    """What the driver of that many workers is busy with; the last size's tasks are simulated."""
    kinds = tasks_of(found[-1][1])
    number = sum(one.number for one in kinds)
    mean = sum(one.number * one.seconds for one in kinds) / number
    middle = median(kinds)
    print(
        f"\nThe driver of {workers} workers, simulated: as many worker processes on this machine, by the address of a Dask scheduler, with"
        f" tasks that sleep, through the run's own scheduler. Of the {number:,} tasks of {found[-1][0]:.2f} GB, each taken to be as long as"
        f' its stage\'s are on average, the median took {middle:.3f} s, and the mean is {mean:.3f} s. "At most" is what the busier of the'
        " driver and Dask's scheduler could hand out on a core of its own; here all processes share the cores of the machine.\n"
    )
    try:
        rows = _many_workers.measure(workers, [0.0, middle, mean])
    except NotMeasured as error:
        print(f"Not measured: {error}.")
        return
    print(
        "| tasks of | number | s | tasks a second | driver, CPU ms a task | Dask's scheduler, CPU ms a task | at most, tasks a second |"
        " driver, of a core | Dask's scheduler, of a core |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for row in rows:
        print(
            f"| {f'{row.sleep:.3f} s' if row.sleep else 'no sleep'} | {row.tasks:,} | {row.wall:.1f} | {row.tasks / row.wall:.0f} |"
            f" {1000 * row.driver / row.tasks:.2f} | {1000 * row.scheduler / row.tasks:.2f} | {row.tasks / max(row.driver, row.scheduler):.0f} |"
            f" {row.driver / row.wall:.1%} | {row.scheduler / row.wall:.1%} |"
        )
    busiest(rows[-1], kinds, workers)
    projected(found, rows[-1], workers)


def median(kinds: list[Tasks]) -> float:
    """Seconds of the task in the middle, each taken to be as long as its stage's are on average."""
    left = sum(one.number for one in kinds) / 2
    for one in sorted(kinds, key=lambda one: one.seconds):
        left -= one.number
        if left <= 0:
            return one.seconds
    raise AssertionError("unreachable: half of the tasks are among them")


def busiest(row: Handed, kinds: list[Tasks], workers: int) -> None:
    """How many tasks a second each stage asks for."""
    driver, dask = row.driver / row.tasks, row.scheduler / row.tasks
    print(
        f"\nBy stage, with {workers} tasks in flight: a core's share is CPU seconds a task ({1000 * driver:.2f} ms of the driver,"
        f" {1000 * dask:.2f} ms of Dask's scheduler) x tasks in flight / seconds a task. Above 100 % the workers wait.\n"
    )
    print(
        "| stage | tasks | s a task | tasks a second | driver, of a core | Dask's scheduler, of a core |\n|---|---:|---:|---:|---:|---:|"
    )
    for one in kinds:
        rate = workers / one.seconds
        print(
            f"| {one.stage} | {one.number:,} | {one.seconds:.3f} | {rate:,.0f} | {rate * driver:.1%} | {rate * dask:.1%} |"
        )


def projected(found: list[tuple[float, Ours]], row: Handed, workers: int) -> None:
    """The driver's work of the runs of part 1, if their tasks were spread over the cluster."""
    print(
        f"\nThe runs above spread over {workers} workers: the least time is the driver's own work (its CPU seconds but for starts and while tasks"
        f" are under way) + the longer of the workers' CPU seconds / {workers} and tasks x the driver's CPU seconds a task; the driver is busy with"
        " its own work and with the latter.\n"
    )
    print(
        "| GB | workers' tasks, CPU s | driver's own work, CPU s | tasks | handing them out, CPU s | least time, s | driver, of a core |\n"
        "|---:|---:|---:|---:|---:|---:|---:|"
    )
    apart = (UNDER_WAY, START, START_OF_WORKERS, END_OF_WORKERS)
    for gigabytes, run in found:
        work = sum(one.cpu_seconds for one in workers_of(run) if one.stage)
        own = sum(one.cpu_seconds for one in driver_of(run) if one.phase not in apart)
        number = sum(one.number for one in tasks_of(run))
        handing = number * row.driver / row.tasks
        least = own + max(work / workers, handing)
        print(
            f"| {gigabytes:.2f} | {work:,.1f} | {own:.1f} | {number:,} | {handing:.1f} | {least:.1f} | {(own + handing) / least:.0%} |"
        )
