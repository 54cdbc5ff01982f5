"""The memory of a server under load: over time, and whether it grows with the requests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

WARM_UP = 0.2  # share of the time that is not judged
GROWTH = 16 * 2**20  # bytes, from the median of the first third of what is judged to that of the last
# Bytes per 1,000 requests. If nothing but the engine's request stays of each text, it is about 2 MiB.
SLOPE = 256 * 2**10
ENOUGH = 1000  # requests after the warm-up, from which on a slope is judged


class Sample(NamedTuple):
    """`share` of the time, 0 to 1; bytes of memory; counts since the start."""

    share: float
    memory: int
    requests: int
    cancelled: int
    broken: int


def own_memory(process: int) -> int:
    """Bytes of a process that are its own: not of files, which it has as long as nobody else needs the memory."""
    fields = dict[str, int]()
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields["Anonymous"] + fields["Swap"]


class Judged:
    """What the samples after the warm-up say. `slope`: bytes per 1,000 requests (Theil-Sen: the median over all pairs of samples);
    `growth`: bytes between the medians of the first and the last third."""

    def __init__(self, samples: list[Sample]) -> None:
        warm = [one for one in samples if one.share >= WARM_UP] or samples[-1:]
        memory = np.array([one.memory for one in warm], np.float64)
        requests = np.array([one.requests for one in warm], np.float64)
        third = max(len(warm) // 3, 1)
        self.growth = float(np.median(memory[-third:]) - np.median(memory[:third]))
        first, second = np.triu_indices(len(warm), 1)
        apart = requests[second] - requests[first]
        changes = (memory[second] - memory[first])[apart > 0] / apart[apart > 0]
        self.slope = float(np.median(changes)) * 1000 if len(changes) else 0.0
        self.requests = int(requests[-1] - requests[0])

    def problems(self) -> list[str]:
        found = []
        if self.growth > GROWTH:
            found.append(f"memory grew by {self.growth / 2**20:.1f} MiB, more than {GROWTH >> 20} MiB")
        if self.requests >= ENOUGH and self.slope > SLOPE:
            found.append(
                f"memory grew by {self.slope / 1024:.0f} KiB per 1,000 requests, more than {SLOPE >> 10} KiB"
            )
        return found

    def line(self) -> str:
        slope = f"{self.slope / 1024:+.0f} KiB per 1,000 requests (Theil-Sen; at most {SLOPE >> 10})"
        if self.requests < ENOUGH:
            slope = f"no slope, for which {ENOUGH:,} are needed"
        return (
            f"Memory after the first {WARM_UP:.0%} of the time, over {self.requests:,} requests: {slope}; "
            f"{self.growth / 2**20:+.1f} MiB from the first third to the last (at most {GROWTH >> 20})."
        )


def table(samples: list[Sample]) -> str:
    """Markdown: the samples nearest to 0, 10 .. 100 % of the time."""
    rows = [
        "| time | memory (MiB) | requests | texts cancelled | broken requests |",
        "|---:|---:|---:|---:|---:|",
    ]
    for percent in range(0, 101, 10):
        one = min(samples, key=lambda sample: abs(sample.share - percent / 100))
        rows.append(
            f"| {percent} % | {one.memory / 2**20:.1f} | {one.requests:,} | {one.cancelled:,} | {one.broken:,} |"
        )
    return "\n".join(rows)
