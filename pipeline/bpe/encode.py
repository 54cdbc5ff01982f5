"""Batches of texts to token ids.

Text that looks like a special token stays text: no document can forge an end-of-document.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bpe.load import Bpe

CHUNK_BYTES = 1 << 20  # text given to the library at once


def encode(bpe: Bpe, texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """(ids of all texts in one array, the len + 1 offsets of the texts in it). No special token is added."""
    ids: list[npt.NDArray[np.uint32]] = []
    counts: list[int] = []
    for chunk in chunks(texts):
        for encoding in bpe.tokenizer.encode_batch_fast(chunk, add_special_tokens=False):
            row = np.array(encoding.ids, dtype=np.uint32)
            ids.append(row)
            counts.append(len(row))
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(np.array(counts, dtype=np.int64), out=offsets[1:])
    return (np.concatenate(ids) if ids else np.zeros(0, np.uint32)), offsets


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
