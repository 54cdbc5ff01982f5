"""From tokens back to the bytes of text that they stand for, by table."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.bpe.names import token_bytes


class _Table(NamedTuple):
    data: npt.NDArray[np.uint8]  # the bytes of all tokens, one after the other
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def text_of(bpe: Bpe, tokens: npt.NDArray[np.unsignedinteger]) -> bytes:
    """UTF-8 of a document's tokens, its end-of-document token left out."""
    table = _table(bpe.tokenizer, bpe.vocab_size)
    lengths = table.lengths[tokens]
    ends = np.cumsum(lengths)
    if len(ends) == 0:
        return b""
    shift = table.starts[tokens] - (ends - lengths)
    return table.data[np.arange(ends[-1]) + np.repeat(shift, lengths)].tobytes()


@lru_cache(maxsize=1)
def _table(tokenizer: object, size: int) -> _Table:
    """By the tokenizer's own vocabulary, not by the tables that the shards were written with."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}  # type: ignore[attr-defined]
    pieces = [b""] * size
    for token, index in tokenizer.get_vocab(with_added_tokens=True).items():  # type: ignore[attr-defined]
        pieces[index] = token.encode() if token in added else token_bytes(token)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return _Table(np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(lengths) - lengths, lengths)
