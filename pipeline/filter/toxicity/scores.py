"""The signals of the toxicity model for a batch of documents."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.pieces import sentences_of, windows_of
from corpusmill.pipeline.filter.classifiers.pooling import (
    MAX_WINDOWS,
    WINDOW_CHARS,
    Form,
    Pool,
    by_sentence,
    pooled,
)
from corpusmill.pipeline.filter.text.view import Array, text_buffers
from corpusmill.pipeline.filter.toxicity.model import NAMES, ToxicityModel
from corpusmill.pipeline.filter.toxicity.tokens import Tokens, tokens
from corpusmill.schemas.filter import KNOWN_WORDS

TOXIC: Final = NAMES[0]
LABELLED: Final = NAMES[1:]


def measured(text: pa.LargeStringArray, model: ToxicityModel, form: Form = "windows") -> dict[str, Array]:
    """Signal -> float32[D]: `toxicity.score` and one of each other label, pooled over windows; the worst sentence and the share
    of toxic ones; and the share of the words that the model knows, which says how far to trust the others."""
    data, offsets = text_buffers(text)
    first, last, owner = _pieces(data, offsets, form)
    found = tokens(data, first, last)
    sentences, of_document = sentences_of(found, first, last, owner)
    ranges, of_ranges = _with_tokens(found, owner)
    (windows, single), known = model.probabilities(found, ranges, sentences)
    out = {
        "toxicity.score" if name == TOXIC else f"toxicity.{name}": pooled(
            windows[:, label], of_ranges, "worst"
        )
        for label, name in enumerate(NAMES)
    }
    out["toxicity.worst_sentence"], out["toxicity.sentences_ratio"] = by_sentence(single[:, 0], of_document)
    out[KNOWN_WORDS] = np.empty(len(owner) - 1, np.float32)
    _known_words(found.bounds, owner, found.words, known, out[KNOWN_WORDS])
    return out


def document_scores(
    text: pa.LargeStringArray, model: ToxicityModel, label: str, pool: Pool, form: Form = "windows"
) -> Array:
    """float32[D]: the pooled probability of one label."""
    data, offsets = text_buffers(text)
    first, last, owner = _pieces(data, offsets, form)
    found = tokens(data, first, last)
    ranges, of_ranges = _with_tokens(found, owner)
    (windows,), _ = model.probabilities(found, ranges)
    return pooled(windows[:, NAMES.index(label)], of_ranges, pool)


def _with_tokens(found: Tokens, owner: Array) -> tuple[Array, Array]:
    """(the windows that hold a token, which of them are each document's)."""
    some = found.bounds[:, 0] < found.bounds[:, 1]
    return found.bounds[some], np.concatenate([[0], np.cumsum(some)])[owner]


@compiled
def _known_words(bounds: Any, owner: Any, words: Any, known: Any, share: Any) -> None:
    for d in range(len(owner) - 1):
        count, own = 0, 0
        for w in range(owner[d], owner[d + 1]):
            for t in range(bounds[w, 0], bounds[w, 1]):
                count += words[t]
                own += known[t] & words[t]
        share[d] = own / max(count, 1)


def _pieces(data: Array, offsets: Array, form: Form) -> tuple[Array, Array, Array]:
    if form == "text":
        return offsets[:-1], offsets[1:], np.arange(len(offsets))
    return windows_of(data, offsets, WINDOW_CHARS, MAX_WINDOWS)
