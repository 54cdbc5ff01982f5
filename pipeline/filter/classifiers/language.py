"""The language of documents: a model's most probable label, or, with a profile beside the model, a calibrated one.

A profile (`models/language.json`) says for each label which scripts its texts are written in, and how sure the model may be
for how many letters. With it, labels that are not written in a document's scripts are no candidates; the probability is
tempered by length (Guo et al. 2017, one temperature a length), so that of the answers with score p about p are right;
and a document of which no answer reaches `unknown` is `und`, as are codes, numbers and random letters.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers import language_kernel
from corpusmill.pipeline.filter.classifiers.model_words import Words, as_it_stands, cleaned
from corpusmill.pipeline.filter.classifiers.pieces import blank, windows_of
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.classifiers.scripts import SCRIPTS, letters_by_script
from corpusmill.pipeline.filter.text.view import Array, text_buffers

LANGUAGE_WINDOWS: Final = 10  # the language is predicted from so many windows, spread over the text,
OWN_WINDOWS: Final = 8  # or with a profile so many: documents of thirty sentences lose nothing down to six
LANGUAGE_CHARS: Final = 200  # of so many characters: bench/language.py shows what that costs
UNKNOWN: Final = "und"  # ISO 639-2: undetermined
_EVERY: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


class Profile(NamedTuple):
    """What is known of a model's labels and of its certainty."""

    scripts: Array  # uint64[labels]: bit n is script n of `SCRIPTS`
    letters: Array  # int64[lengths]: a temperature is for texts of fewer letters than this
    temperatures: Array  # float32[lengths]
    priors: Array  # float32[labels]: added to the logits
    unknown: float  # a score below it is no answer
    label: int  # the number of the label for what is no language, -1 without

    @classmethod
    def read(cls, path: Path, labels: list[str]) -> Profile:
        """The profile for a model of these labels. Raises `KeyError` if it lacks one of them."""
        known = json.loads(path.read_text(encoding="utf-8"))
        bits = [
            sum(1 << SCRIPTS.index(name) for name in known["scripts"][label])
            if label != UNKNOWN
            else int(_EVERY)
            for label in labels
        ]
        return cls(
            np.array(bits, np.uint64),
            np.array([row["letters"] for row in known["temperatures"]], np.int64),
            np.array([row["temperature"] for row in known["temperatures"]], np.float32),
            np.array([prior(known["priors"], label) for label in labels], np.float32),
            float(known["unknown"]),
            labels.index(UNKNOWN) if UNKNOWN in labels else -1,
        )


def prior(priors: dict[str, Any], label: str) -> float:
    """`priors` are {"weight": logit, "labels": "en de ..."} by name, and "others"."""
    for group in priors.values():
        if label in group.get("labels", "").split():
            return float(group["weight"])
    return float(priors["others"]["weight"]) if priors and label != UNKNOWN else 0.0


@lru_cache(maxsize=2)
def profile(path: str, labels: tuple[str, ...]) -> Profile:
    """The same, read once per process."""
    return Profile.read(Path(path), list(labels))


class Found(NamedTuple):
    """One answer a document."""

    label: Array  # int32[D]: its number, -1 without text
    score: Array  # float32[D]: its probability
    share: Array  # float32[D]: of the letters, in windows of that label; 0 where windows were not asked
    second: Array  # int32[D]: the label of most of the other windows, -1 without
    second_share: Array  # float32[D]


def identify(
    text: pa.LargeStringArray, model: Predictor, known: Profile | None, by_window: bool = False
) -> Found:
    """The language of each document, read in windows spread over it; with `by_window` of each window, too.

    With a profile, the language is that of `OWN_WINDOWS` windows, and shares are of `LANGUAGE_WINDOWS`, which are finer.
    """
    data, offsets = text_buffers(text)
    windows = _read(data, offsets, LANGUAGE_WINDOWS if known is None else OWN_WINDOWS, known)
    ranges = whole(windows.words, windows.owner)
    letters = letters_by_script(data, windows.first, windows.last, windows.owner) if known else None
    label, score = _answers(model, known, windows.words, ranges, letters)
    nothing = (ranges[:, 0] == ranges[:, 1]) | blank(data, offsets)
    label[nothing], score[nothing] = -1, 0
    none = np.zeros(len(label), np.float32)
    if not by_window:
        return Found(label, score, none, np.full(len(label), -1, np.int32), none)
    if known is not None:
        windows = _read(data, offsets, LANGUAGE_WINDOWS, known)
    counts = letters_by_script(data, windows.first, windows.last, np.arange(len(windows.first) + 1))
    own, _ = _answers(model, known, windows.words, windows.words.bounds, counts)
    shares, second, others = none.copy(), np.full(len(label), -1, np.int32), none.copy()
    _shares(own, counts.sum(axis=1), windows.owner, label, len(model.labels), shares, second, others)
    return Found(label, score, shares, second, others)


class _Windows(NamedTuple):
    words: Words  # of each window
    first: Array  # int64[windows]: where each begins
    last: Array  # int64[windows]
    owner: Array  # int64[D + 1]: windows of each document


def _read(data: Array, offsets: Array, most: int, known: Profile | None) -> _Windows:
    first, last, owner = windows_of(data, offsets, LANGUAGE_CHARS, most)
    words = as_it_stands(data, first, last) if known is None else cleaned(data, first, last)[0]
    return _Windows(words, first, last, owner)


def whole(words: Words, owner: Array) -> Array:
    """int64[D, 2]: the words of each document, over all its pieces."""
    return np.stack([words.bounds[owner[:-1], 0], words.bounds[owner[1:] - 1, 1]], axis=1)


def _answers(
    model: Predictor, known: Profile | None, words: Words, ranges: Array, counts: Array | None
) -> tuple[Array, Array]:
    """(label, score) of ranges of words; `counts` are their letters by script."""
    if known is None or counts is None:
        label, score = model.best(words, ranges)
        return label.copy(), score.copy()
    label, score = np.empty(len(ranges), np.int32), np.empty(len(ranges), np.float32)
    kept = model.kept.pop() if model.kept else language_kernel.nothing_kept(model.arrays.numbers.dim)
    language_kernel.answers(model.arrays, known, words, ranges, counts, kept, label, score)
    model.kept.append(kept)
    return label, score


@compiled
def _shares(
    own: Any, letters: Any, owner: Any, label: Any, labels: Any, shares: Any, second: Any, others: Any
) -> None:
    """Of each document: the share of letters in windows of its label, and the other label that has most, with its share."""
    count = np.zeros(labels, np.int64)
    for d in range(len(owner) - 1):
        total = np.int64(0)
        count[:] = 0
        for w in range(owner[d], owner[d + 1]):
            total += letters[w]
            if own[w] >= 0:
                count[own[w]] += letters[w]
        if total == 0 or label[d] < 0:
            continue
        shares[d] = count[label[d]] / total
        for i in range(labels):
            if i != label[d] and count[i] > 0 and (second[d] < 0 or count[i] > count[second[d]]):
                second[d] = i
        if second[d] >= 0:
            others[d] = count[second[d]] / total
