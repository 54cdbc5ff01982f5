"""Texts in, signatures and shingle sets out: the kernels behind plain functions, and `Shingling`, which calls them as the
parameters of dedup ask.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import datatrove_shingles, minhash, preset_shingles, word_hashes
from corpusmill.pipeline.text.buffers import I64, U64, arguments
from corpusmill.pipeline.text.datatrove_simplify import simple
from corpusmill.pipeline.text.minhash import NO_CAP, Permutations, add_distinct
from corpusmill.pipeline.text.winnowing import select
from corpusmill.pipeline.text.word_hashes import CHUNK
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.dedup import DedupParams

U32 = npt.NDArray[np.uint32]


class Shingle(NamedTuple):
    """`ngram` consecutive words or characters, by the word rule of `word_rule.py`."""

    ngram: int
    characters: bool = False


@lru_cache(maxsize=8)
def permutations(num_perm: int, seed: int) -> Permutations:
    """h -> a h + b modulo 2^32, a odd: those of `datasketch.MinHash(num_perm, seed, scheme="affine32")`.

    Drawn as datasketch draws them, since importing it (and SciPy, which it imports) takes each process 0.5 s.
    """
    random = np.random.RandomState(seed)
    a = random.randint(0, 1 << 31, num_perm, np.uint32) * np.uint32(2) + np.uint32(1)
    return Permutations(a, random.randint(0, 1 << 32, num_perm, np.uint32))


def sign(
    text: pa.Array, rows: I64, shingle: Shingle, hashes: Permutations, cap: int = NO_CAP
) -> tuple[U32, I64, U64, npt.NDArray[np.bool_]]:
    """Of the texts at `rows`: (signatures uint32[rows, permutations], shingle counts, sampling draws, whether
    there are more than `cap` shingles, the rest of which is not signed and not counted).

    A text without words has 0 shingles and datasketch's signature of the empty set.
    """
    signatures, counts, draws, capped = minhash.sign(
        *arguments(text, rows), rule(), shingle.characters, shingle.ngram, cap, *hashes
    )
    return signatures, counts, draws, capped


def signatures(text: pa.Array, shingle: Shingle, hashes: Permutations) -> U32:
    """uint32[n, permutations]: the values of `datasketch.MinHash` over the upper 32 bits of the shingle hashes."""
    return sign(text, np.arange(len(text), dtype=np.int64), shingle, hashes)[0]


@compiled
def _sets(
    offsets: Any, data: Any, rows: Any, ours: Any, theirs: Any, characters: bool, ngram: int, window: int
) -> Any:
    """Kernel of `shingle_sets` (`window` 0) and `winnow`; `theirs` is None, or the table of datatrove's words."""
    bounds = np.zeros(len(rows) + 1, np.int64)
    buffer, scratch = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    found, queue = np.empty(CHUNK, np.uint64), np.empty(window, np.int64)
    end = 0
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        if theirs is None:
            buffer, count = minhash.ordered(data, start, stop, ours, characters, ngram, buffer)
        else:
            buffer, count = datatrove_shingles.ordered(data, start, stop, theirs, ngram, buffer)
        if window:
            count = select(buffer, count, window, queue)
        scratch, found, end = add_distinct(buffer, count, scratch, found, end)
        bounds[k + 1] = end
    return bounds, found[:end].copy()


def shingle_sets(text: pa.Array, rows: I64, shingle: Shingle, datatrove: bool = False) -> tuple[I64, U64]:
    """(bounds int64[rows + 1], hashes): text `rows[i]` has the distinct 64-bit hashes of its shingles, ascending, at
    bounds[i]:bounds[i + 1]. `datatrove`: those of the preset, of words."""
    theirs = simple() if datatrove else None
    bounds, hashes = _sets(*arguments(text, rows), rule(), theirs, shingle.characters, shingle.ngram, 0)
    return bounds, hashes


def winnow(
    text: pa.Array, rows: I64, shingle: Shingle, window: int, datatrove: bool = False
) -> tuple[I64, U64]:
    """As `shingle_sets`, of the hashes that winnowing selects. `window` >= 1 counts shingles."""
    if window < 1:
        raise ValueError(f"a window of {window} shingles")
    theirs = simple() if datatrove else None
    bounds, hashes = _sets(*arguments(text, rows), rule(), theirs, shingle.characters, shingle.ngram, window)
    return bounds, hashes


def fingerprints(text: pa.Array, rows: I64) -> tuple[U64, U64]:
    """128 bits (hi, lo) of the words of the texts at `rows`, in order; (0, 0) without words."""
    hi, lo = word_hashes.fingerprints(*arguments(text, rows), rule())
    return hi, lo


class Signed(NamedTuple):
    """Of each text asked for, in order."""

    signatures: npt.NDArray[np.unsignedinteger]  # uint32 (datasketch's) or uint64 (datatrove's) [rows, perms]
    counts: I64  # shingles signed, repeats counted; 0: no words
    draws: U64  # a min-hash of the shingles that has no part in the signature: for drawing samples
    capped: npt.NDArray[np.bool_]  # the text has more shingles than `max_shingles`: the rest is not signed


class Shingling:
    """Shingles as `params` ask for them; `used` permutations, the first of `params.num_perm`."""

    def __init__(self, params: DedupParams, used: int) -> None:
        self.params, self.used = params, used
        self.shingle = Shingle(params.ngram, params.shingle == "char")
        self.datatrove = params.preset == "datatrove"
        self.own = params.preset if params.preset in preset_shingles.RULES else None
        drawn = datatrove_shingles.permutations if self.datatrove else permutations
        self.hashes = drawn(params.num_perm, params.seed).first(used)

    def sign(self, text: pa.Array, rows: I64) -> Signed:
        """Signatures of the texts at `rows` of a large_string array, of their first `max_shingles` shingles; the
        rest of a text is not read, but by the presets `code` and `short`."""
        cap = self.params.max_shingles
        if self.own is not None:
            return Signed(*preset_shingles.sign(self.own, text, rows, self.params.ngram, self.hashes, cap))
        if self.datatrove:
            return Signed(*datatrove_shingles.sign(text, rows, self.params.ngram, self.hashes, cap))
        return Signed(*sign(text, rows, self.shingle, self.hashes, cap))

    def sets(self, text: pa.Array, rows: I64) -> tuple[I64, U64]:
        """(bounds int64[rows + 1], hashes): text `rows[i]` has the distinct 64-bit hashes
        bounds[i]:bounds[i + 1], ascending. Of the whole text: the cap is for signatures only."""
        if self.own is not None:
            return preset_shingles.sets(self.own, text, rows, self.params.ngram)
        return shingle_sets(text, rows, self.shingle, self.datatrove)

    def sign_sets(self, bounds: I64, hashes: U64) -> npt.NDArray[np.unsignedinteger]:
        """The signatures of shingle sets as `sets` gives them."""
        kernels = datatrove_shingles if self.datatrove else minhash
        signatures: npt.NDArray[np.unsignedinteger] = kernels.sign_sets(bounds, hashes, *self.hashes)
        return signatures

    def winnow(self, text: pa.Array, rows: I64, window: int) -> tuple[I64, U64]:
        """(bounds int64[rows + 1], hashes): of each text the distinct shingle hashes that winnowing selects,
        ascending: members of its set, such that two texts with a common run of `window` shingles
        or more have one in common."""
        if self.own is not None:
            return preset_shingles.sets(self.own, text, rows, self.params.ngram, window)
        return winnow(text, rows, self.shingle, window, self.datatrove)

    def fingerprints(self, text: pa.Array, rows: I64) -> tuple[U64, U64]:
        """128 bits (hi, lo) of each text's words alone, whatever case, punctuation and spelling, and whatever
        the shingles and the preset: for `normalized`. (0, 0) for a text without words."""
        return fingerprints(text, rows)
