"""Batches of texts to token ids, and which texts come back from their ids as they were.

The ids are those of `tokenizers` (`encode_special_tokens`, no special token added), from our own kernels wherever they know
what the tokenizer asks for (`recognise.py`), from the library elsewhere; `how` says which. Text that looks like a special
token stays text: no document can forge an end-of-document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.task_progress import advance
from corpusmill.pipeline.bpe.kernels.buffers import load, pointer, same
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.bpe.texts import View, composed, views

CHUNK_BYTES = 1 << 20  # text given to the library at once


Texts: TypeAlias = pa.ChunkedArray | pa.Array | Sequence[str]


def encode(bpe: Bpe, texts: Texts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """(ids of all texts in one array, the len + 1 offsets of the texts in it). No special token is added.

    The ids stand for `normalized(bpe, texts)`. Memory beyond the result is bounded by 4 MiB of text, or by the longest text.
    """
    texts = _column(texts)
    ids: list[npt.NDArray[np.uint32]] = []
    counts: list[npt.NDArray[np.int64]] = []
    for view in views(texts):
        row, ends = _library(bpe, pa.chunked_array([view.texts])) if bpe.engine is None else _ours(bpe, view)
        ids.append(row)
        counts.append(np.diff(ends, prepend=0))
        advance(view.bounds[-1] - view.bounds[0])
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    if counts:
        np.cumsum(np.concatenate(counts), out=offsets[1:])
    if len(ids) == 1:
        return ids[0], offsets
    return (np.concatenate(ids) if ids else np.zeros(0, np.uint32)), offsets


def normalized(bpe: Bpe, texts: Texts) -> pa.ChunkedArray:
    """The texts that the tokens stand for: the same, or with an NFC tokenizer (`bpe.nfc`) their canonical composition.

    Where nothing changes, nothing is copied; the type stays (string or large_string).
    """
    texts = _column(texts)
    if not bpe.nfc:
        return texts
    return pa.chunked_array([view.texts.cast(texts.type) for view in plain(bpe, texts)], texts.type)


def _column(texts: Texts) -> pa.ChunkedArray:
    return texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts])


def plain(bpe: Bpe, texts: pa.ChunkedArray) -> Iterator[View]:
    """The same, a view at a time."""
    for view in views(texts):
        yield composed(bpe.tokenizer, view) if bpe.nfc else view


def how(bpe: Bpe) -> str:
    """One line for people: which way texts are encoded, and why."""
    if bpe.engine is None:
        return f"encoding by the library `tokenizers`, one document after another: {bpe.why}"
    line = f"encoding by CorpusMill's kernels (pre-tokenizer: {bpe.engine.reading.name()})"
    if bpe.in_text:
        line += (
            f"; texts that hold one of {len(bpe.in_text)} added tokens that are not special, by the library"
        )
    return line


def _ours(bpe: Bpe, view: View) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """(ids, their number up to the end of each text) by the kernels; by the library those of texts with added tokens."""
    assert bpe.engine is not None
    plain = composed(bpe.tokenizer, view) if bpe.nfc else view
    ids, ends = bpe.engine.encode(plain.data, plain.bounds)
    if not bpe.in_text:
        return ids, ends
    marked = view.marked()
    if not bpe.needles.mark(view, marked) | bpe.needles.mark(plain, marked):
        return ids, ends
    rows = np.flatnonzero(marked)
    new, new_ends = _library(bpe, pa.chunked_array([view.texts.take(pa.array(rows))]))
    parts = np.split(ids, ends[:-1])
    for row, part in zip(rows.tolist(), np.split(new, new_ends[:-1]), strict=True):
        parts[row] = part
    return np.concatenate(parts), np.cumsum([len(part) for part in parts], dtype=np.int64)


def _library(bpe: Bpe, texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """(ids, their number up to the end of each text) by the library."""
    ids = [
        np.array(encoding.ids, dtype=np.uint32)
        for chunk in chunks(texts)
        for encoding in bpe.tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
    ]
    return np.concatenate(ids), np.cumsum([len(row) for row in ids], dtype=np.int64)


def chunks(texts: pa.ChunkedArray) -> Iterator[list[str]]:
    """Texts as Python strings, about `CHUNK_BYTES` at a time."""
    if len(texts) == 0:
        return
    ends = np.cumsum(pc.binary_length(texts).to_numpy())
    start = 0
    while start < len(texts):
        base = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, base + CHUNK_BYTES, side="right")))
        yield texts.slice(start, stop - start).to_pylist()
        start = stop


@compiled
def come_back(
    data: Any, offsets: Any, ids: Any, starts: Any, pieces: Any, bounds: Any, equal: Any
) -> None:  # fmt: skip
    """`equal` (bool[K]): the bytes of a text's tokens, one after the other, are the text.

    Text k is `data[offsets[k]:offsets[k + 1]]` (uint8, int64[K + 1]), its tokens are `ids[starts[k]:starts[k + 1]]`; token i
    stands for the bytes `pieces[bounds[i]:bounds[i + 1]]`.
    """
    text, whole, known, end, edges = pointer(data), len(data), pointer(pieces), len(pieces), pointer(bounds)
    tokens = pointer(ids)
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        right = True
        for j in range(starts[k], starts[k + 1]):
            token = np.int64(tokens[j])
            begin = edges[token]
            size = edges[token + 1] - begin
            if at + size > stop:
                right = False
            elif size > 8:
                right = same(text, at, known, begin, size)
            elif size > 0:
                right = load(text, at, size, whole) == load(known, begin, size, end)
            if not right:
                break
            at += size
        equal[k] = right and at == stop


def coming_back(
    bpe: Bpe, texts: pa.ChunkedArray, ids: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """bool[K]: the bytes of its tokens `ids[offsets[k]:offsets[k + 1]]`, one after the other, are text k to the last.

    `texts` as the tokens stand for them (`encode.normalized`).
    """
    table, equal, row = bpe.pieces, np.zeros(len(texts), np.bool_), 0
    for view in views(texts):
        stop = row + len(view.texts)
        come_back(
            view.data, view.bounds, ids, offsets[row : stop + 1], table.data, table.bounds, equal[row:stop]
        )
        row = stop
    return equal
