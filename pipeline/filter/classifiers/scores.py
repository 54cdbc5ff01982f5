"""Language, toxicity and quality scores. Here alone is a Python string per document: fastText asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.filter.classifiers import fasttext_model
from schemas.signals import SignalSpec

LANGUAGE_CHARS: Final = 2_000  # the language is read off the first so many characters
WINDOW_CHARS: Final = 400  # a classifier sees text in windows of about 60 words: what it was trained on
MAX_WINDOWS: Final = 50  # of a longer document, so many windows evenly spread
WORST: Final = 0.1  # toxicity is the mean of the worst tenth of the windows, of one at least

SPECS: Final = (
    SignalSpec(
        name="language.code", dtype="string", unit="ISO 639 code", range=(None, None),
        origin="fastText lid.176, Joulin et al. 2017, on the first 2,000 characters",
    ),
    SignalSpec(
        name="language.score", dtype="float", unit="probability", range=(0.0, 1.0),
        origin="fastText lid.176, Joulin et al. 2017, on the first 2,000 characters",
    ),
    SignalSpec(
        name="toxicity.score", dtype="float", unit="probability", range=(0.0, 1.0),
        origin="pipeline/filter/models/toxicity.md: mean of the worst tenth of windows of 400 characters",
    ),
    SignalSpec(
        name="quality.score", dtype="float", unit="probability", range=(0.0, 1.0),
        origin="pipeline/filter/models/quality.md: mean of windows of 400 characters",
    ),
)  # fmt: skip

# Addresses, mentions, entities and punctuation say who wrote where, not what: they are left out.
_NOISE = r"(?:https?://\S+|[@&][\w#]*;?|'*[^\p{L}\p{N}\p{M}'@&]+'*)+"


def languages(text: pa.LargeStringArray, model: Any) -> tuple[list[str | None], npt.NDArray[np.float32]]:
    """(code, probability) of each document's most probable language; (None, 0) where there is no text."""
    start = pc.utf8_slice_codeunits(text, 0, LANGUAGE_CHARS)
    lines = pc.utf8_trim_whitespace(pc.replace_substring_regex(start, r"\s+", " ")).to_pylist()
    codes: list[str | None] = []
    scores = np.zeros(len(lines), np.float32)
    for row, line in enumerate(lines):
        best = fasttext_model.predict(model, line, 1) if line else []
        codes.append(best[0][1] if best else None)
        scores[row] = best[0][0] if best else 0.0
    return codes, scores


def windows(texts: Sequence[str]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """(normalised windows of all texts, offsets[D + 1] of each text's): what classifiers learn from and
    score.

    A text of more than `WINDOW_CHARS` is cut at white space into windows of about that length, evenly spread
    if they would be more than `MAX_WINDOWS`; normalising puts it in lower case and keeps letters, digits,
    marks and apostrophes. A text without any has no window.
    """
    cut: list[str] = []
    ends = []
    for text in texts:
        cut.extend(_windows(text))
        ends.append(len(cut))
    clean = normalised(pa.array(cut, pa.string()))
    blank = np.asarray(pc.equal(clean, ""))
    offsets = np.concatenate([[0], np.asarray(ends, np.int64)])
    before = np.concatenate([[0], np.cumsum(~blank)]).astype(np.int64)
    return clean.filter(pa.array(~blank)), before[offsets.astype(np.int64)]


def normalised(text: pa.Array) -> pa.Array:
    """Lower case, words parted by one space, nothing else."""
    return pc.utf8_trim(pc.replace_substring_regex(pc.utf8_lower(text), _NOISE, " "), " '")


def window_scores(clean: pa.Array, model: Any, label: str) -> npt.NDArray[np.float64]:
    """The probability of `label` in each window, 0 where the model does not know a word."""
    scores = np.zeros(len(clean), np.float64)
    every = len(fasttext_model.labels(model))
    for row, line in enumerate(clean.to_pylist()):
        for probability, name in fasttext_model.predict(model, line, every):
            if name == label:
                scores[row] = probability
    return scores


def mean_scores(scores: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Mean of each document's windows; 0 without windows."""
    return _pooled(scores, offsets, 1.0)


def worst_scores(scores: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Mean of the highest `WORST` of each document's windows, of one at least; 0 without windows.

    A short text is its worst window; a book is not condemned by one sentence of a villain.
    """
    return _pooled(scores, offsets, WORST)


def _pooled(
    scores: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], part: float
) -> npt.NDArray[np.float32]:
    out = np.zeros(len(offsets) - 1, np.float32)
    for row in range(len(out)):
        own = np.sort(scores[offsets[row] : offsets[row + 1]])[::-1]
        if len(own):
            out[row] = own[: int(np.ceil(len(own) * part))].mean()
    return np.minimum(out, np.float32(1.0))


def _windows(text: str) -> list[str]:
    if len(text) <= WINDOW_CHARS:
        return [text]
    count = min(MAX_WINDOWS, -(-len(text) // WINDOW_CHARS))
    step = len(text) / count
    edges = [_edge(text, round(i * step)) for i in range(count + 1)]
    if step <= WINDOW_CHARS:
        return [text[a:b] for a, b in pairwise(edges)]
    return [text[a : max(a, _edge(text, min(a + WINDOW_CHARS, b)))] for a, b in pairwise(edges)]


def _edge(text: str, place: int) -> int:
    """The next white space at or after `place`, near it: a word cut in two may be another word."""
    if place <= 0 or place >= len(text):
        return min(max(place, 0), len(text))
    for i in range(place, min(place + 40, len(text))):
        if text[i].isspace():
            return i
    return place
