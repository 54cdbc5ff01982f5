"""A look at a corpus before the run: how long, how alike its documents are, from a few of its partitions.

Documents are sampled in a coordinated way: those whose draw (a min-hash, `Shingling.sign`) lies below a
threshold t. Near-copies so are drawn together: a pair with Jaccard similarity J is, with probability
J t + (1 - J) t^2, and counts with the inverse of it (Horvitz and Thompson, 1952). The sampled documents are all
compared with each other, exactly, through an inverted index of their shingles.

Assumed: pairs of documents of two partitions are as alike as pairs within the partitions that are looked at. A sample
of n out of N documents then holds (n / N)^2 of the pairs, and copies of one text are as many more as there are more
documents than were read. The interval is that of a Poisson count with the relative variance of a jackknife over
groups of draws; what no sample can show (one crowd of copies in a partition that was not read) it does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.dedup.estimate.corpus import BINS, Corpus, degree_of
from corpusmill.pipeline.engine.shuffle import words
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.dedup_results import Interval

GROUPS = 20  # of the jackknife
F64 = npt.NDArray[np.float64]

SLOTS = 1 << 25  # at most

READ = 128 << 20  # bytes of text in the partitions that are read
TEXT = 32 << 20  # bytes of text that are looked at
SAMPLE = 20_000  # documents that are compared
WORK = 100_000_000  # meetings of two documents in a shingle: about half a second
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Index(NamedTuple):
    """Documents by shingle, of those shingles that several documents may have. Document d has `place[i]` for i
    in bounds[d]:bounds[d + 1], and `holders[starts[p] : starts[p + 1]]` hold the shingle at place p."""

    sizes: I64  # distinct shingles of each document, all of them
    bounds: I64
    place: I64
    starts: I64
    holders: npt.NDArray[np.int32]


class Compared(NamedTuple):
    """Weighed pairs of the sample. `similar`: those at the similarity or above, `seen` without weights;
    `without`: the jackknife's values of `similar`, a group left out each."""

    pairs: F64
    similar: float
    seen: int
    without: F64


def index(bounds: I64, hashes: npt.NDArray[np.uint64]) -> Index:
    """The inverted index of shingle sets, as `Shingling.sets` gives them."""
    sizes = np.diff(bounds)
    # Most shingles are of one document alone: sorting the rest is several times as fast.
    kept, several = np.empty(len(bounds), np.int64), np.empty(len(hashes), hashes.dtype)
    hashes = several[: int(_several(bounds, hashes, kept, several))]
    order = np.argsort(hashes)
    place, starts = np.empty(len(order), np.int64), np.empty(len(order) + 1, np.int64)
    starts = starts[: int(_places(hashes, order, place, starts)) + 1]
    document = np.repeat(np.arange(len(sizes), dtype=np.int32), np.diff(kept))
    return Index(sizes, kept, place, starts, document[order])


@compiled
def _places(hashes: Any, order: Any, place: Any, starts: Any) -> Any:
    """Number the distinct hashes, which are ascending in `order`: each one's number into `place`, where each number begins in
    `order` into `starts`; how many there are."""
    count = np.int64(0)
    for k in range(len(order)):
        if k == 0 or hashes[order[k]] != hashes[order[k - 1]]:
            starts[count] = k
            count += 1
        place[order[k]] = count - 1
    starts[count] = len(order)
    return count


@compiled
def _several(bounds: Any, hashes: Any, kept: Any, several: Any) -> Any:
    """Put the hashes whose lower bits occur more than once into `several`, and where those of each document begin into `kept`; how
    many they are."""
    slots = 1024
    while slots < SLOTS and slots < 8 * len(hashes):
        slots *= 2
    seen = np.zeros(slots, np.uint8)
    mask = np.uint64(slots - 1)
    for value in hashes:
        slot = value & mask
        seen[slot] = min(2, seen[slot] + 1)
    count, kept[0] = np.int64(0), 0
    for d in range(len(bounds) - 1):
        for i in range(bounds[d], bounds[d + 1]):
            several[count] = hashes[i]
            count += seen[hashes[i] & mask] > 1
        kept[d + 1] = count
    return count


def work_of(found: Index) -> int:
    """How often two documents meet in a shingle."""
    holders = np.diff(found.starts)
    return int((holders * (holders - 1)).sum())


def compare(found: Index, draws: npt.NDArray[np.uint64], threshold: float, similarity: float) -> Compared:
    """Every pair with a common shingle, weighed by one over the probability that both were drawn.

    Pairs of equal draws come and go together: where a group of draws is left out they are grown by G / (G - 1),
    other pairs by the square of it.
    """
    group = (draws % np.uint64(GROUPS)).astype(np.int64)
    pairs, same, cross, count = _compare(
        found.sizes, found.bounds, found.place, found.starts, found.holders, group, threshold, similarity
    )
    grown = GROUPS / (GROUPS - 1)
    # `cross` has each pair in the groups of both of its ends.
    without = (same.sum() - same) * grown + (cross.sum() / 2 - cross) * grown**2
    return Compared(pairs, float(same.sum() + cross.sum() / 2), int(count), without)


@compiled
def _compare(
    sizes: Any,
    bounds: Any,
    place: Any,
    starts: Any,
    holders: Any,
    group: Any,
    threshold: float,
    similarity: float,
) -> Any:
    pairs = np.zeros(BINS)
    same = np.zeros(GROUPS)
    cross = np.zeros(GROUPS)
    count = 0
    shared = np.zeros(len(sizes), np.int32)
    touched = np.empty(len(sizes), np.int32)
    for i in range(len(sizes)):
        met = 0
        for k in range(bounds[i], bounds[i + 1]):
            for slot in range(starts[place[k]], starts[place[k] + 1]):
                j = holders[slot]
                if j < i:
                    if shared[j] == 0:
                        touched[met] = j
                        met += 1
                    shared[j] += 1
        for m in range(met):
            j = touched[m]
            jaccard = shared[j] / (sizes[i] + sizes[j] - shared[j])
            shared[j] = 0
            weight = 1.0 / (jaccard * threshold + (1 - jaccard) * threshold * threshold)
            pairs[min(BINS - 1, int(jaccard * BINS))] += weight
            if jaccard >= similarity:
                count += 1
                if group[i] == group[j]:
                    same[group[i]] += weight
                else:
                    cross[group[i]] += weight
                    cross[group[j]] += weight
    return pairs, same, cross, count


class Looked(NamedTuple):
    """Documents of some partitions: texts, hashes of the texts."""

    text: pa.Array
    hashes: pa.Array
    read: int  # documents of the partitions that were read
    stored: float  # Parquet bytes for each byte of text


def pilot(partitions: Sequence[Partition], params: DedupParams) -> Corpus:
    """The corpus in numbers, from a look that takes a second or two.

    Reads whole partitions, about 128 MiB of text in all, evenly spaced, and looks at about 32 MiB of it. Raises `WorkError` if a partition is not what was published.
    """
    documents = sum(partition.rows for partition in partitions)
    text_bytes = sum(partition.text_bytes for partition in partitions)
    looked = _look(partitions, text_bytes)
    count = len(looked.text)
    if count == 0 or documents == 0:
        return Corpus(
            documents=documents, text_bytes=text_bytes, stored_bytes=text_bytes, partitions=len(partitions),
            shingles=0, copies=0, pairs=(0.0,) * BINS,
        )  # fmt: skip
    first = _first_of_each(looked.hashes)
    shingling = Shingling(params, 1)
    signed = shingling.sign(looked.text, first)
    rows, draws, threshold = _drawn(first[signed.counts > 0], signed.draws[signed.counts > 0])
    bounds, hashes = shingling.sets(looked.text, rows)
    rows, draws, threshold, found = _affordable(rows, draws, threshold, bounds, hashes)
    similarity = params.similarity
    compared = compare(found, draws, threshold, similarity)
    grown = (documents / count) ** 2
    return Corpus(
        documents=documents,
        text_bytes=text_bytes,
        stored_bytes=int(text_bytes * looked.stored),
        partitions=len(partitions),
        shingles=float(np.diff(bounds).mean()) if len(bounds) > 1 else 0.0,
        copies=degree_of(len(first) / count) * documents / max(1, looked.read),
        pairs=tuple((compared.pairs * grown).tolist()),
        similar=_interval(compared, threshold, similarity, grown),
        looked_at=len(found.sizes),
    )


def _look(partitions: Sequence[Partition], text_bytes: int) -> Looked:
    """Texts are taken by their hash: all the copies of one, or none."""
    wanted = max(1, min(len(partitions), round(len(partitions) * READ / max(READ, text_bytes))))
    places = [(2 * i + 1) * len(partitions) // (2 * wanted) for i in range(wanted)] if partitions else []
    chosen = [partitions[place] for place in places]
    size = sum(partition.text_bytes for partition in chosen)
    share = min(1.0, TEXT / max(1, size))
    texts, hashes = [pa.array([], pa.large_string())], [pa.array([], pa.binary(16))]
    stored = 0
    for partition in chosen:
        table = partition.read(["text", "text_hash"])
        found = one_array(table["text_hash"])
        rows = np.flatnonzero(words(found)[0] <= share * (2.0**64 - 2048))
        stored += (partition.folder / f"documents/{partition.name}.parquet").entry().size
        texts.append(one_array(table["text"]).take(pa.array(rows)))
        hashes.append(found.take(pa.array(rows)))
    read = sum(partition.rows for partition in chosen)
    return Looked(pa.concat_arrays(texts), pa.concat_arrays(hashes), read, stored / max(1, size))


def _first_of_each(hashes: pa.Array) -> I64:
    """The first row with each text, ascending."""
    codes = hashes.dictionary_encode().indices.to_numpy()
    first: I64 = np.sort(np.unique(codes, return_index=True)[1]).astype(np.int64)
    return first


def _drawn(rows: I64, draws: U64) -> tuple[I64, U64, float]:
    """The sample: rows, their draws, and the threshold below which all draws are in it, as a share."""
    if len(rows) <= SAMPLE:
        return rows, draws, 1.0
    limit = np.partition(draws, SAMPLE)[SAMPLE]
    return rows[draws < limit], draws[draws < limit], float(limit) / 2.0**64


def _affordable(
    rows: I64, draws: U64, threshold: float, bounds: I64, hashes: U64
) -> tuple[I64, U64, float, Index]:
    """The sample made smaller until comparing all of it costs less than `WORK`: where every page has the same
    footer, shingles have as many holders as there are pages."""
    found = index(bounds, hashes)
    while work_of(found) > WORK and len(rows) > 100:
        threshold /= max(2.0, 0.8 * math.sqrt(work_of(found) / WORK))
        keep = draws < np.uint64(min(threshold * 2.0**64, 2.0**64 - 2048))
        sizes = np.diff(bounds)
        hashes, rows, draws = hashes[np.repeat(keep, sizes)], rows[keep], draws[keep]
        bounds = np.r_[0, np.cumsum(sizes[keep])].astype(np.int64)
        found = index(bounds, hashes)
    return rows, draws, threshold, found


def _interval(compared: Compared, threshold: float, similarity: float, grown: float) -> Interval:
    """Pairs at the similarity, in the whole corpus."""
    total = compared.similar
    lone = similarity * threshold + (1 - similarity) * threshold**2  # of a pair that is only just similar
    if total <= 0:
        return Interval(value=0, low=0, high=_poisson(0)[1] / lone * grown)
    if grown == 1 and threshold == 1:  # everything was compared
        return Interval(value=total, low=total, high=total)
    rounds = compared.without
    variance = (GROUPS - 1) / GROUPS * float(((rounds - rounds.mean()) ** 2).sum())
    effective = min(compared.seen, total**2 / variance) if variance > 0 else compared.seen
    low, high = (bound * total / effective for bound in _poisson(effective))
    return Interval(value=total * grown, low=low * grown, high=high * grown)


def _poisson(count: float, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a Poisson mean, from one count (Garwood's, by Wilson and Hilferty's formula)."""
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count > 0 else 0.0
    more = count + 1
    return max(0.0, low), more * (1 - 1 / (9 * more) + z / (3 * math.sqrt(more))) ** 3
