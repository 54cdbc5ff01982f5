"""What the rest of the stage knows of shingles: texts in, signatures and shingle sets out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.text import datatrove_shingles, minhash, shingles, winnowing
from corpusmill.pipeline.text.shingles import I64, U64, Shingle
from corpusmill.schemas.dedup import DedupParams


class Signed(NamedTuple):
    """Of each text asked for, in order."""

    signatures: npt.NDArray[np.unsignedinteger]  # uint32 (datasketch's) or uint64 (datatrove's) [rows, perms]
    counts: I64  # shingles signed, repeats counted; 0: no words
    draws: U64  # a min-hash of the shingles that the signature knows nothing of: for drawing samples
    capped: npt.NDArray[np.bool_]  # the text has more shingles than `max_shingles`: the rest is not signed


class Shingling:
    """Shingles as `params` ask for them; `used` permutations, the first of `params.num_perm`."""

    def __init__(self, params: DedupParams, used: int) -> None:
        self.params, self.used = params, used
        self.shingle = Shingle(params.ngram, params.shingle == "char")
        if params.preset == "datatrove":
            self.hashes: Any = datatrove_shingles.permutations(params.num_perm, params.seed).first(used)
        else:
            self.hashes = shingles.permutations(params.num_perm, params.seed).first(used)

    def sign(self, text: pa.Array, rows: I64) -> Signed:
        """Signatures of the texts at `rows` of a large_string array, of their first `max_shingles` shingles; the
        rest of a text is not read."""
        cap = self.params.max_shingles
        if self.params.preset == "datatrove":
            return Signed(*datatrove_shingles.sign(text, rows, self.params.ngram, self.hashes, cap))
        return Signed(*shingles.sign(text, rows, self.shingle, self.hashes, cap))

    def sets(self, text: pa.Array, rows: I64) -> tuple[I64, U64]:
        """(bounds int64[rows + 1], hashes): text `rows[i]` has the distinct 64-bit hashes
        bounds[i]:bounds[i + 1], ascending. Of the whole text: the cap is for signatures only."""
        if self.params.preset == "datatrove":
            return datatrove_shingles.shingle_sets(text, rows, self.params.ngram)
        return shingles.shingle_sets(text, rows, self.shingle)

    def sign_sets(self, bounds: I64, hashes: U64) -> npt.NDArray[np.unsignedinteger]:
        """The signatures of shingle sets as `sets` gives them."""
        room = datatrove_shingles if self.params.preset == "datatrove" else minhash
        signatures: npt.NDArray[np.unsignedinteger] = room.sign_sets(bounds, hashes, *self.hashes)
        return signatures

    def winnow(self, text: pa.Array, rows: I64, window: int) -> tuple[I64, U64]:
        """(bounds int64[rows + 1], hashes): of each text the distinct shingle hashes that winnowing selects,
        ascending (`winnowing.py`): members of its set, such that two texts with a common run of `window` shingles
        or more have one in common."""
        return winnowing.winnow(text, rows, self.shingle, window, self.params.preset == "datatrove")

    def fingerprints(self, text: pa.Array, rows: I64) -> tuple[U64, U64]:
        """128 bits (hi, lo) of each text's words alone, whatever case, punctuation and spelling, and whatever
        the shingles and the preset: for `normalized`. (0, 0) for a text without words."""
        return shingles.fingerprints(text, rows)
