"""From raw text to shards at growing size: CPU seconds a GB, memory, what more workers cost, and the driver of a large cluster.

    python -m bench whole_scale [--gb 1 3 10] [--workers 1 2 4 8] [--cluster 100]

Whole runs of the default recipe with a tokenizer of 16,000 trained in it, on text of one make (`corpus.py`: the same shares of copies
at any size) in files of about 64 MB. CPU seconds are those that the system counts for the command and all that it started
(`wait4`); by stage and process they are the run's own profile. The text and the output of a size are deleted before the next.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from bench import _cluster_driver, corpus, natural
from bench._cluster_driver import START_OF_WORKERS, driver_of, profile_of, workers_of
from bench.peers import NotMeasured
from bench.whole_run import Ours, ours, prepared, write
from corpusmill.common.costs import START
from corpusmill.pipeline.engine.planning.costs import Costs, of_profile
from corpusmill.pipeline.engine.planning.meter import UNDER_WAY

RECIPE = {"tokenizer": {"vocab_size": 16_000}}
FILE_MB = 64
WORKERS = 2  # of the runs of all sizes
ASKED = 1.05  # CPU seconds a GB of any size over those of the smallest, at most
GROWN = 0.002  # of the CPU seconds a GB of the smallest size: by so much a phase has grown that is named
FIRST_MB = 10  # of a run before all others, which compiles what the warm-up does not know


class Size(NamedTuple):
    """A size, and its runs by their number of workers."""

    documents: int
    gigabytes: float
    runs: dict[int, Ours]

    @property
    def label(self) -> str:
        return f"{self.gigabytes:.2f} GB"

    def by_stage(self) -> dict[str, float]:
        """CPU seconds a GB with `WORKERS` workers, of all processes."""
        found: dict[str, float] = {}
        for one in self.phases():
            found[one.stage] = found.get(one.stage, 0.0) + one.cpu / self.gigabytes
        return found

    def phases(self) -> list[Costs]:
        return of_profile(profile_of(self.runs[WORKERS]))


def peaks(run: Ours) -> tuple[float, float]:
    """Bytes at most of the driver and of one worker."""
    used = [one["resources"]["actual"] for one in run.result["stages"].values() if one["resources"]]
    return max(one["driver_bytes"] for one in used), max(one["worker_bytes"] for one in used)


def measured(folder: Path, gigabytes: float, workers: list[int]) -> Size:
    """Write the text, run it with each number of workers, delete all."""
    source = folder / "source"
    scratch = folder / "source.parquet"
    files = max(WORKERS, round(gigabytes * 1000 / FILE_MB))
    documents, megabytes = write(source, gigabytes * 1000, scratch, files)
    shutil.rmtree(scratch)
    runs = {}
    for number in workers:
        runs[number] = ours(folder, RECIPE, source, folder / "out", number)
        shutil.rmtree(folder / "out")
        print(f"{gigabytes} GB, {number} workers: {runs[number].wall:.0f} s", file=sys.stderr, flush=True)
    shutil.rmtree(source)
    return Size(documents, megabytes / 1000, runs)


def sizes(folder: Path, wanted: list[float], workers: list[int]) -> list[Size]:
    """The table of sizes, a row as soon as it is measured; the first of them is run with all these numbers of workers."""
    print(
        f"The default recipe, a tokenizer of 16,000 trained in it, on JSON Lines in files of about {FILE_MB} MB. {corpus.description()}\n\n"
        f"Size, with {WORKERS} workers. What the driver read and wrote are files: the profile does not count the network.\n"
    )
    print(
        "| documents | kept | GB | CPU s | CPU s a GB | ratio | s | MB/s | peak driver, MB | peak worker, MB | driver read, MB |"
        " driver wrote, MB |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    found: list[Size] = []
    for gigabytes in wanted:
        numbers = [WORKERS] if found else sorted({WORKERS, *workers})
        try:
            size = measured(folder, gigabytes, numbers)
        except NotMeasured as error:
            print(f"| {gigabytes:g} GB: not measured: {error} |" + " |" * 11, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            continue
        found.append(size)
        run, first = size.runs[WORKERS], found[0]
        each, least = run.cpu / size.gigabytes, first.runs[WORKERS].cpu / first.gigabytes
        driver, worker = peaks(run)
        read = sum(one.read_bytes for one in driver_of(run))
        written = sum(one.written_bytes for one in driver_of(run))
        kept = run.result["stages"]["redact"]["counts"]["kept"]
        print(
            f"| {size.documents:,} | {kept:,} | {size.gigabytes:.2f} | {run.cpu:,.1f} | {each:.1f} | {each / least:.3f} | {run.wall:,.1f} |"
            f" {1000 * size.gigabytes / run.wall:.2f} | {driver / 1e6:,.0f} | {worker / 1e6:,.0f} | {read / 1e6:,.0f} | {written / 1e6:,.0f} |",
            flush=True,
        )
    print(f"\nAsked: CPU seconds a GB at most {ASKED} times those of the smallest size.")
    return found


def growth(found: list[Size]) -> None:
    """CPU seconds a GB of stages at each size, and of the phases that grow."""
    first, last = found[0], found[-1]
    heads = " | ".join(f"CPU s a GB at {size.label}" for size in found)
    columns = "---:|" * (len(found) + 1)
    print(f"\n| stage | {heads} | ratio |\n|---|{columns}")
    stages = [size.by_stage() for size in found]
    for stage, seconds in stages[-1].items():
        shown = " | ".join(f"{one.get(stage, 0.0):.2f}" for one in stages)
        print(f"| {stage} | {shown} | {_over(seconds, stages[0].get(stage, 0.0))} |")
    whole = sum(stages[0].values())
    phases = [{(one.stage, one.phase): one.cpu / size.gigabytes for one in size.phases()} for size in found]
    before, after = phases[0], phases[-1]
    grown = {key: cost - before.get(key, 0.0) for key, cost in after.items()}
    named = sorted((key for key in grown if grown[key] >= GROWN * whole), key=lambda key: -grown[key])
    print(
        f"\nPhases whose CPU seconds a GB grow from {first.label} to {last.label} by {100 * GROWN:.1f} % of the run's or more:"
        f"{'' if named else ' none.'}"
    )
    if named:
        print(f"\n| stage | phase | {heads} | ratio |\n|---|---|{columns}")
    for key in named:
        shown = " | ".join(f"{one.get(key, 0.0):.2f}" for one in phases)
        print(f"| {key[0]} | {key[1]} | {shown} | {_over(after[key], before.get(key, 0.0))} |")


def _over(value: float, other: float) -> str:
    return f"{value / other:.2f}" if other else "new"


def by_workers(size: Size) -> None:
    """One size with each number of workers."""
    print(f"\nWorkers: the same {size.label} with each number of them.\n")
    print(
        "| workers | CPU s | s | of the first | memory of all processes, GB | start of the workers, CPU s | start of Python in them, CPU s |"
        " workers between tasks, CPU s | driver, CPU s | of that while tasks are under way |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    first = next(iter(size.runs.values()))
    for number, run in size.runs.items():
        driver, workers = driver_of(run), workers_of(run)
        start = sum(one.cpu_seconds for one in driver if one.phase == START_OF_WORKERS)
        python = sum(one.cpu_seconds for one in workers if not one.stage and one.phase == START)
        between = sum(one.cpu_seconds for one in workers if not one.stage) - python
        whole = sum(one.cpu_seconds for one in driver)
        under_way = sum(one.cpu_seconds for one in driver if one.phase == UNDER_WAY)
        print(
            f"| {number} | {run.cpu:,.1f} | {run.wall:,.1f} | {run.wall / first.wall:.2f} | {run.memory / 1e9:.2f} | {start:.2f} |"
            f" {python:.2f} | {between:.2f} | {whole:.2f} | {under_way:.2f} |"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench whole_scale")
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="sizes of the text")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="that the smallest size is run with"
    )
    parser.add_argument("--cluster", type=int, default=100, help="workers of the simulated cluster; 0: none")
    options = parser.parse_args()
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    with prepared() as whole:
        folder = whole / "runs"
        folder.mkdir()
        measured(folder, FIRST_MB / 1000, [WORKERS])
        found = sizes(folder, sorted(options.gb), options.workers)
    if not found:
        return
    growth(found)
    by_workers(found[0])
    if options.cluster:
        _cluster_driver.cluster([(size.gigabytes, size.runs[WORKERS]) for size in found], options.cluster)


if __name__ == "__main__":
    main()
