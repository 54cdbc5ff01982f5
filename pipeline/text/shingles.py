"""Arrow texts in, signatures and shingle sets out: the kernels behind plain functions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.text import minhash, word_hashes, word_rule

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
NO_CAP = 2**62


class Shingle(NamedTuple):
    """`ngram` consecutive words or characters, by the word rule of `word_rule.py`."""

    ngram: int
    characters: bool = False


class Permutations(NamedTuple):
    """datasketch's affine permutations h -> a h + b modulo 2^32."""

    a: U32
    b: U32

    def first(self, count: int) -> Permutations:
        """The first `count` of them: the values that they give do not depend on the rest."""
        return Permutations(np.ascontiguousarray(self.a[:count]), np.ascontiguousarray(self.b[:count]))


@lru_cache(maxsize=8)
def permutations(num_perm: int, seed: int) -> Permutations:
    """Those of `datasketch.MinHash(num_perm, seed, scheme="affine32")`, from datasketch itself."""
    from datasketch import MinHash

    a, b = MinHash(num_perm=num_perm, seed=seed, scheme="affine32").permutations
    return Permutations(np.ascontiguousarray(a, np.uint32), np.ascontiguousarray(b, np.uint32))


def view(text: pa.Array) -> tuple[I64, npt.NDArray[np.uint8]]:
    """(int64[n + 1] offsets, bytes) of a large_string array, not copied and not writable. Nulls count as
    empty."""
    if text.type != pa.large_string():
        text = text.cast(pa.large_string())
    if text.null_count:
        text = text.fill_null("")
    _, offsets, data = text.buffers()
    where, values = np.zeros(len(text) + 1, np.int64), np.zeros(0, np.uint8)
    if offsets is not None and len(text):
        where = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    if data is not None and data.size and len(text):
        values = np.frombuffer(data, np.uint8)
    return _frozen(where), _frozen(values)


def arguments(text: pa.Array, rows: I64) -> tuple[I64, npt.NDArray[np.uint8], I64]:
    """What the kernels take: `view(text)` and `rows`, none of them writable, since Numba compiles again for every
    kind of array."""
    return *view(text), _frozen(np.ascontiguousarray(rows, np.int64))


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as a single array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    return array


def sign(
    text: pa.Array, rows: I64, shingle: Shingle, hashes: Permutations, cap: int = NO_CAP
) -> tuple[U32, I64, U64, npt.NDArray[np.bool_]]:
    """Of the texts at `rows`: (signatures uint32[rows, permutations], shingle counts, sampling draws, whether
    there are more than `cap` shingles, the rest of which is not signed and not counted).

    A text without words has 0 shingles and datasketch's signature of the empty set.
    """
    signatures, counts, draws, capped = minhash.sign(
        *arguments(text, rows), word_rule.rule(), shingle.characters, shingle.ngram, cap, *hashes
    )
    return signatures, counts, draws, capped


def signatures(text: pa.Array, shingle: Shingle, hashes: Permutations) -> U32:
    """uint32[n, permutations]: the values of `datasketch.MinHash` over the upper 32 bits of the shingle
    hashes."""
    return sign(text, np.arange(len(text), dtype=np.int64), shingle, hashes)[0]


def shingle_sets(text: pa.Array, rows: I64, shingle: Shingle) -> tuple[I64, U64]:
    """(bounds int64[rows + 1], hashes): text `rows[i]` has the sorted 64-bit hashes bounds[i]:bounds[i +
    1]."""
    bounds, hashes = minhash.sets(*arguments(text, rows), word_rule.rule(), shingle.characters, shingle.ngram)
    return bounds, hashes


def fingerprints(text: pa.Array, rows: I64) -> tuple[U64, U64]:
    """128 bits (hi, lo) of the words of the texts at `rows`, in order; (0, 0) without words."""
    hi, lo = word_hashes.fingerprints(*arguments(text, rows), word_rule.rule())
    return hi, lo
