"""Learning: every byte stays, the size is kept, likelihood rises by EM, and useful pieces are found."""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.tokenizer.unigram import learn as module
from corpusmill.pipeline.tokenizer.unigram.kernels import expect
from corpusmill.pipeline.tokenizer.unigram.learn import learn
from corpusmill.pipeline.tokenizer.unigram.seeds import seeds
from tests.pipeline.corpus import words as text
from tests.pipeline.tokenizer.unigram.test_seeds import words

COUNTS = {word: 1 + len(word) % 3 for seed in range(20) for word in text(60, seed).split()}


def test_every_byte_stays_and_the_size_is_kept() -> None:
    for size in (256, 300, 400):
        found = learn(words(COUNTS), size, None)
        assert len(found) == size and {bytes([byte]) for byte in range(256)} <= set(found)
        assert all(score < 0 for score in found.values())
        assert sum(np.exp(list(found.values()))) < 1.05
    assert len(learn(words({"ab": 1}), 300, None)) == 256  # nothing occurs twice


def test_each_step_of_em_raises_the_likelihood_of_the_words() -> None:
    text = words(COUNTS)
    found, weights = seeds(text, None)
    pieces = module._Pieces(found, np.log(weights) - np.log(weights.sum()))

    def likelihood() -> float:
        empty = np.zeros(len(pieces.pieces))
        return float(expect(text.data, text.bounds, text.counts, pieces.units, pieces.scores, empty))

    before = likelihood()
    pieces = module._maximised(text, pieces)
    assert likelihood() > before


def test_words_that_recur_become_pieces() -> None:
    counts = {"international": 50, "nation": 40, "xyzzy": 30, "qqqqqqqq": 1}
    found = learn(words(counts), 262, None)
    assert {b"international", b"nation", b"xyzzy"} <= set(found)
