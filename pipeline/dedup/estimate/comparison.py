"""What a task asks of storage to compare pairs of texts exactly: the sets of both, and where they lie."""

from __future__ import annotations

import math
from typing import NamedTuple

from corpusmill.pipeline.dedup.estimate.quantities import Quantities, Widths, cells, runs
from corpusmill.pipeline.dedup.shingle_sets import GAP
from corpusmill.schemas.dedup import DedupParams

MARKER = 600  # bytes of the marker of a partition's sets


class Compared(NamedTuple):
    """Of one task."""

    opened: float  # partitions that have sets of it: of each the index is read once
    runs: float  # ranges of sets, one request each
    hashes: float  # bytes of them
    rounds: float  # fillings of the memory for the first texts


def comparison(q: Quantities, w: Widths, params: DedupParams, pairs: float, first_in: float) -> Compared:
    """Of a task with so many pairs whose first texts lie in `first_in` partitions.

    A quarter of the budget is held of the first texts' sets; for each such filling the partners in it are fetched
    from wherever they lie, also a quarter at a time. Sets come by range, neighbours in one request. A pair's second
    text lies in its first text's partition or after it: of p pairs a task, spread at random, the task at place u of
    1 has 2 p (1 - u), with partners in (1 - u) of the partitions; the mean is that of p pairs over half of them.
    """
    in_file = q.nodes / q.partitions
    gap = GAP / max(1.0, q.shingles)
    own = min(pairs, q.nodes * first_in / q.partitions)
    rounds = max(1.0, math.ceil(own * q.shingles * w.hash / ((params.memory_mb << 20) / 4)))
    homes, others = cells(own, 1, first_in), cells(pairs / rounds, 1, (q.partitions + 1) / 2)
    each = min(in_file, pairs / rounds / max(1e-9, others))
    mine, theirs = runs(own / max(1e-9, homes), in_file, gap), runs(each, in_file, gap)
    requests, texts = (homes * a + rounds * others * b for a, b in zip(mine, theirs, strict=True))
    opened = min(q.partitions, homes + cells(pairs, 1, (q.partitions + 1) / 2))
    return Compared(opened, requests, texts * q.shingles * w.hash, rounds)
