"""Corpora of any size out of real text, with the edits that real duplicates have: seeded, streamed to Parquet.

The text of `natural.py` (57 MB) is cut in passages. A base document is a passage: as it stands the first time,
later with 35 % of its words replaced, by words of the whole text, so that two bases of one passage share
next to no five-word shingle (Jaccard about 0.06 or less). Copies are made of bases, a share of all documents by
kind (`KINDS`), however many documents there are: the time of a stage may so be compared between sizes. Words
are replaced by a Numba kernel whose chance is a hash of (document, position): nothing depends on the partitions.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from numba import njit

from bench import natural
from corpusmill.common.ids import doc_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.tables import DOCUMENTS

PARTITION_BYTES = 64 << 20  # as `ingest` cuts them
BASE_EDITS = 0.35  # words of a base document that is not a passage's first
PAGES, TEMPLATES = 20, 40  # pages that occur over and over; headers and footers around different bodies
FRAME_WORDS = 30  # of a header, and of a footer
VOCABULARY = 1 << 16  # running words of the text that replacements are drawn from: few enough for a cache


class Kind(NamedTuple):
    """Copies of one kind: their share of all documents, and shares of words and sentences edited."""

    name: str
    documents: float
    replaced: float = 0.0
    inserted: float = 0.0
    deleted: float = 0.0


KINDS = (
    Kind("exact", 0.06),
    Kind("1 % of words replaced", 0.08, replaced=0.01),
    Kind("5 % of words replaced", 0.05, replaced=0.05),
    Kind("20 % of words replaced", 0.03, replaced=0.2),
    Kind("30 % of words replaced", 0.03, replaced=0.3),
    Kind("sentences put in and left out", 0.04, inserted=0.02, deleted=0.02),
    Kind("of one of 20 pages", 0.01),
    Kind("of a header and a footer alone", 0.03),
)
PAGE, FRAME = 6, 7  # positions of the last two

# How a document is made: words first:last of the text, edited twice (as a base, then as a copy), in a frame.
PLAN = np.dtype(
    [("first", "i8"), ("last", "i8"), ("base", "u8"), ("base_rate", "f8"), ("copy", "u8"), ("rate", "f8"),
     ("inserted", "f8"), ("deleted", "f8"), ("frame", "i8"), ("source", "i8")]
)  # fmt: skip


class Text(NamedTuple):
    """All real text: UTF-8 bytes, the bounds of its words, which of them end a sentence, sources' bounds.

    After the text come `VOCABULARY` of its words, drawn evenly, to replace others with.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    ends: npt.NDArray[np.bool_]
    sources: list[str]
    bounds: list[int]  # word number where each source begins, and the end


class Corpus(NamedTuple):
    """A written corpus."""

    partitions: list[Partition]
    documents: int
    text_bytes: int
    sources: list[str]

    @property
    def megabytes(self) -> float:
        return self.text_bytes / 1e6


@lru_cache(maxsize=1)
def real_text() -> Text:
    """The text of all sources in one buffer, split at white space; words above 100 bytes are left out."""
    parts, names, sizes = [], [], []
    for name, read in natural.sources().items():
        whole = "\n\n".join(text for text in read() if text.strip()).encode("utf-8", "replace") + b"\n\n"
        parts.append(whole)
        names.append(name)
        sizes.append(len(whole))
    data = np.frombuffer(b"".join(parts), np.uint8)
    inside = np.concatenate([[False], data > 0x20])
    change = np.flatnonzero(inside[1:] != inside[:-1])
    starts, stops = change[0::2], change[1::2]
    short = stops - starts <= 100
    starts, stops = starts[short], stops[short]
    last = data[stops - 1]
    ends = (last == ord(".")) | (last == ord("!")) | (last == ord("?"))
    bounds: list[int] = np.searchsorted(starts, np.cumsum([0, *sizes])).tolist()
    drawn = np.random.default_rng(1).integers(0, len(starts), VOCABULARY)
    spare = [data[a:b] for a, b in zip(starts[drawn], stops[drawn], strict=True)]
    until = len(data) + np.cumsum([len(word) for word in spare])
    begin = np.r_[len(data), until[:-1]]
    return Text(
        np.concatenate([data, *spare]), np.r_[starts, begin], np.r_[stops, until], ends, names, bounds
    )  # fmt: skip


def plan(documents: int, mean_bytes: int, seed: int = 1) -> npt.NDArray[Any]:
    """How each of `documents` is made; about `mean_bytes` long in the mean, lengths log-normal."""
    text = real_text()
    generator = np.random.default_rng([seed, documents, mean_bytes])
    mean_words = mean_bytes * len(text.ends) / len(text.data)
    passages, source = [], []
    for number, (first, last) in enumerate(zip(text.bounds[:-1], text.bounds[1:], strict=True)):
        sizes = generator.lognormal(np.log(mean_words) - 0.32, 0.8, int(3 * (last - first) / mean_words) + 9)
        cuts = first + np.cumsum(np.clip(sizes, 12, 30 * mean_words).astype(np.int64))
        cuts = np.r_[first, cuts[cuts < last - 12], last]
        passages.append(np.stack([cuts[:-1], cuts[1:]], axis=1))
        source.append(np.full(len(cuts) - 1, number))
    spans, sources = np.concatenate(passages), np.concatenate(source)
    mixed = generator.permutation(len(spans))
    spans, sources = spans[mixed], sources[mixed]

    counts = np.array([round(kind.documents * documents) for kind in KINDS])
    bases = documents - int(counts[:FRAME].sum())
    base = np.arange(documents)
    base[bases:] = generator.integers(0, bases, documents - bases)
    kinds = np.r_[np.full(bases, -1), np.repeat(np.arange(FRAME), counts[:FRAME])]
    base[kinds == PAGE] = generator.integers(0, PAGES, counts[PAGE])
    rows = np.zeros(documents, PLAN)
    rows["first"], rows["last"] = spans[base % len(spans)].T
    rows["source"] = sources[base % len(spans)]
    rows["base"], rows["copy"] = base + seed * 2**40, np.arange(documents) + (seed + 1) * 2**41
    rows["base_rate"] = np.where(base < len(spans), 0, BASE_EDITS)
    for number, kind in enumerate(KINDS):
        of = kinds == number
        rows["rate"][of], rows["inserted"][of], rows["deleted"][of] = kind[2:]
    frames = generator.integers(0, len(text.ends) - 2 * FRAME_WORDS, TEMPLATES)
    rows["frame"] = -1
    # Bases and their copies alike: the last bases are the framed ones.
    framed = base >= bases - counts[FRAME]
    rows["frame"][framed] = frames[base[framed] % TEMPLATES]
    return rows[generator.permutation(documents)]


@njit(cache=True, nogil=True, inline="always")
def _chance(seed: Any, position: Any) -> Any:
    """64 well mixed bits of (seed, position): splitmix64 (Steele et al. 2014)."""
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(position) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def _write(rows: Any, data: Any, starts: Any, stops: Any, ends: Any, offsets: Any) -> Any:
    """The bytes of the planned documents; `offsets` (int64[rows + 1]) is filled."""
    words = len(ends)
    out = np.empty(1 << 20, np.uint8)
    size = 0
    for number in range(len(rows)):
        row = rows[number]
        first, last, frame = row["first"], row["last"], row["frame"]
        base_limit = np.uint64(row["base_rate"] * 2.0**32)
        limit = np.uint64(row["rate"] * 2.0**32)
        insert = np.uint64(row["inserted"] * 2.0**32)
        delete = np.uint64(row["deleted"] * 2.0**32)
        framed = FRAME_WORDS if frame >= 0 else 0
        leaving = False  # inside a sentence that is left out
        inserting = 0  # words of a sentence that is put in, still to come
        where: Any = 0
        begun = size
        w = first - framed
        while w < last + framed:
            if len(out) - size < 512:
                more = np.empty(2 * len(out), np.uint8)
                more[:size] = out[:size]
                out = more
            space = w
            if w < first:
                word = frame + (w - first + framed)
            elif w >= last:
                word = frame + framed + (w - last)
            elif inserting > 0:
                word = where
                where += 1
                inserting = 0 if ends[word] or where >= words else inserting - 1
                space = word
                w -= 1
            else:
                word = w
                draw = _chance(row["base"], w)
                if (draw & np.uint64(0xFFFFFFFF)) < base_limit:
                    word = words + np.int64(draw >> np.uint64(48))
                draw = _chance(row["copy"], w)
                if (draw & np.uint64(0xFFFFFFFF)) < limit:
                    word = words + np.int64(draw >> np.uint64(48))
                if w > first and ends[w - 1]:
                    draw = _chance(row["copy"] + np.uint64(1 << 50), w)
                    leaving = (draw & np.uint64(0xFFFFFFFF)) < delete
                    if (draw >> np.uint64(32)) < insert:
                        where = np.int64(_chance(draw, w) % np.uint64(words))
                        inserting = 25
                if leaving:
                    w += 1
                    continue
            for i in range(starts[word], stops[word]):
                out[size] = data[i]
                size += 1
            # The white space that follows the word in the text stays: lines and paragraphs are real.
            if space + 1 < words and starts[space + 1] - stops[space] <= 4:
                for i in range(stops[space], starts[space + 1]):
                    out[size] = data[i]
                    size += 1
            else:
                out[size] = 0x20
                size += 1
            w += 1
        while size > begun and out[size - 1] <= 0x20:
            size -= 1
        offsets[number + 1] = size
    return out[:size]


def texts(rows: npt.NDArray[Any]) -> pa.LargeStringArray:
    """The planned documents."""
    text = real_text()
    offsets = np.zeros(len(rows) + 1, np.int64)
    data = _write(rows, text.data, text.starts, text.stops, text.ends, offsets)
    return pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(data))


def publish(folder: Folder, name: str, source: list[str], locator: list[str], text: pa.Array) -> Partition:
    """A partition of documents as `ingest` publishes it."""
    _, offsets, data = text.buffers()
    view = memoryview(data) if data is not None else memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8).tolist()
    hashes = [xxhash.xxh3_128_digest(view[a:b]) for a, b in itertools.pairwise(bounds)]
    columns: dict[str, Any] = {field.name: pa.nulls(len(text), field.type) for field in DOCUMENTS}
    columns |= {
        "doc_id": _binary([doc_id(*place) for place in zip(source, locator, strict=True)]),
        "source": pa.array(source, pa.string()),
        "locator": pa.array(locator, pa.string()),
        "text": text,
        "text_hash": _binary(hashes),
    }
    file = publish_table(folder, f"documents/{name}.parquet", pa.table(columns, DOCUMENTS))
    return Partition(name, folder, len(text), bounds[-1] - bounds[0], file.xxh3)


def _binary(values: list[bytes]) -> pa.FixedSizeBinaryArray:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(values), [None, pa.py_buffer(b"".join(values))]
    )


def write(folder: Folder, documents: int, mean_bytes: int, seed: int = 1) -> Corpus:
    """A corpus of that many documents, a partition in memory at a time."""
    rows = plan(documents, mean_bytes, seed)
    names = real_text().sources
    step = max(1, PARTITION_BYTES // mean_bytes)
    partitions = []
    for index, start in enumerate(range(0, documents, step)):
        some = rows[start : start + step]
        locators = [str(number) for number in range(start, start + len(some))]
        source = [names[number] for number in some["source"].tolist()]
        partitions.append(publish(folder, f"{index:05d}", source, locators, texts(some)))
    return Corpus(partitions, documents, sum(part.text_bytes for part in partitions), names)


def description() -> str:
    """One sentence on what a corpus is made of."""
    kinds = "; ".join(f"{kind.name}: {kind.documents:.0%}" for kind in KINDS)
    return (
        f"Real text of {len(natural.sources())} sources. Of the documents are copies of others, {kinds}."
        " All others are different texts."
    )
