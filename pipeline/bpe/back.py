"""Tokens back to bytes: what each token stands for, and which texts come back from their tokens as they were."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.bpe.kernels.back import come_back
from pipeline.bpe.load import Bpe
from pipeline.bpe.names import token_bytes
from pipeline.bpe.texts import views


class Pieces(NamedTuple):
    """Token i stands for `data[bounds[i]:bounds[i + 1]]` (uint8, int64[V + 1])."""

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def _pieces(tokenizer: str, size: int) -> Pieces:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_str(tokenizer)
    added = {token.content for token in loaded.get_added_tokens_decoder().values()}
    of = [b""] * size
    for token, index in loaded.get_vocab(with_added_tokens=True).items():
        of[index] = token.encode() if token in added else token_bytes(token)
    bounds = np.zeros(size + 1, np.int64)
    np.cumsum([len(piece) for piece in of], out=bounds[1:])
    return Pieces(np.frombuffer(b"".join(of), np.uint8), bounds)


def pieces(bpe: Bpe) -> Pieces:
    """The bytes of every token."""
    return _pieces(bpe.tokenizer.to_str(), bpe.vocab_size)


def coming_back(
    bpe: Bpe, texts: pa.ChunkedArray, ids: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """bool[K]: the bytes of its tokens `ids[offsets[k]:offsets[k + 1]]`, one after the other, are text k to the last.

    `texts` as the tokens stand for them (`encode.normalized`).
    """
    table, same, row = pieces(bpe), np.zeros(len(texts), np.bool_), 0
    for view in views(texts):
        stop = row + len(view.texts)
        come_back(
            view.data, view.bounds, ids, offsets[row : stop + 1], table.data, table.bounds, same[row:stop]
        )
        row = stop
    return same
