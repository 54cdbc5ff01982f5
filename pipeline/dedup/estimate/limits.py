"""What a planned run would exceed, and what to change."""

from __future__ import annotations

from pydantic import Field

from corpusmill.common.format import count, plain_size, span
from corpusmill.pipeline.dedup.estimate.model import Estimate, Step
from corpusmill.schemas.manifest import Strict

DRIVER = "on the driver"


class Limits(Strict):
    """What there is."""

    worker_bytes: float = Field(default=1.5e9, description="memory of a worker")
    driver_bytes: float = Field(default=64e9, description="memory of the driver")
    requests: float = Field(default=1e9, description="storage requests that are bearable")
    seconds: float = Field(default=14 * 86_400.0, description="wall time that is bearable")
    disk_bytes: float | None = Field(default=None, description="intermediate files and output")


def exceeded(found: Estimate, limits: Limits) -> list[str]:
    """One line for each limit that the plan exceeds, the worst first: by how much, through what, and what to
    change."""
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


def _smaller(step: Step) -> str:
    per_range = step.name in (
        "exact copies",
        "candidates",
        "election",
        "survivors",
        "exact similarity",
        "files together",
        "table of clusters",
    )
    return "lower dedup.memory_mb" if per_range else "lower ingest.partition_mb"


def _faster(step: Step, found: Estimate) -> str:
    if step.tasks < found.workers:
        return "it has fewer tasks than there are workers: more workers do not help"
    if step.cpu_seconds / found.workers > step.seconds / 2:
        return "it is bound by CPU: more workers"
    return "it waits for storage: fewer requests (larger partitions and ranges), or more workers"
