"""The sample of texts that is compared pair by pair: drawn per partition, so that near-copies come
together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.engine.shuffle import Records, starts_of

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

SAMPLE = np.dtype([("draw", "<u8"), ("hi", "<u8"), ("lo", "<u8"), ("location", "<i8"), ("shingles", "<i8")])
CROWD = 8  # texts of a stratum with one and the same draw: a template must not be the whole sample
MOST = 5_000  # texts, whatever is asked for: their pairs are listed in memory
STRATA = 64
_LONGEST = 1 << 36  # shingles; longer texts are of one stratum, and the arithmetic stays exact


def scattered(keys: U64, salt: int) -> U64:
    """Each key mixed to 64 even bits of its own for each `salt` (SplitMix64)."""
    x = keys + np.uint64((salt * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = x ^ (x >> np.uint64(31))
    return mixed


def strata(draws: U64, shingles: I64) -> I64:
    """The stratum of each text: the binary logarithm of its shingles, rounded up or down by its draw.

    A factor between 1 and 2, the same for equal draws, comes first: near-copies, which have equal draws, part
    only if the factor falls between them (127 and 129 shingles: one time in forty).
    """
    factor = (scattered(draws, 1) >> np.uint64(48)).astype(np.int64) + (1 << 16)
    scaled = np.minimum(np.maximum(shingles, 1), _LONGEST) * factor
    found: I64 = np.frexp(scaled.astype(np.float64))[1].astype(np.int64) - 17
    return found


def sample_records(draws: U64, texts: Records) -> Records:
    """`SAMPLE` records of distinct texts: records with hi, lo, location and shingles, and their draws."""
    records = np.empty(len(texts), SAMPLE)
    records["draw"] = draws
    for name in ("hi", "lo", "location", "shingles"):
        records[name] = texts[name]
    return records


def draw(records: Records, size: int) -> Records:
    """The sample out of `SAMPLE` records: at most `size` texts, each once, by (draw, hi, lo).

    What is sampled: the distinct texts with shingles, in strata by their number of shingles (powers of two,
    `strata`). Each stratum has an equal share of `size`; what one cannot use goes to the others. Within a
    stratum those with the least draws are taken, at most `CROWD` of one draw.

    The draw is a min-hash of the shingles that has no part in the signature, mixed so that it is even
    whatever the size: near-copies are drawn together with a probability of their similarity, and whether they
    are found has no part in it (coordinated sampling: Cohen and Kaplan 2007). Single documents drawn at
    random would hold hardly a pair. Of two similar pairs the more similar one is the likelier drawn, in
    proportion.

    Drawing from draws of parts gives the draw of the whole: in a part no stratum's share is less than in the
    whole.
    """
    order = np.lexsort(
        (records["location"], records["lo"], records["hi"], records["shingles"], records["draw"])
    )
    records = records[order]
    columns = [records[name] for name in ("draw", "shingles", "hi", "lo")]
    records = records[starts_of(*columns)]
    stratum = strata(records["draw"], records["shingles"])
    order = np.lexsort((records["lo"], records["hi"], records["draw"], stratum))
    records, stratum = records[order], stratum[order]
    few = _place(starts_of(stratum, records["draw"])) < CROWD
    records, stratum = records[few], stratum[few]
    most = shares(np.bincount(stratum, minlength=STRATA).astype(np.int64), min(size, MOST))
    records = records[_place(starts_of(stratum)) < most[stratum]]
    return records[np.lexsort((records["lo"], records["hi"], records["draw"]))]


def _place(starts: npt.NDArray[np.bool_]) -> I64:
    """The place of each row in its run."""
    first = np.flatnonzero(starts)
    return np.arange(len(starts)) - np.repeat(first, np.diff(np.r_[first, len(starts)]))


def shares(sizes: I64, total: int) -> I64:
    """How many of each stratum: equal parts of `total`, none more than it has, what is left to the first
    ones.

    For smaller sizes no share of what is there is smaller, which is what lets parts be drawn from by
    themselves.
    """
    level, used = 0, 0
    for size in np.sort(sizes).tolist():
        open_strata = int((sizes > level).sum())
        if used + (size - level) * open_strata > total:
            level += (total - used) // max(1, open_strata)
            break
        used += (size - level) * open_strata
        level = size
    found: npt.NDArray[Any] = np.minimum(sizes, level)
    more = np.flatnonzero(sizes > level)[: max(0, total - int(found.sum()))]
    found[more] += 1
    return found
