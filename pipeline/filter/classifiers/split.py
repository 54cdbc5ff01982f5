"""Which texts are kept from training, so that a near copy of one that is learnt from does not judge the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.text.view import text_buffers

Array = npt.NDArray[Any]

RUN: Final = 4  # words: what two texts are compared by
COPY: Final = 0.5  # of a text's runs: with more of them in the training part it is a copy

_MIX = np.uint64(0x9E3779B97F4A7C15)


def held_out(texts: Sequence[str], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """bool[texts]: about `share` of them, by the seed and the lowest hash of a text's runs of four words.

    So equal texts are on one side, and near copies are as often as they share their runs (min-wise hashing,
    Broder 1997), whatever their case and punctuation.
    """
    runs, offsets = runs_of(texts)
    side = np.empty(len(texts), np.float64)
    _sides(runs, offsets, np.uint64(seed), side)
    return side < share


def copies(texts: Sequence[str], learnt: Array) -> npt.NDArray[np.bool_]:
    """bool[texts]: whether more than `COPY` of a text's runs are among `learnt`, the hashes of the training part's."""
    runs, offsets = runs_of(texts)
    before = np.concatenate([[0], np.cumsum(np.isin(runs, learnt))])
    shared, every = before[offsets[1:]] - before[offsets[:-1]], np.diff(offsets)
    return np.asarray((shared > COPY * every) & (every > 0))


def runs_of(texts: Sequence[str]) -> tuple[Array, Array]:
    """(uint64 hashes of every run of four words, int64[texts + 1]); a shorter text is one run, an empty one none."""
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    words, _ = cleaned(data, offsets[:-1], offsets[1:])
    count = np.diff(words.bounds, axis=1)[:, 0]
    ends = np.concatenate([[0], np.cumsum(np.minimum(count, np.maximum(count - RUN + 1, 1)))]).astype(
        np.int64
    )
    runs = np.empty(ends[-1], np.uint64)
    _runs(words.hashes, words.bounds, ends, runs)
    return runs, ends


@compiled
def _runs(hashes: Any, bounds: Any, ends: Any, runs: Any) -> None:
    for d in range(len(bounds)):
        for r in range(ends[d + 1] - ends[d]):
            first = bounds[d, 0] + r
            h = np.uint64(0)
            for w in range(first, min(first + RUN, bounds[d, 1])):
                h = (h ^ np.uint64(hashes[w])) * _MIX
                h ^= h >> np.uint64(29)
            runs[ends[d] + r] = h


@compiled
def _sides(runs: Any, offsets: Any, seed: Any, side: Any) -> None:
    for d in range(len(side)):
        least = np.uint64(0xFFFFFFFFFFFFFFFF)
        for r in range(offsets[d], offsets[d + 1]):
            least = min(least, runs[r])
        # The lowest hash says nothing else than which texts belong together: it is mixed anew for the side.
        h = (least ^ (seed + np.uint64(1)) * _MIX) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        side[d] = np.float64((h ^ (h >> np.uint64(33))) >> np.uint64(11)) / 9007199254740992.0
