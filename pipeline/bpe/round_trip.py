"""Tokens back to bytes: which texts come back from their tokens as they were."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.bpe.kernels.back import come_back
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.bpe.texts import views


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
