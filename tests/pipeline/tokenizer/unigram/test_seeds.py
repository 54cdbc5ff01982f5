"""The pieces that training begins with, against all substrings counted one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer.unigram.seeds import LEAST, LONGEST, seeds
from corpusmill.pipeline.tokenizer.words import Words


def words(counts: dict[str, int]) -> Words:
    data = sorted((word.encode(), count) for word, count in counts.items())
    bounds = np.cumsum([0, *(len(word) for word, _ in data)], dtype=np.int64)
    joined = np.frombuffer(b"".join(word for word, _ in data), np.uint8)
    return Words(joined, bounds, np.array([count for _, count in data], np.int64))


def by_hand(counts: dict[str, int], longest: int | None) -> dict[bytes, float]:
    """Substrings of words with their weights: those always followed by the same character left out."""
    found: Counter[str] = Counter()
    after: dict[str, Counter[str]] = {}
    for word, count in counts.items():
        for i in range(len(word)):
            for k in range(i + 1, min(len(word), i + LONGEST) + 1):
                found[word[i:k]] += count
                if k < len(word) and k - i < LONGEST:
                    after.setdefault(word[i:k], Counter())[word[i : k + 1]] += count
    kept = {}
    for piece, count in found.items():
        maximal = len(piece) == 1 or count not in after.get(piece, Counter()).values()
        size = len(piece.encode())
        if count >= LEAST and maximal and 1 < size <= (longest or size):
            kept[piece.encode()] = float(count * len(piece))
    return kept


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(alphabet="abcé日", min_size=1, max_size=20), st.integers(1, 5), max_size=8),
    st.sampled_from([None, 2, 5]),
)
def test_seeds_are_the_substrings_that_occur_twice(counts: dict[str, int], longest: int | None) -> None:
    pieces, weights = seeds(words(counts), longest)
    assert pieces == sorted(pieces) and {bytes([byte]) for byte in range(256)} <= set(pieces)
    found = {piece: float(w) for piece, w in zip(pieces, weights, strict=True) if len(piece) > 1}
    assert found == by_hand(counts, longest)


def test_the_longer_one_stands_for_what_always_goes_on() -> None:
    pieces, _ = seeds(words({"quick": 3, " quick": 2, "quack": 1}), None)
    long = {piece for piece in pieces if len(piece) > 1}
    assert b"quick" in long and b"qu" in long and not {b"qui", b"quic"} & long


def test_of_too_many_the_heaviest_stay() -> None:
    counts = {"aaab": 9, "cccd": 5, "eeef": 2}
    pieces, _ = seeds(words(counts), None, most=2)
    weights = by_hand(counts, None)
    assert sorted(weights[piece] for piece in pieces if len(piece) > 1) == sorted(weights.values())[-2:]
