"""From the scores of a document's windows and sentences to those of the document."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array

Pool = Literal["worst", "mean"]
Form = Literal["windows", "text"]

WINDOW_CHARS: Final = 400  # a classifier sees text in windows of about 60 words: what it was trained on
MAX_WINDOWS: Final = 50  # of a longer document, so many windows evenly spread
WORST: Final = 0.1  # toxicity is the mean of the worst tenth of the windows, of one at least
TOXIC_SENTENCE: Final = 0.4  # Dolma removes sentences from this probability on


def pooled(scores: Array, owner: Array, pool: Pool) -> Array:
    """float32[D]: the mean of each document's scores, or of the highest `WORST` of them, of one at least; 0 without.

    A short text is scored by its worst window; one toxic passage does not remove a whole book.
    """
    out = np.zeros(len(owner) - 1, np.float32)
    _pool(scores.astype(np.float64), owner, WORST if pool == "worst" else 1.0, out)
    return out


def by_sentence(scores: Array, owner: Array) -> tuple[Array, Array]:
    """(float32[D] the worst sentence, float32[D] the share of those of `TOXIC_SENTENCE` and more) of each document; 0 without."""
    worst, share = np.zeros(len(owner) - 1, np.float32), np.zeros(len(owner) - 1, np.float32)
    _worst(scores, owner, np.float32(TOXIC_SENTENCE), worst, share)
    return worst, share


@compiled
def _pool(scores: Any, owner: Any, part: Any, out: Any) -> None:
    for d in range(len(owner) - 1):
        count = owner[d + 1] - owner[d]
        if count == 0:
            continue
        own = np.sort(scores[owner[d] : owner[d + 1]])
        few = np.int64(np.ceil(count * part))
        total = 0.0
        for k in range(count - few, count):
            total += own[k]
        out[d] = min(total / few, 1.0)


@compiled
def _worst(scores: Any, owner: Any, limit: Any, worst: Any, share: Any) -> None:
    for d in range(len(owner) - 1):
        above = 0
        for s in range(owner[d], owner[d + 1]):
            worst[d] = max(worst[d], scores[s])
            above += scores[s] >= limit
        if owner[d + 1] > owner[d]:
            share[d] = above / (owner[d + 1] - owner[d])
