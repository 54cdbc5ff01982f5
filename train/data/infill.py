"""Fill in the middle (Bavarian et al. 2022, "Efficient training of language models to fill in the middle").

A document, or the part of one that a row has, is cut at two places into prefix, middle and suffix, and read as `<prefix> prefix <suffix>
suffix <middle> middle` (PSM), or as `<prefix> <suffix> suffix <middle> prefix middle` (SPM): a model that predicts the next token then
learns to fill a gap from both of its sides. Rows keep their length, so a rearranged part gives up its last three tokens, those farthest
behind the gap, for the three special ones; an end of text stays the last. Special tokens are no labels: they are given
where a middle is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.masking import PARTS, uniform
from corpusmill.train.data.pack import IGNORED, Rows
from corpusmill.train.data.shuffle import key_of, keys_of

if TYPE_CHECKING:
    from corpusmill.schemas.masking import InfillConfig

Ints = npt.NDArray[np.int64]
SHORTEST = 8  # tokens of a part that is rearranged, without the end of text


class Infill:
    """Rows of text into rows of which some documents are rearranged. `tokens`: the ids of prefix, suffix and middle token; `seed`: of the
    run."""

    def __init__(self, config: InfillConfig, tokens: tuple[int, int, int], eos: int, seed: int) -> None:
        self.config, self.tokens, self.eos = config, tokens, eos
        self._key = partial(key_of, seed, "infill")

    def __call__(self, rows: Rows, numbers: Ints, parts: Ints) -> Rows:
        """A pure function of the seed, the sequence of each row (`numbers`, int64 [B]) and its place in it (`parts`)."""
        return self._rearranged(rows, numbers, parts, self._key, False)

    def middles(self, rows: Rows, numbers: Ints, parts: Ints) -> Rows:
        """All documents rearranged, whatever the seed in the same way; the middles and their ends are the only labels: how well gaps
        are filled."""
        return self._rearranged(rows, numbers, parts, partial(key_of, 0, "infill"), True)

    def _rearranged(
        self, rows: Rows, numbers: Ints, parts: Ints, key: Callable[..., int], middles: bool
    ) -> Rows:
        shape = rows.labels.shape
        starts = rows.marks().cu_seqlens.astype(np.int64)
        first, size = starts[:-1], np.diff(starts)
        row = first // shape[1]
        old = np.ascontiguousarray(rows.labels).ravel()
        ends = old[first + size - 1] == self.eos
        body = size - ends - 3  # tokens that stay
        keys = keys_of(key("document"), (numbers * PARTS + parts)[row])
        keys = keys_of(key("place"), keys + (first - row * shape[1]).astype(np.uint64))
        draw = {name: uniform(keys_of(key(name), keys)) for name in ("taken", "order", "low", "high")}
        taken = (body + 3 >= SHORTEST) & (middles | (draw["taken"] < self.config.rate))
        taken &= np.logical_and.reduceat(old != IGNORED, first)  # no padding
        spm = draw["order"] < self.config.suffix_first
        cuts = np.sort(
            np.stack([np.floor(draw[name] * (body + 1)) for name in ("low", "high")]).astype(np.int64), axis=0
        )
        # Of each position: its document, and its place in it.
        of = np.repeat(np.arange(len(first)), size)
        place = np.arange(len(old)) - first[of]
        a, b, m = cuts[0][of], cuts[1][of], body[of]
        spm, inside = spm[of], taken[of] & (place < m + 3)
        after = m - b  # tokens of the suffix
        # (place of the suffix token, of the middle token), and what lies between and behind them.
        suffix = np.where(spm, 1, a + 1)
        middle = suffix + after + 1
        source = np.where(place < suffix, place - 1, np.where(place < middle, b + place - suffix - 1, 0))
        behind = place - middle - 1 + np.where(spm, 0, a)
        source = np.where(place > middle, behind, source)
        special = inside & ((place == 0) | (place == suffix) | (place == middle))
        new = np.where(inside & ~special, old[first[of] + np.where(inside & ~special, source, 0)], old)
        for token, where in zip(self.tokens, (0, suffix, middle), strict=True):
            new = np.where(inside & (place == where), token, new)
        tokens = np.ascontiguousarray(rows.tokens).ravel().copy()
        follows = np.flatnonzero(taken[of] & (place > 0))
        tokens[follows] = new[follows - 1]
        unlabelled = special
        if middles:
            at_gap = place > np.where(spm, middle + a, middle)
            unlabelled = ~(taken[of] & at_gap)
        labels = np.where(unlabelled, IGNORED, new)
        return replace(rows, tokens=tokens.reshape(shape), labels=labels.reshape(shape))
