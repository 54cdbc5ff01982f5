"""The estimate for people: as text for a terminal, before the run and beside the actual figures, and the limits that a
plan exceeds, with what to change.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from corpusmill.common.format import count, plain_size, quantity, span
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Estimate, EstimatedStep
from corpusmill.schemas.manifest import Strict

HEIGHT = 5  # lines of the S-curve
LEFT = 7  # columns before it
# What `show_actual` compares, in this order, if it is given: name, what it is called, how it is written.
COMPARED = {
    "candidates": ("candidate pairs", "count"),
    "verified": ("pairs at the similarity", "count"),
    "exact_removed": ("exact copies removed", "count"),
    "near_removed": ("near-copies removed", "count"),
    "tasks": ("tasks", "count"),
    "shuffled_bytes": ("intermediate files", "bytes"),
    "requests": ("storage requests", "count"),
    "worker_bytes": ("memory of a worker", "bytes"),
    "driver_bytes": ("memory of the driver", "bytes"),
    "cpu_seconds": ("CPU time", "seconds"),
    "seconds": ("wall time", "seconds"),
}

DRIVER = "on the driver"
# Steps whose tasks hold ranges of records, as large as `dedup.memory_mb` allows; others hold partitions.
PER_RANGE = (
    "exact copies", "candidates", "election", "survivors", "exact similarity", "files together", "table of clusters",
)  # fmt: skip


def show(found: Estimate, width: int = 80) -> str:
    """The plan of a run in at most `width` columns (40 at least)."""
    banding = Banding(found.bands, found.rows)
    near = [
        s for s in (found.similarity - 0.1, found.similarity, found.similarity + 0.1) if 0 < s <= 1 + 1e-9
    ]
    odds = ", ".join(f"{banding.found(min(1.0, s)):.3f} at {s:.2f}" for s in near)
    where = f"{quantity(float(found.documents), 'document')}, {plain_size(found.text_bytes)} of text"
    lines = [
        *_wrap(f"dedup of {where} in {quantity(float(found.partitions), 'partition')}", width),
        *_wrap(
            f"{quantity(found.bands, 'band')} x {quantity(found.rows, 'row')} find a pair with probability {odds}",
            width,
        ),
        *curve(banding, width),
    ]
    pairs = f"{count(found.candidates)}, of which {count(found.verified)} at {found.similarity:g} or above"
    if found.similar is not None:
        pairs += f" (of {count(found.similar.low)} to {count(found.similar.high)} in the corpus)"
    table = {
        "candidate pairs": pairs,
        "removed": f"{quantity(float(found.exact_removed), 'exact copy', 'exact copies')},"
        f" {quantity(float(found.near_removed), 'near-copy', 'near-copies')}",
        "memory": f"{plain_size(found.worker_bytes)} a worker, {plain_size(found.driver_bytes)} the driver",
        "disk": f"{plain_size(found.shuffled_bytes)} of intermediate files, {plain_size(found.output_bytes)} of output",
        "tasks": f"{count(found.tasks)}, {quantity(float(found.requests), 'storage request')}",
        "time": f"{span(found.cpu_seconds)} of CPU, about {span(found.seconds)} on {quantity(found.workers, 'worker')}",
    }
    if found.not_counted:
        table["not counted"] = ", ".join(found.not_counted)
    for name, text in table.items():
        first, *rest = _wrap(text, width - 18)
        lines += [f"{name:<16}  {first}", *(f"{'':<18}{line}" for line in rest)]
    return "\n".join(lines)


def unpromised(params: DedupParams, banding: Banding, width: int = 80) -> list[str]:
    """A warning, as lines, if bands and rows that were given (by hand or by the preset) find a smaller share of
    the pairs at the similarity than `params.recall`. A solved banding keeps that promise."""
    share = banding.found(params.similarity)
    if not params.minhash or share >= params.recall:
        return []
    preset = params.preset == "datatrove" and params.bands is None
    which = "those of dedup.preset datatrove" if preset else "given by hand"
    return _wrap(
        f"warning: dedup.recall {params.recall:g} is not promised: {banding.bands} bands x {banding.rows} rows,"
        f" {which}, find {share:.4g} of the pairs at {params.similarity:g}",
        width,
    )


def show_actual(found: Estimate, actual: Mapping[str, float], width: int = 80) -> str:
    """What was expected beside what came: of the quantities of `COMPARED` those in `actual`."""
    lines = [f"{'dedup':<24} {'expected':>12} {'actual':>12} {'ratio':>7}"]
    write = {"count": count, "bytes": plain_size, "seconds": span}
    for key, (name, kind) in COMPARED.items():
        if key in actual:
            expected, came = float(getattr(found, key)), float(actual[key])
            ratio = f"{expected / came:.2f}" if came else ("1.00" if expected < 0.5 else "-")
            lines.append(f"{name:<24} {write[kind](expected):>12} {write[kind](came):>12} {ratio:>7}")
    return "\n".join(line[:width] for line in lines)


def show_steps(found: Estimate) -> str:
    """A line for each step, 80 columns."""
    lines = [
        f"{'step':<17}{'tasks':>8}{'read':>9}{'written':>9}{'requests':>10}{'CPU':>9}{'memory':>9}{'time':>9}"
    ]
    lines += [
        f"{step.name:<17}{count(step.tasks):>8}{plain_size(step.read_bytes):>9}{plain_size(step.written_bytes):>9}"
        f"{count(step.gets + step.puts):>10}{span(step.cpu_seconds):>9}{plain_size(step.worker_bytes):>9}"
        f"{span(step.seconds):>9}"
        for step in found.steps
    ]
    return "\n".join(lines)


def curve(banding: Banding, width: int = 80) -> list[str]:
    """The S-curve drawn in text; a column is a step of Jaccard similarity."""
    columns = max(21, min(61, (width - LEFT - 1) // 10 * 10 + 1))
    shades = " .:|"  # a cell is empty, or filled by a third, two thirds, all
    values = [banding.found(i / (columns - 1)) for i in range(columns)]
    lines = []
    for row in range(HEIGHT, 0, -1):
        low, high = (row - 1) / HEIGHT, row / HEIGHT
        cells = "".join(shades[max(0, min(3, round(3 * (v - low) / (high - low))))] for v in values)
        lines.append(f"{f'{high:.1f}':>{LEFT - 2}} {cells}".rstrip())
    scale = " " * (LEFT - 1)
    tick = (columns - 1) // 5
    for i in range(6):
        scale = f"{scale:<{LEFT - 2 + i * tick}}{i / 5:.1f}"
    return [*lines, scale]


def _wrap(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(20, width), subsequent_indent="  ") or [""]


class Limits(Strict):
    """What there is."""

    worker_bytes: float = Field(default=1.5e9, description="memory of a worker")
    driver_bytes: float = Field(default=64e9, description="memory of the driver")
    requests: float = Field(default=1e9, description="storage requests that are bearable")
    seconds: float = Field(default=14 * 86_400.0, description="wall time that is bearable")
    disk_bytes: float | None = Field(default=None, description="intermediate files and output")


def exceeded(found: Estimate, limits: Limits) -> list[str]:
    """One line for each limit that the plan exceeds, the worst first: by how much, through what, and what to change."""
    lines: list[tuple[float, str]] = []

    def check(value: float, limit: float | None, text: str) -> None:
        if limit is not None and value > limit:
            lines.append((value / limit, text))

    largest = max((s for s in found.steps if s.name != DRIVER), key=lambda step: step.worker_bytes)
    busiest = max(found.steps, key=lambda step: step.gets + step.puts)
    slowest = max(found.steps, key=lambda step: step.seconds)
    check(
        found.driver_bytes, limits.driver_bytes,
        f"driver: {plain_size(found.driver_bytes)} of {plain_size(limits.driver_bytes)}: {plain_size(found.places_bytes)} for places of"
        f" {count(found.entries)} slices, {plain_size(found.union_bytes)} for union-find, {plain_size(found.results_bytes)} for"
        f" tasks and their files; {_lighter(found)}",
    )  # fmt: skip
    check(
        found.worker_bytes, limits.worker_bytes,
        f"worker: {plain_size(found.worker_bytes)} of {plain_size(limits.worker_bytes)}, in '{largest.name}'; "
        + _smaller(largest),
    )  # fmt: skip
    check(
        found.requests, limits.requests,
        f"requests: {count(found.requests)} of {count(limits.requests)}, {count(busiest.gets + busiest.puts)} of"
        f" them by '{busiest.name}'; fewer, larger partitions (ingest.partition_mb) and ranges (dedup.memory_mb)",
    )  # fmt: skip
    check(
        found.seconds, limits.seconds,
        f"time: {span(found.seconds)} of {span(limits.seconds)}, {span(slowest.seconds)} of it in"
        f" '{slowest.name}'; {_faster(slowest, found)}",
    )  # fmt: skip
    check(
        found.disk_bytes, limits.disk_bytes,
        f"disk: {plain_size(found.disk_bytes)} of {plain_size(limits.disk_bytes or 0)}, {plain_size(found.shuffled_bytes)} of it"
        " intermediate; fewer bands (dedup.scratch_bytes_per_doc), or a higher dedup.similarity",
    )  # fmt: skip
    return [text for _, text in sorted(lines, key=lambda line: -line[0])]


def _lighter(found: Estimate) -> str:
    if found.union_bytes > max(found.places_bytes, found.results_bytes):
        return "a driver with more memory, or a higher dedup.similarity: it grows with the texts that have copies"
    return "fewer, larger partitions (ingest.partition_mb) and ranges (dedup.memory_mb)"


def _smaller(step: EstimatedStep) -> str:
    return "lower dedup.memory_mb" if step.name in PER_RANGE else "lower ingest.partition_mb"


def _faster(step: EstimatedStep, found: Estimate) -> str:
    if step.tasks < found.workers:
        return "it has fewer tasks than there are workers: more workers do not help"
    if step.cpu_seconds / found.workers > step.seconds / 2:
        return "it is bound by CPU: more workers"
    return "it waits for storage: fewer requests (larger partitions and ranges), or more workers"
