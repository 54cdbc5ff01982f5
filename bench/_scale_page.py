"""The tables of `scale.py`, and docs/scale.md around them."""

from __future__ import annotations

import math
from typing import Any

from corpusmill.common.format import count, plain_size, span
from corpusmill.common.storage import IN_FLIGHT
from corpusmill.pipeline.dedup.banding import banding
from corpusmill.pipeline.dedup.estimate.corpus import OBJECT_STORE, assumed, measured
from corpusmill.pipeline.dedup.estimate.model import Estimate, estimate
from corpusmill.pipeline.dedup.estimate.plan_text import Limits, exceeded, show
from corpusmill.schemas.dedup import DedupParams

DOCUMENTS, BYTES, WORKERS = 10_000_000_000, 3000, 100
COPIES, DUPLICATES = 0.3, 0.5
DEFAULTS = (64, 512)  # a layout: MiB of text in a partition, dedup.memory_mb
TRIED = [
    (part, memory)
    for part in (64, 128, 256, 512, 1024, 2048)
    for memory in (512, 1024, 2048, 3072, 4096, 8192)
]

PAGE = """\
# Deduplication at scale: the plan, and how far it can be believed

Written by `python -m bench scale`, never by hand. The estimator is `pipeline/dedup/estimate`; the same plan for
other numbers is one command away: `corpusmill dedup-plan --documents 10e9 --bytes-per-document 3000`.

## What the estimate is worth

{measured}

The election is a bound from above: pairs of a cluster that are not verified are taken to be as many as in random
graphs, while copies of copies are mostly copies of each other. The bytes and requests of its row show by how much.

Everything below multiplies those constants. What was not measured but assumed: an object store answers a request
in {request:.0f} ms and gives a worker {rate} a second, and tasks keep {flight} reads under way;
each document has {copies:g} exact copies, {duplicates:g} documents spread evenly over Jaccard 0.5 to 1, and as many
less similar ones as the documents of one source have in our test text ({siblings:.1f} at 0.1 and above); unrelated
documents are as alike as those of two of our sources. A real crawl will differ: `corpusmill dedup-plan IN` looks
at a real sample of it instead.

## {documents:,} documents of {bytes:,} bytes on {workers} workers

{plans}

The second layout is the best of {tried} (partitions of 64 MiB to 2 GiB, `dedup.memory_mb` 512 to 8,192): {chosen}

## What breaks first

The number of documents, of {bytes:,} bytes each, at which a run on {workers} workers leaves a limit behind, all else
as above:

{breaks}

{advice}

Without {flight} reads of a task under way at once the defaults would take {first_alone}, and the other layout
{second_alone}.

## Against the slope

On one core of this machine the stage ran at {slope:.1f} MB/s on the largest corpus here. On a straight line through
the origin {total} of text take {straight} of CPU; the estimator says {cpu} at the default layout, and {best_cpu} at
the other. Two things do not grow in a straight line: slices are files times ranges, and both grow with the corpus,
even where files are put together first (then with the square of the records over `dedup.memory_mb`); and the exact
comparison turns, in each of its tasks, to as many partitions as its pairs have partners in, and reads the whole
index of the texts there.
"""


def tables(runs: dict[str, dict[str, Any]], held_out: str, shuffled: str) -> str:
    """What was measured, as Markdown."""
    lines = [
        "One thread, Parquet to Parquet, defaults. MB are 10^6 bytes of text, requests are of local files.\n",
        "| corpus | documents | MB | partitions | MB/s per core | intermediate bytes a document | requests |"
        " peak memory MiB | pilot CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, item in runs.items():
        seen, steps = item["corpus"], item["steps"].values()
        written = sum(step["written"] for label, step in item["steps"].items() if label != "transform")
        requests = sum(step["gets"] + step["puts"] for step in steps)
        lines.append(
            f"| {name} | {seen.documents:,} | {seen.text_bytes / 1e6:.0f} | {seen.partitions} |"
            f" {seen.text_bytes / 1e6 / sum(step['seconds'] for step in steps):.1f} |"
            f" {written / seen.documents:,.0f} | {requests:,.0f} | {item['memory_peak']:.0f} | {item['pilot_seconds']:.1f} |"
        )
    lines.append(
        f"\nEstimated over measured, by step, for '{held_out}': the constants are of the other corpora, the corpus is"
        " what the pilot saw.\n"
    )
    lines += by_step(runs[held_out])
    lines.append(
        f"\nThe same for '{shuffled}' (`dedup.memory_mb: 16`, every exchange of files forced through `compact`), with the"
        " same constants:\n"
    )
    lines += by_step(runs[shuffled])
    lines.append("\nEstimated over measured, in all:\n")
    lines += in_all(runs)
    return "\n".join(lines)


def by_step(item: dict[str, Any]) -> list[str]:
    """A row for each step."""
    lines = [
        "| step | CPU s | ratio | read MB | ratio | written MB | ratio | requests | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    known = {step.name: step for step in item["estimate"].steps}
    for name in [*known, *(name for name in item["steps"] if name not in known)]:
        came = item["steps"].get(name)
        step = known.get(name)
        if came is None or not came["tasks"] + came["seconds"]:
            continue
        cells = []
        for value, expected, scale in (
            (came["seconds"], step.cpu_seconds if step else 0, 1.0),
            (came["read"], step.read_bytes if step else 0, 1e6),
            (came["written"], step.written_bytes if step else 0, 1e6),
            (came["gets"] + came["puts"], step.gets + step.puts if step else 0, 1.0),
        ):
            shown = f"{value / scale:,.2f}" if value / scale < 10 else f"{value / scale:,.0f}"
            cells += [shown, ratio(expected, value) if step else "not modelled"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def in_all(runs: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each total, a column for each corpus."""
    rows: dict[str, list[str]] = {}
    for item in runs.values():
        found: Estimate = item["estimate"]
        steps, counters = item["steps"].values(), item["counters"]
        stored = item["steps"].get("transform", {"written": 0})["written"]
        pairs = {
            "CPU seconds": (found.cpu_seconds, sum(step["seconds"] for step in steps)),
            "bytes read": (found.read_bytes, sum(step["read"] for step in steps)),
            "intermediate bytes": (found.shuffled_bytes, sum(step["written"] for step in steps) - stored),
            "requests": (found.requests, sum(step["gets"] + step["puts"] for step in steps)),
            "tasks": (found.tasks, sum(step["tasks"] for step in steps)),
            "peak memory, driver and worker in one": (
                found.worker_bytes + found.driver_bytes - measured().worker_bytes, item["memory_peak"] * 2**20
            ),
            "candidate pairs": (found.candidates, counters["candidates"]),
            "pairs at the similarity": (found.verified, counters["verified"]),
            "exact copies removed": (found.exact_removed, counters["exact_removed"]),
            "near-copies removed": (found.near_removed, counters["near_removed"]),
        }  # fmt: skip
        for name, (expected, came) in pairs.items():
            rows.setdefault(name, []).append(f"{ratio(expected, came)} of {came:,.3g}")
    lines = ["| | " + " | ".join(runs) + " |", "|---|" + "---:|" * len(runs)]
    return [*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())]


def ratio(expected: float, came: float) -> str:
    """How many times what came was expected."""
    if came == 0:
        return "1.00" if expected < 1 else "-"
    return f"{expected / came:.2f}"


def page(runs: dict[str, dict[str, Any]], held_out: str, shuffled: str) -> str:
    """docs/scale.md."""
    largest = runs[held_out]
    seconds = sum(step["seconds"] for step in largest["steps"].values())
    slope = largest["corpus"].text_bytes / 1e6 / seconds
    total = DOCUMENTS * BYTES
    layout, chosen = best()
    layouts = {"defaults": DEFAULTS, "best": layout}
    first, second = (plan(item, DOCUMENTS) for item in layouts.values())
    return PAGE.format(
        measured=f"{measured().machine}\n\n" + tables(runs, held_out, shuffled),
        request=1e3 * OBJECT_STORE.request_seconds, rate=plain_size(OBJECT_STORE.bytes_per_second), copies=COPIES,
        duplicates=DUPLICATES, siblings=sum(measured().siblings[10:]), documents=DOCUMENTS, bytes=BYTES,
        workers=WORKERS, plans="\n\n".join(planned(name, item) for name, item in layouts.items()),
        tried=len(TRIED), chosen=chosen, breaks=breaking(layouts),
        advice="\n\n".join(advice(name, item) for name, item in (("defaults", first), ("best", second))),
        slope=slope, total=plain_size(total), straight=span(total / 1e6 / slope), cpu=span(first.cpu_seconds),
        best_cpu=span(second.cpu_seconds), flight=IN_FLIGHT,
        first_alone=span(plan(DEFAULTS, DOCUMENTS, 1).seconds),
        second_alone=span(plan(layout, DOCUMENTS, 1).seconds),
    )  # fmt: skip


def advice(name: str, found: Estimate) -> str:
    """What `corpusmill dedup-plan` says of a plan."""
    lines = [f"- {line}" for line in exceeded(found, Limits())] or ["- no limit is exceeded"]
    return f"The advice of `corpusmill dedup-plan` for '{name}':\n\n" + "\n".join(lines)


def best() -> tuple[tuple[int, int], str]:
    """(the layout whose plan keeps the limit of time with the least memory of a worker, of those with about as little
    the one with the fewest requests; what to say of the choice). If none keeps it, the fastest."""
    limits = Limits()
    plans = {layout: plan(layout, DOCUMENTS) for layout in TRIED}
    kept = {layout: found for layout, found in plans.items() if found.seconds <= limits.seconds}
    if kept:
        least = min(found.worker_bytes for found in kept.values())
        kept = {layout: found for layout, found in kept.items() if found.worker_bytes <= 1.05 * least}
        chosen = min(kept, key=lambda layout: kept[layout].requests)
        which = "of those that keep the limit of time the one with the smallest workers"
    else:
        chosen = min(plans, key=lambda layout: plans[layout].seconds)
        which = "none keeps the limit of time, and this is the fastest"
    found = plans[chosen]
    needs = f"{plain_size(found.worker_bytes)} of memory for each worker and {plain_size(found.driver_bytes)} for the driver"
    return chosen, f"{which}. It must have {needs}; what it exceeds all the same stands below."


def plan(layout: tuple[int, int], documents: int, in_flight: int = IN_FLIGHT) -> Estimate:
    """The estimate for so many documents in a layout, and reads of a task at once."""
    store = OBJECT_STORE.model_copy(update={"at_once": in_flight})
    partition_mb, memory_mb = layout
    params = DedupParams(memory_mb=memory_mb)
    corpus = assumed(documents, BYTES, partition_mb * 2**20, DUPLICATES, COPIES)
    return estimate(corpus, params, banding(params), WORKERS, store)


def planned(name: str, layout: tuple[int, int]) -> str:
    """A layout's plan."""
    found = plan(layout, DOCUMENTS)
    partition_mb, memory_mb = layout
    lines = [
        f"### Layout '{name}': `ingest.partition_mb: {partition_mb}`, `dedup.memory_mb: {memory_mb}`\n",
        f"```\n{show(found)}\n```\n",
        f"The driver: {plain_size(found.places_bytes)} for places of slices, {plain_size(found.union_bytes)} for union-find,"
        f" {plain_size(found.results_bytes)} for tasks and their files.\n",
        "| step | tasks | read | written | requests | CPU | memory of a worker | slices that the driver knows |"
        " wall time |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {step.name} | {step.tasks:,} | {plain_size(step.read_bytes)} | {plain_size(step.written_bytes)} |"
        f" {count(step.gets + step.puts)} | {span(step.cpu_seconds)} | {plain_size(step.worker_bytes)} |"
        f" {count(step.entries)} | {span(step.seconds)} |"
        for step in found.steps
    ]
    return "\n".join(lines)


def breaking(layouts: dict[str, tuple[int, int]]) -> str:
    """Where each layout leaves each limit."""
    limits = Limits()
    rows = {
        f"driver: {plain_size(limits.driver_bytes)} of memory": lambda e: (
            e.driver_bytes / limits.driver_bytes
        ),
        f"{count(limits.requests)} storage requests": lambda e: e.requests / limits.requests,
        f"{span(limits.seconds)} of wall time": lambda e: e.seconds / limits.seconds,
        f"worker: {plain_size(limits.worker_bytes)} of memory": lambda e: (
            e.worker_bytes / limits.worker_bytes
        ),
    }
    lines = ["| limit | " + " | ".join(layouts) + " |", "|---|" + "---:|" * len(layouts)]
    for name, share in rows.items():
        cells = []
        for layout in layouts.values():
            low, high = 5.0, 12.0  # powers of ten of documents
            if share(plan(layout, 10**5)) > 1:
                cells.append("at any size")
                continue
            if share(plan(layout, 10**12)) <= 1:
                cells.append("never")
                continue
            while high - low > 0.01:
                middle = (low + high) / 2
                low, high = (middle, high) if share(plan(layout, int(10**middle))) <= 1 else (low, middle)
            cells.append(f"{count(float(f'{math.pow(10, low):.2g}'))}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
