"""The same search in plain Python, over words as `place_words` cuts them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpusmill.pipeline.text.word_hashes import most_words, place_words
from corpusmill.pipeline.text.word_rule import rule


class Word(NamedTuple):
    hash: int
    start: int  # characters
    stop: int
    paragraph: int


def words(text: str) -> list[Word]:
    """The words of a text with their places in characters."""
    raw = text.encode()
    data = np.frombuffer(raw, np.uint8)
    arrays = [np.zeros(most_words(len(raw)), kind) for kind in (np.uint64, np.int64, np.int64, np.int32)]
    count = place_words(data, 0, len(raw), rule(), *arrays)
    hashes, starts, ends, paragraphs = (array[:count].tolist() for array in arrays)
    return [
        Word(h, len(raw[:a].decode()), len(raw[:b].decode()), p)
        for h, a, b, p in zip(hashes, starts, ends, paragraphs, strict=True)
    ]


def runs(found: list[Word], length: int) -> list[tuple[int, ...]]:
    """All runs of `length` hashes."""
    return [tuple(w.hash for w in found[i : i + length]) for i in range(len(found) - length + 1)]


def share(question: str, text: str, ngram: int) -> float:
    """Distinct n-grams of a question that stand in a text; of a shorter one, whether all of it stands there."""
    wanted, have = words(question), words(text)
    length = min(ngram, len(wanted))
    mine, theirs = set(runs(wanted, length)), set(runs(have, length))
    return len(mine & theirs) / len(mine) if mine else 0.0


def covered(question: str, text: str, ngram: int) -> float:
    """Share of a question's words that lie in one of its n-grams that stands in a text. Of an n-gram that the question
    repeats, the first place counts."""
    wanted, have = words(question), words(text)
    length = min(ngram, len(wanted))
    mine, theirs = runs(wanted, length), set(runs(have, length))
    first = {run: i for i, run in reversed(list(enumerate(mine)))}

    def lies(chosen: list[int]) -> int:
        return len({i + k for i in chosen for k in range(length)})

    return lies([i for run, i in first.items() if run in theirs]) / lies(list(first.values()))
