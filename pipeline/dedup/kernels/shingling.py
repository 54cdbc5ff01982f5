"""What the rest of the stage knows of shingles: texts in, signatures and shingle sets out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.dedup.kernels import kernel
from pipeline.dedup.kernels.shingles import Shingle, permutations, shingle_sets, sign
from schemas.dedup import DedupParams

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Signed(NamedTuple):
    """Of each text asked for, in order."""

    signatures: npt.NDArray[np.unsignedinteger]  # uint32 (datasketch's) or uint64 (datatrove's) [rows, perms]
    counts: I64  # shingles of the text, repeats counted; 0: no words
    draws: U64  # a min-hash of the shingles that the signature knows nothing of: for drawing samples
    capped: npt.NDArray[np.bool_]  # the text has more shingles than `max_shingles`: the rest is not signed


class Shingling:
    """Shingles as `params` ask for them; `used` permutations, the first of `params.num_perm`."""

    def __init__(self, params: DedupParams, used: int) -> None:
        self.params, self.used = params, used
        self.hashes = permutations(params.num_perm, params.seed).first(used)

    def sign(self, text: pa.Array, rows: I64) -> Signed:
        """Signatures of the texts at `rows` of a large_string array."""
        signatures, counts, draws = sign(text, rows, Shingle(self.params.ngram), self.hashes)
        return Signed(signatures, counts, draws, counts > self.params.max_shingles)

    def sets(self, text: pa.Array, rows: I64) -> tuple[I64, U64]:
        """(bounds int64[rows + 1], hashes): text `rows[i]` has the distinct 64-bit hashes
        bounds[i]:bounds[i + 1], ascending. Of the whole text: the cap is for signatures only."""
        return shingle_sets(text, rows, Shingle(self.params.ngram))

    def sign_sets(self, bounds: I64, hashes: U64) -> npt.NDArray[np.unsignedinteger]:
        """The signatures of shingle sets as `sets` gives them."""
        return kernel.sign_sets(bounds, hashes, *self.hashes)

    def fingerprints(self, text: pa.Array, rows: I64) -> tuple[U64, U64]:
        """128 bits (hi, lo) of each text's words alone, whatever case, punctuation and spelling: for
        `normalized`. (0, 0) for a text without words."""
        raise NotImplementedError
