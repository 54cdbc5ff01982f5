"""Expected occurrences, likeliest ways and losses, against all ways written out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer.unigram.kernels import expect, losses, occurrences
from corpusmill.pipeline.tokenizer.unigram.learn import _Pieces
from tests.pipeline.tokenizer.unigram.test_seeds import words

LETTERS = [bytes([byte]) for byte in range(256)]
LONGER = [b"ab", b"abc", b"bc", b"ca", b"aa"]


def pieces(scores: dict[bytes, float]) -> _Pieces:
    names = sorted([*LETTERS, *(piece for piece in scores if len(piece) > 1)])
    return _Pieces(names, np.array([scores.get(name, -6.0) for name in names]))


def ways(word: bytes, known: dict[bytes, float]) -> Iterator[list[bytes]]:
    """All ways to make a word of pieces."""
    if not word:
        yield []
    for size in range(1, len(word) + 1):
        if word[:size] in known:
            yield from ([word[:size], *rest] for rest in ways(word[size:], known))


SCORES = st.fixed_dictionaries({piece: st.floats(-8, -0.5) for piece in [*LONGER, b"a", b"b", b"c"]})
COUNTS = st.dictionaries(
    st.text(alphabet="abc", min_size=1, max_size=7), st.integers(1, 4), min_size=1, max_size=4
)


@settings(max_examples=100, deadline=None)
@given(SCORES, COUNTS)
def test_expected_occurrences_are_those_of_all_ways(
    scores: dict[bytes, float], counts: dict[str, int]
) -> None:
    known, text = pieces(scores), words(counts)
    expected = np.zeros(len(known.pieces))
    likelihood = expect(text.data, text.bounds, text.counts, known.units, known.scores, expected)
    wanted, total = dict.fromkeys(known.pieces, 0.0), 0.0
    for word, count in counts.items():
        rows = [(way, math.exp(sum(scores[piece] for piece in way))) for way in ways(word.encode(), scores)]
        whole = sum(chance for _, chance in rows)
        total += count * math.log(whole)
        for way, chance in rows:
            for piece in way:
                wanted[piece] += count * chance / whole
    assert likelihood == pytest.approx(total)
    assert expected.tolist() == pytest.approx([wanted[piece] for piece in known.pieces])


@settings(max_examples=100, deadline=None)
@given(SCORES, COUNTS)
def test_losses_are_of_the_likeliest_ways(scores: dict[bytes, float], counts: dict[str, int]) -> None:
    known, text = pieces(scores), words(counts)
    found, lost = np.zeros(len(known.pieces)), np.empty(len(known.pieces))
    occurrences(text.data, text.bounds, text.counts, known.units, known.scores, found)
    number = {piece: float(n) for piece, n in zip(known.pieces, found, strict=True)}

    def best(word: bytes, without: bytes = b"") -> list[bytes]:
        left = {piece: score for piece, score in scores.items() if piece != without}
        return max(ways(word, left), key=lambda way: sum(scores[piece] for piece in way))

    value = sum(scores[piece] * number[piece] for piece in scores)
    wanted = sum(n * sum(scores[p] for p in best(word.encode())) for word, n in counts.items())
    assert value == pytest.approx(wanted)
    losses(known.data, known.bounds, known.units, known.scores, found, lost)
    total = found.sum()
    for piece, loss in zip(known.pieces, lost, strict=True):
        if len(piece) == 1:
            assert loss == np.inf
        elif not number[piece]:
            assert loss == -np.inf
        else:
            way = best(piece, without=piece)
            rest = math.log(total + number[piece] * (len(way) - 1))
            other = sum(math.log(number[p] + number[piece]) - rest for p in way)
            assert loss == pytest.approx(number[piece] * (math.log(number[piece] / total) - other))
