"""Precision: removed documents and their survivors, compared again by independent means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.ids import checksum
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.quality import plain, plain_code
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.shuffle import Done, File, Part, Records, Slice, read
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.pipeline.text.datatrove_shingles import simplified
from corpusmill.schemas.manifest import hash_json

I64 = npt.NDArray[np.int64]

# A removed document, what it is drawn by, the text that stays for it, and their similarity as recorded.
AUDIT = np.dtype([("draw", "<u8"), ("location", "<i8"), ("survivor", "<i8"), ("jaccard", "<f8")])
SIZE = 1_000
JACCARD = np.dtype("<f8")
BYTE = np.dtype("u1")
PAIRS = 50  # compared by one task, at most
LONGEST = 4 << 20  # bytes: of longer texts plain sets of words would not fit; they are counted, not judged
BYTES = 16 << 20  # of text compared, at most: plain Python reads some MB a second
CLOSE = 1e-9  # two similarities of the same sets
Z95 = 1.959964  # of the normal distribution
RULE = "1"  # of the comparison; raised with every change


def audit(records: Records, size: int = SIZE) -> Records:
    """Those of the removed documents (`AUDIT`) with the least draws, by draw: audits of parts give that of
    the whole."""
    order = np.lexsort((records["survivor"], records["location"], records["draw"]))
    chosen: Records = records[order][:size]
    return chosen


@dataclass(frozen=True)
class Gather:
    """Texts wanted of a partition, by row, the first ones first."""

    index: int
    partition: Partition
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Compare:
    """Pairs of texts that `gather` published."""

    number: int
    pairs: tuple[tuple[Slice, Slice], ...]


def gather(job: Job, item: Gather) -> Done:
    """Publishes the first `BYTES` of the wanted texts of a partition (`texts`): each is a part, by its row.
    Those that are too long are counted as `long/<row>`."""
    inputs = [item.index, item.partition.name, item.partition.xxh3, item.rows, LONGEST, BYTES]
    key = hash_json([job.key, "audited", *inputs])
    name = f"precision/{item.index:06d}"
    return shuffle.once(job.work, name, key, lambda: _gather(job, item, name, key))


def _gather(job: Job, item: Gather, name: str, key: str) -> Done:
    offsets, data = view(one_array(item.partition.read(["text"])["text"]))
    parts, texts, start = [], [], 0
    counters = {}
    for row in item.rows:
        size = int(offsets[row + 1] - offsets[row])
        if size > LONGEST:
            counters[f"long/{row}"] = 1
            continue
        if start + size > BYTES:
            break
        text = data[offsets[row] : offsets[row + 1]].tobytes()
        parts.append(Part(row, start, size, checksum(text)))
        texts.append(text)
        start += size
    file = publish_bytes(job.work, f"{name}.texts", b"".join(texts), rows=len(texts))
    return Done(key=key, files={"texts": File.of(file, parts)}, counters=counters)


def compare(job: Job, item: Compare) -> Done:
    """Publishes the similarity of each pair of texts (`jaccard`)."""
    key = hash_json([job.key, "compare", RULE, [shuffle.hashes_of(pair) for pair in item.pairs]])
    name = f"precision/compared-{item.number:06d}"
    return shuffle.once(job.work, name, key, lambda: _compare(job, item, name, key))


def _compare(job: Job, item: Compare, name: str, key: str) -> Done:
    found = [similarity(job, *(_text(job, part) for part in pair)) for pair in item.pairs]
    file = shuffle.write(job.work, f"{name}.jaccard", np.array(found, JACCARD))
    return Done(key=key, files={"jaccard": file})


def _text(job: Job, part: Slice) -> str:
    return shuffle.read_slices(job.work, [part], BYTE).tobytes().decode(errors="replace") if part.size else ""


def similarity(job: Job, a: str, b: str) -> float:
    """Jaccard similarity of two texts by sets of their words (or characters) themselves; 1 for equal texts.

    The words of preset datatrove are cut at the spaces of its simplified text, which its kernel makes.
    """
    if a == b:
        return 1.0
    params = job.params
    if params.preset == "code":
        return plain.jaccard(*(plain_code.shingles(text, params.ngram) for text in (a, b)))
    if params.preset == "short":
        return plain.jaccard(*(plain.short_shingles(text, params.ngram) for text in (a, b)))
    if params.preset == "datatrove":
        found = [text.split() for text in simplified(pa.array([a, b], pa.large_string())).to_pylist()]
    else:
        read = plain.characters if params.shingle == "char" else plain.words
        found = [read(text) for text in (a, b)]
    left, right = (plain.shingles(units, params.ngram) for units in found)
    return plain.jaccard(left, right)


def measure_precision(
    job: Job, partitions: Mapping[int, Partition] | Sequence[Partition], audits: Records,
    map_: Callable[..., list[Done]],
) -> dict[str, Any]:  # fmt: skip
    """Share of the audited removals (`AUDIT` records, drawn by `audit`) whose text really has Jaccard similarity >=
    `similarity` with the text that stays, with its interval: of the first ones, up to `BYTES` of text.

    The texts are read again from `partitions` (location = index in it << 32 | row) and compared by `plain`,
    which shares no code with the kernels: a collision of hashes or a fault of a kernel shows. `disagree`
    counts pairs of which the stage recorded another similarity, `too_long` those not judged, `least` is the
    least similarity. `map_(step, items, label)` runs steps on the scheduler.
    """
    pairs = np.stack([audits["location"], audits["survivor"]], axis=1)
    locations, first_use = np.unique(pairs, return_index=True)
    wanted = locations[np.argsort(first_use)]
    gathers = [
        Gather(index, partitions[index], tuple((wanted[wanted >> 32 == index] & 0xFFFFFFFF).tolist()))
        for index in np.unique(wanted >> 32).tolist()
    ]
    gathered = map_(gather, gathers, "removed texts") if gathers else []
    slices, rows, too_long = _chosen(pairs, gathers, gathered)
    compares = [
        Compare(number, tuple(slices[first : first + PAIRS]))
        for number, first in enumerate(range(0, len(slices), PAIRS))
    ]
    dones = map_(compare, compares, "measured precision") if compares else []
    read_back = (read(job.work, done.files["jaccard"].file, JACCARD) for done in dones)
    found = np.concatenate([np.empty(0), *read_back])
    return {
        **share(int((found >= job.params.similarity).sum()), len(found)),
        "least": round(float(found.min()), 6) if len(found) else None,
        "disagree": int((np.abs(found - audits["jaccard"][rows]) > CLOSE).sum()),
        "too_long": too_long,
    }


def _chosen(
    pairs: I64, gathers: list[Gather], gathered: list[Done]
) -> tuple[list[tuple[Slice, Slice]], list[int], int]:
    """(texts of the pairs to compare, their rows in `pairs`, pairs with a text that is too long).

    Up to the first pair with which they would be more than `BYTES`: that this falls where it does not depend
    on the cut into partitions, each of which has all the texts before it.
    """
    where: dict[int, Slice | None] = {}
    for item, done in zip(gathers, gathered, strict=True):
        texts = done.files["texts"]
        for part in texts.parts:
            where[item.index << 32 | part.number] = Slice(texts.file.path, part.start, part.size, part.xxh3)
        for name in done.counters:
            where[item.index << 32 | int(name.removeprefix("long/"))] = None
    slices, rows, too_long, size = [], [], 0, 0
    for row, (a, b) in enumerate(pairs.tolist()):
        if a not in where or b not in where:
            break
        left, right = where[a], where[b]
        if left is None or right is None:
            too_long += 1
            continue
        size += left.size + right.size
        if size > BYTES:
            break
        slices.append((left, right))
        rows.append(row)
    return slices, rows, too_long


def wilson(found: float, of: float, z: float = Z95) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson 1927); (0, 1) for a share of nothing."""
    if of == 0:
        return 0.0, 1.0
    share = found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(found: int, of: int, independent: float | None = None) -> dict[str, Any]:
    """A share with its interval; null when there was nothing to count.

    Where the things counted depend on one another, `independent` is their effective number, with which the interval is
    computed (`effective`), at most `of`.
    """
    if independent is None or independent >= of:
        low, high = wilson(found, of)
        effective: dict[str, Any] = {}
    else:
        low, high = wilson(found * independent / of, independent)
        effective = {"effective": round(independent, 1)}
    value = round(found / of, 6) if of else None
    interval = {"low": round(low, 6), "high": round(high, 6)}
    return {"value": value, "found": found, "of": of, **interval, **effective}
