"""Texts beside their tokens, a few megabytes at a time, as the kernels walk over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bpe.encode import encode, normalized
from pipeline.bpe.load import Bpe

VIEW_BYTES = 4 << 20  # text in a view
I64 = npt.NDArray[np.int64]


class View(NamedTuple):
    """Texts `data[offsets[k]:offsets[k + 1]]` (uint8, int64[K + 1]); the first is row `row` of what was asked for."""

    row: int
    data: npt.NDArray[np.uint8]
    offsets: I64
    texts: pa.ChunkedArray


def views(bpe: Bpe, texts: pa.ChunkedArray) -> Iterator[View]:
    """Texts as their tokens stand for them (in NFC where the tokenizer composes), about `VIEW_BYTES` at a time."""
    ends = np.cumsum(pc.binary_length(texts).to_numpy().astype(np.int64))
    row = 0
    while row < len(texts):
        base = ends[row - 1] if row else 0
        stop = max(row + 1, int(np.searchsorted(ends, base + VIEW_BYTES, side="right")))
        yield View(row, *_flat(normalized(bpe, texts.slice(row, stop - row))))
        row = stop


def tokens(bpe: Bpe, view: View) -> tuple[npt.NDArray[np.uint32], I64]:
    """The ids of a view's texts, and the K + 1 offsets of the texts in them."""
    return encode(bpe, view.texts)


def _flat(texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint8], I64, pa.ChunkedArray]:
    array = pa.concat_arrays(texts.cast(pa.large_string()).chunks)
    _, bounds, data = array.buffers()
    offsets = np.frombuffer(bounds, np.int64, len(array) + 1, 8 * array.offset)
    flat = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return flat[offsets[0] : offsets[-1]], offsets - offsets[0], texts
