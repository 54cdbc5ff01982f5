"""Which process computes longer than the others, which all wait for it.

On the CPU the time of a process outside all collectives counts, which its watch samples (`train/parallel/watch.py`). The work of
a GPU is queued, so there each process times the same matrix products at each row. What is found goes with the sums of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from corpusmill.train.parallel.mesh import World

SIDE, PRODUCTS = 4096, 8  # of the products: 1.1 TFLOP
LEAST = 0.5  # share of the time that a process computes if the others wait for it


class Slowest(NamedTuple):
    """Of all processes: the `process` that computes longest, `ratio` times as long as the median one."""

    process: int
    ratio: float
    named: dict[int, float]  # process -> ratio, of those beyond the limit

    def row(self) -> dict[str, object]:
        """For a row of metrics.jsonl."""
        row: dict[str, object] = {"slowest_process": self.process, "slowest_ratio": round(self.ratio, 3)}
        if self.named:
            row["stragglers"] = {f"process_{rank}": round(ratio, 3) for rank, ratio in self.named.items()}
        return row

    def line(self, step: int) -> str:
        """For the log."""
        found = ", ".join(f"process {rank} ({ratio:.1f} times)" for rank, ratio in self.named.items())
        return f"step {step}: computing longer than the median process: {found}; the others wait for it"


def computing(world: World) -> float:
    """Of this process since the last row: share of the time outside collectives, or milliseconds of the products on a GPU;
    0 if unknown, or if there is no other process."""
    if world.size == 1 or world.watch is None:
        return 0.0
    return probe(world.device) if world.device.type == "cuda" else world.watch.busy()


class Stragglers:
    """Names a process that was beyond the limit at two rows in a row: a moment's load on a machine is no finding."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self._before = limit, set[int]()

    def found(self, world: World, values: list[float]) -> Slowest | None:
        """By the values that `computing` gave in each process; None if they do not say. The median is the lower one."""
        if len(values) < 2 or min(values) <= 0:
            return None
        median = sorted(values)[(len(values) - 1) // 2]
        ratios = [value / median for value in values]
        beyond = {
            rank
            for rank, ratio in enumerate(ratios)
            if self.limit is not None and ratio > self.limit
            if values[rank] >= LEAST or world.device.type == "cuda"
        }
        named = {rank: ratios[rank] for rank in sorted(beyond & self._before)}
        self._before = beyond
        process = max(range(len(ratios)), key=ratios.__getitem__)
        return Slowest(process, ratios[process], named)


def probe(device: torch.device) -> float:
    """Milliseconds that a GPU takes for some matrix products; the first ones, which are slower, are not timed."""
    matrix = torch.ones(SIDE, SIDE, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    for number in range(PRODUCTS):
        if number == PRODUCTS // 2:
            events[0].record()
        torch.mm(matrix, matrix, out=out)
    events[1].record()
    events[1].synchronize()
    return float(events[0].elapsed_time(events[1]))
