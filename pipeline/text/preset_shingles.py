"""The presets that have units of their own: `code` (`code_shingles.py`) and `short` (`short_shingles.py`).

Their kernels give the shingles of some texts in order; from there all is as for words. Min-hashes are those of
`minhash.py` over the upper 32 bits of the shingle hashes, so that `datasketch.MinHash(scheme="affine32")` can hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import code_lexer, code_shingles, minhash, short_shingles, word_rule
from corpusmill.pipeline.text.buffers import I64, U64, arguments, frozen
from corpusmill.pipeline.text.code_marks import lexicon
from corpusmill.pipeline.text.minhash import Permutations, add_distinct
from corpusmill.pipeline.text.winnowing import select
from corpusmill.pipeline.text.word_hashes import CHUNK, mix64

BYTES = 16 << 20  # of text whose shingles are in memory at once, unless one text is longer
RULES = {
    "code": f"code-{code_lexer.RULE}",
    "short": f"short-{short_shingles.RULE}/{word_rule.RULE}",
}


def _runs(preset: str, text: pa.Array, rows: I64, ngram: int) -> Iterator[tuple[I64, U64]]:
    """(bounds, hashes) of the shingles in order, repeats among them, of some of the rows at a time."""
    offsets, data, rows = arguments(text, rows)
    ends = np.cumsum(offsets[rows + 1] - offsets[rows]) if len(rows) else np.zeros(0, np.int64)
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BYTES, side="right")))
        some = frozen(rows[first:last])
        if preset == "code":
            yield code_shingles.runs(offsets, data, some, lexicon(), ngram)
        else:
            yield short_shingles.runs(offsets, data, some, word_rule.rule(), ngram)
        first = last


@compiled
def _signed(
    bounds: Any, hashes: Any, cap: int, signatures: Any, counts: Any, draws: Any, a: Any, b: Any
) -> None:
    """Signatures (all `NO_HASH` before), counts and draws, as `minhash.sign` gives them, of the first `cap` shingles."""
    for k in range(len(counts)):
        some = hashes[bounds[k] : min(bounds[k + 1], bounds[k] + cap)]
        minhash.min_hash(some, len(some), a, b, signatures[k])
        low = minhash.NO_DRAW
        for value in some:
            low = min(low, value & minhash.NO_DRAW)
        counts[k], draws[k] = len(some), mix64(low)


@compiled
def _selected(bounds: Any, hashes: Any, window: int) -> Any:
    """(bounds, hashes) of the distinct shingles of each text, ascending; of those that winnowing selects, with a `window`."""
    ends = np.zeros(len(bounds), np.int64)
    scratch, found = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    queue = np.empty(window, np.int64)
    end = 0
    for k in range(len(bounds) - 1):
        some = hashes[bounds[k] : bounds[k + 1]]
        count = len(some)
        if window:
            count = select(some, count, window, queue)
        scratch, found, end = add_distinct(some, count, scratch, found, end)
        ends[k + 1] = end
    return ends, found[:end].copy()


def sign(
    preset: str, text: pa.Array, rows: I64, ngram: int, permutations: Permutations, cap: int
) -> tuple[npt.NDArray[np.uint32], I64, U64, npt.NDArray[np.bool_]]:
    """As `shingling.sign`."""
    signatures = np.full((len(rows), len(permutations.a)), minhash.NO_HASH, np.uint32)
    counts, draws = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.uint64)
    capped = np.zeros(len(rows), np.bool_)
    first = 0
    for bounds, hashes in _runs(preset, text, rows, ngram):
        some = slice(first, first + len(bounds) - 1)
        _signed(bounds, hashes, cap, signatures[some], counts[some], draws[some], *permutations)
        capped[some] = np.diff(bounds) > cap
        first = some.stop
    return signatures, counts, draws, capped


def sets(preset: str, text: pa.Array, rows: I64, ngram: int, window: int = 0) -> tuple[I64, U64]:
    """As `shingling.shingle_sets`, or `shingling.winnow` with a `window`."""
    all_bounds, all_hashes = [np.zeros(1, np.int64)], [np.zeros(0, np.uint64)]
    for bounds, hashes in _runs(preset, text, rows, ngram):
        ends, found = _selected(bounds, hashes, window)
        all_bounds.append(ends[1:] + all_bounds[-1][-1])
        all_hashes.append(found)
    return np.concatenate(all_bounds), np.concatenate(all_hashes)
