"""Witten-Bell bigrams and trigrams, beside a slow implementation with dictionaries that follows the formula."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.train.data.fetch import BlockData
from corpusmill.train.evaluate.ngrams import LARGEST_VOCABULARY, NGrams, events

EOS = 0
Document = list[int]


def block_of(documents: Sequence[Document]) -> BlockData:
    starts = np.cumsum([0, *map(len, documents)])[:-1]
    tokens = [token for document in documents for token in document]
    return BlockData(np.array(tokens, dtype=np.uint16), starts.astype(np.int64))


def model_of(documents: Sequence[Document], vocab_size: int) -> NGrams:
    block = block_of(documents)
    return NGrams([events(block, EOS)], len(block.tokens), vocab_size)


def contexts(documents: Sequence[Document]) -> list[tuple[tuple[int, ...], int]]:
    """Each token with up to two tokens before it in its document, whose first follows an end of text."""
    found = []
    for document in documents:
        padded = [EOS, *document]
        found += [(tuple(padded[max(i - 2, 0) : i]), padded[i]) for i in range(1, len(padded))]
    return found


class Slow:
    """The formula, with dictionaries."""

    def __init__(self, documents: Sequence[Document], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for context, token in contexts(documents):
            for length in range(len(context) + 1):
                self.counts[context[len(context) - length :]][token] += 1

    def probability(self, token: int, context: tuple[int, ...]) -> float:
        lower = self.probability(token, context[1:]) if context else 1 / self.vocab_size
        seen = self.counts.get(context)
        if not seen:
            return lower
        return (seen[token] + len(seen) * lower) / (seen.total() + len(seen))


VOCABULARY = 7
DOCUMENT = st.lists(st.integers(1, VOCABULARY - 1), max_size=12).map(lambda tokens: [*tokens, EOS])
TEXTS = st.lists(DOCUMENT, min_size=1, max_size=6)


@given(TEXTS, TEXTS)
def test_it_is_the_formula(train: list[Document], scored: list[Document]) -> None:
    slow = Slow(train, VOCABULARY)
    double, triple = model_of(train, VOCABULARY).probabilities(events(block_of(scored), EOS))
    expected = contexts(scored)
    assert triple.tolist() == pytest.approx([slow.probability(t, c) for c, t in expected])
    assert double.tolist() == pytest.approx([slow.probability(t, c[-1:]) for c, t in expected])
    losses = model_of(train, VOCABULARY).losses(events(block_of(scored), EOS))
    assert losses[1] == pytest.approx(-sum(math.log(slow.probability(t, c)) for c, t in expected))
    assert losses[0] == pytest.approx(-sum(math.log(slow.probability(t, c[-1:])) for c, t in expected))


@given(TEXTS, st.integers(0, VOCABULARY - 1), st.integers(0, VOCABULARY - 1))
def test_probabilities_sum_to_one_and_none_is_zero(train: list[Document], first: int, second: int) -> None:
    model = model_of(train, VOCABULARY + 2)  # two tokens that never occur
    every = [events(block_of([[first, second, token]]), EOS) for token in range(VOCABULARY + 2)]
    for place in range(2):
        found = [float(model.probabilities(one)[place][2]) for one in every]
        assert sum(found) == pytest.approx(1) and min(found) > 0


def test_a_model_of_nothing_is_uniform() -> None:
    model = NGrams([], 0, 4)
    assert model.losses(events(block_of([[1, 2, 3]]), EOS)) == pytest.approx([3 * math.log(4)] * 2)


def test_the_first_token_of_a_document_follows_an_end_of_text() -> None:
    """Also at the start of a block, which may continue a document."""
    at = events(block_of([[5, 6, EOS], [4, 3]]), EOS)
    assert at.token.tolist() == [5, 6, EOS, 4, 3]
    assert at.previous.tolist() == [EOS, 5, 6, EOS, 4]
    assert at.before.tolist() == [-1, EOS, 5, -1, EOS]


def test_only_chosen_tokens_count_with_the_context_that_they_have() -> None:
    block = block_of([[1, 2, 3, EOS]])
    chosen = events(block, EOS, np.array([False, False, True, False]))
    assert [column.tolist() for column in chosen] == [[1], [2], [3]]


def test_parts_add_up() -> None:
    rng = np.random.default_rng(1)
    documents = [[*rng.integers(1, 50, size).tolist(), EOS] for size in (39, 0, 6, 199)]
    whole = model_of(documents, 50)
    blocks = [block_of(documents[:2]), block_of(documents[2:])]
    parts = NGrams([events(block, EOS) for block in blocks], 248, 50)
    scored = events(block_of([rng.integers(0, 50, 300).tolist()]), EOS)
    assert parts.losses(scored) == whole.losses(scored) and parts.tokens == whole.tokens == 248
    with pytest.raises(ValueError, match="more than 247 tokens"):
        NGrams([events(block, EOS) for block in blocks], 247, 50)


def test_large_vocabularies_do_not_overflow_or_are_refused() -> None:
    top = LARGEST_VOCABULARY - 1
    tokens = np.array([top, top, top, 0, top, top], dtype=np.uint32)
    block = BlockData(tokens, np.array([0, 4]))
    double, triple = NGrams([events(block, EOS)], 6, LARGEST_VOCABULARY).probabilities(events(block, EOS))
    assert 0.3 < float(triple[2]) < 1 and 0.3 < float(double[2]) < 1
    with pytest.raises(UserError, match="2,097,152 tokens is too large .* --ngram-tokens 0"):
        NGrams([], 0, LARGEST_VOCABULARY + 1)
