"""Tokens back to bytes: which texts come back from their tokens as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.utf8 import load, pointer
from corpusmill.pipeline.bpe.kernels.utf8 import same as equal
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.bpe.texts import views


@compiled
def come_back(
    data: Any, offsets: Any, ids: Any, starts: Any, pieces: Any, bounds: Any, same: Any
) -> None:  # fmt: skip
    """`same` (bool[K]): the bytes of a text's tokens, one after the other, are the text.

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
                right = equal(text, at, known, begin, size)
            elif size > 0:
                right = load(text, at, size, whole) == load(known, begin, size, end)
            if not right:
                break
            at += size
        same[k] = right and at == stop


def coming_back(
    bpe: Bpe, texts: pa.ChunkedArray, ids: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """bool[K]: the bytes of its tokens `ids[offsets[k]:offsets[k + 1]]`, one after the other, are text k to the last.

    `texts` as the tokens stand for them (`encode.normalized`).
    """
    table, same, row = bpe.pieces, np.zeros(len(texts), np.bool_), 0
    for view in views(texts):
        stop = row + len(view.texts)
        come_back(
            view.data, view.bounds, ids, offsets[row : stop + 1], table.data, table.bounds, same[row:stop]
        )
        row = stop
    return same
