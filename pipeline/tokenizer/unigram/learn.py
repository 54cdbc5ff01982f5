"""Unigram's pieces and their probabilities (Kudo 2018), as SentencePiece learns them.

The trainer of the `tokenizers` library has no place here: it adds up floats in the order of a hash map, which is another in every
process, and drops other pieces each time where they are equally useful. This one takes words in the order of their bytes, and
breaks ties by them; and it begins with substrings by their occurrences in the text, not in the list of words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from corpusmill.pipeline.bpe.kernels.tokens import new_trie
from corpusmill.pipeline.tokenizer.unigram.kernels import expect, losses, occurrences
from corpusmill.pipeline.tokenizer.unigram.seeds import F64, seeds
from corpusmill.pipeline.tokenizer.words import Words

# As in SentencePiece: EM steps before pieces are dropped, the share that stays, how many more than asked for are learned last,
# and expected occurrences below which a piece goes.
STEPS, SHARE, MORE, LEAST = 2, 0.75, 1.1, 0.5
DIGITS = 8  # of a score after the point


class _Pieces:
    """Pieces in the order of their bytes, with what the kernels take."""

    def __init__(self, pieces: list[bytes], scores: F64) -> None:
        self.pieces, self.scores = pieces, scores
        self.data = np.frombuffer(b"".join(pieces), np.uint8)
        self.bounds = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(piece) for piece in pieces], out=self.bounds[1:])
        number = np.arange(len(pieces))
        self.units = new_trie(self.data, self.bounds, number, number)

    @property
    def alone(self) -> npt.NDArray[np.bool_]:
        """Which are single bytes: they always stay."""
        return np.asarray(np.diff(self.bounds) == 1, np.bool_)

    def of(self, kept: npt.NDArray[np.bool_], scores: F64) -> _Pieces:
        """Those that are kept, with their scores."""
        return _Pieces([self.pieces[i] for i in np.flatnonzero(kept).tolist()], scores[kept])


def learn(words: Words, size: int, longest: int | None) -> dict[bytes, float]:
    """Up to `size` pieces with their log probabilities, every byte among them; fewer where the words have no more substrings
    that occur twice. `longest`: bytes of a piece at most."""
    found, weights = seeds(words, longest)
    pieces = _Pieces(found, np.log(weights) - np.log(weights.sum()))
    most = max(int(MORE * size), size)
    while True:
        for _ in range(STEPS):
            pieces = _maximised(words, pieces)
        if len(pieces.pieces) <= most:
            break
        pieces = _pruned(words, pieces, max(most, int(SHARE * len(pieces.pieces))))
    order = np.lexsort((np.arange(len(pieces.pieces)), -pieces.scores, ~pieces.alone))[:size].tolist()
    return {pieces.pieces[i]: round(float(pieces.scores[i]), DIGITS) for i in order}


def _maximised(words: Words, pieces: _Pieces) -> _Pieces:
    """One step of EM, with the sparse prior of SentencePiece (Liang and Klein 2007): digamma in place of the logarithm."""
    expected = np.zeros(len(pieces.pieces))
    expect(words.data, words.bounds, words.counts, pieces.units, pieces.scores, expected)
    kept = pieces.alone | (expected >= LEAST)
    expected = np.maximum(expected, LEAST)  # of bytes that do not occur
    return pieces.of(kept, np.asarray(digamma(expected) - digamma(expected[kept].sum()), np.float64))


def _pruned(words: Words, pieces: _Pieces, size: int) -> _Pieces:
    """The `size` pieces without which the likelihood of the words would lose most."""
    found, lost = np.zeros(len(pieces.pieces)), np.empty(len(pieces.pieces))
    occurrences(words.data, words.bounds, words.counts, pieces.units, pieces.scores, found)
    losses(pieces.data, pieces.bounds, pieces.units, pieces.scores, found, lost)
    order = np.argsort(-lost, kind="stable")[:size]
    kept = np.zeros(len(lost), np.bool_)
    kept[order] = lost[order] > -np.inf
    return pieces.of(kept, pieces.scores)
