"""Numba kernel from bytes to 128-bit keys: texts that are equal or not, whatever they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.shingles import I64, U64, arguments
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, OTHER_PRIME, byte_at, chain, mix64
from corpusmill.pipeline.text.xxh64 import xxh64


def text_keys(text: pa.Array, rows: I64) -> tuple[U64, U64]:
    """(hi, lo) uint64[rows] of the UTF-8 bytes of the texts at `rows`; a null counts as empty.

    Two hashes of different make: XXH64, and FNV-1a with another multiplier and MurmurHash3's finaliser.
    """
    hi, lo = _keys(*arguments(text, rows))
    return hi, lo


@compiled
def _keys(offsets: Any, data: Any, rows: Any) -> Any:
    halves = np.empty((2, len(rows)), np.uint64)
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        halves[0, k] = xxh64(data, start, stop)
        value = FNV_BASIS
        for i in range(start, stop):
            value = chain(value, byte_at(data, i), OTHER_PRIME)
        halves[1, k] = mix64(value)
    return halves[0], halves[1]
