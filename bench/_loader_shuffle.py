"""How well loaders shuffle: of each sequence of one epoch its place in the data set, and what of the order is left."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench._loader_set import BATCH, BLOCK, SEQUENCE

PER_BLOCK = (BLOCK - 1) // SEQUENCE  # sequences
PARTS = 10  # of the stream, each of which should hold as much of every part of the set
Ints = npt.NDArray[np.int64]


class Shuffle(NamedTuple):
    """Of an epoch. A uniform permutation has 0, 0, and a distance of about 0.87 / sqrt(sequences of a part)."""

    sequences: int
    repeats: int  # sequences that came before
    neighbours: float  # autocorrelation at lag 1 of the place in the set
    same_block: float  # share of consecutive sequences out of one block
    drift: float  # Spearman's rank correlation of the place in the set and the place in the stream
    distance: (
        float  # Kolmogorov-Smirnov, of the places of a tenth of the stream from a uniform one; mean of ten
    )
    blocks_per_batch: float  # different blocks in a batch


def keys(rows: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """A name of each sequence [n, 4 or more tokens]: its first four tokens, which are as good as unique at random."""
    return np.ascontiguousarray(rows[:, :4].astype("<u2")).view("<u8").ravel()


def places(order: npt.NDArray[np.integer], rows: Path) -> Ints:
    """The place in the data set of each sequence of a stream [n, 4], over all sources in their order."""
    whole = np.concatenate([keys(np.load(file, mmap_mode="r")) for file in sorted(rows.glob("*.npy"))])
    sorted_by_key = np.argsort(whole)
    wanted = keys(order)
    at = sorted_by_key[np.searchsorted(whole, wanted, sorter=sorted_by_key).clip(max=len(whole) - 1)]
    assert np.array_equal(whole[at], wanted), "the stream holds a sequence that is not in the set"
    return at


def judge(at: Ints) -> Shuffle:
    """The figures of a stream of places; those that it never comes to are not of the set."""
    present = np.unique(at)
    position = np.searchsorted(present, at) / len(present)
    block = at // PER_BLOCK
    apart = [
        np.abs(np.sort(part) - np.arange(len(part)) / len(part)).max()
        for part in np.array_split(position, PARTS)
    ]
    batches = block[: len(block) // BATCH * BATCH].reshape(-1, BATCH)
    different = 1 + (np.diff(np.sort(batches, axis=1), axis=1) != 0).sum(1)
    return Shuffle(
        sequences=len(at),
        repeats=len(at) - len(present),
        neighbours=float(np.corrcoef(position[:-1], position[1:])[0, 1]),
        same_block=float((block[1:] == block[:-1]).mean()),
        drift=float(np.corrcoef(position, np.arange(len(at)))[0, 1]),
        distance=float(np.mean(apart)),
        blocks_per_batch=float(different.mean()),
    )


def table(found: dict[str, Shuffle | str]) -> list[str]:
    """Lines of Markdown; a text stands for what was not measured."""
    lines = [
        "| loader | sequences | of them again | neighbours' correlation | neighbours of one block | rank correlation"
        " with the set | distance of a tenth from uniform | blocks in a batch |",
        f"|---|{'---:|' * 7}",
    ]
    for name, row in found.items():
        if isinstance(row, str):
            lines.append(f"| {name} | not measured: {row} |{' |' * 6}")
        else:
            lines.append(
                f"| {name} | {row.sequences:,} | {row.repeats:,} | {row.neighbours:+.4f} | {row.same_block:.2%} |"
                f" {row.drift:+.4f} | {row.distance:.4f} | {row.blocks_per_batch:.1f} |"
            )
    return lines
