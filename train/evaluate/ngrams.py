"""Bigram and trigram models of token ids, interpolated Witten-Bell: what a trained model is compared with.

With c(h, w) how often token w follows the context h, c(h) the sum over w, and T(h) the number of different w there:

    P(w | h) = (c(h, w) + T(h) x P(w | h')) / (c(h) + T(h))        h' is h without its first token
    P(w)     = (c(w) + T x 1 / V) / (c + T)                        V: size of the vocabulary

and P(w | h) = P(w | h') if h was never seen (Witten & Bell 1991; in this form Chen & Goodman 1998, section 2.5). No parameter
is fitted. A token is predicted from the tokens before it in its document alone, its first from end-of-text, as in training.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError

if TYPE_CHECKING:
    from corpusmill.train.data.fetch import BlockData

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LARGEST_VOCABULARY = 2_097_151  # three tokens in one signed 64-bit number


class Events(NamedTuple):
    """Tokens with the two before them, int64 [n] each; `before` is -1 for the first token of a document."""

    before: Ints
    previous: Ints
    token: Ints


def events(block: BlockData, eos: int, chosen: npt.NDArray[np.bool_] | None = None) -> Events:
    """The tokens of a block, or those of them that are `chosen` (bool [ntokens])."""
    token = block.tokens.astype(np.int64)
    previous = np.concatenate(([eos], token))[: len(token)]
    before = np.concatenate(([-1], previous))[: len(token)]
    before[block.starts] = -1
    found = Events(before, previous, token)
    return found if chosen is None else Events(*(column[chosen] for column in found))


class Table(NamedTuple):
    """How often each key occurs: `keys` int64 [n], ascending, and `ends` int64 [n + 1], the sums of the counts before them."""

    keys: Ints
    ends: Ints

    @classmethod
    def of(cls, keys: Ints) -> Table:
        """Counts `keys`, which are sorted in place."""
        keys.sort()
        new = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
        return cls(keys[new], np.append(new, len(keys)))

    def figures(self, keys: Ints, size: int) -> tuple[Ints, Ints, Ints]:
        """Of each key, which is a context x `size` + a token: c(h, w), c(h) and T(h)."""
        by = np.argsort(keys)  # in their order, searches find their place in the cache
        ordered = keys[by]
        first = ordered - ordered % size
        low, high = self.keys.searchsorted(ordered), self.keys.searchsorted(ordered, side="right")
        begin, end = self.keys.searchsorted(first), self.keys.searchsorted(first + size)
        found = np.empty((3, len(keys)), dtype=np.int64)
        found[:, by] = self.ends[high] - self.ends[low], self.ends[end] - self.ends[begin], end - begin
        return found[0], found[1], found[2]


class NGrams:
    """Counts of tokens, pairs and triples; about 40 bytes a token while it is made, 32 at most then."""

    def __init__(self, parts: Iterable[Events], most: int, vocab_size: int) -> None:
        """Of at most `most` tokens; more raise `ValueError`. Raises `UserError` for a vocabulary of more than 2,097,151."""
        if vocab_size > LARGEST_VOCABULARY:
            raise UserError(
                f"a vocabulary of {vocab_size:,} tokens is too large for trigram models, which take up to"
                f" {LARGEST_VOCABULARY:,}: leave them out with --ngram-tokens 0"
            )
        self.vocab_size, self.tokens, triples = vocab_size, 0, 0
        self._single = np.zeros(vocab_size, dtype=np.int64)
        # Not touched, and so not in memory, beyond what is written.
        pairs, threes = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        for before, previous, token in parts:
            pair = previous * vocab_size + token
            if self.tokens + len(pair) > most:
                raise ValueError(f"more than {most} tokens")
            inside = before >= 0
            three = before[inside] * vocab_size**2 + pair[inside]
            pairs[self.tokens : self.tokens + len(pair)] = pair
            threes[triples : triples + len(three)] = three
            self._single += np.bincount(token, minlength=vocab_size)
            self.tokens, triples = self.tokens + len(pair), triples + len(three)
        self._pairs, self._triples = Table.of(pairs[: self.tokens]), Table.of(threes[:triples])

    def probabilities(self, at: Events) -> tuple[Floats, Floats]:
        """(bigram, trigram) probability of each token, float64 [n]."""
        size = self.vocab_size
        kinds = int(np.count_nonzero(self._single))
        uniform = np.full(len(at.token), 1 / size)
        single = _interpolated(self._single[at.token], self.tokens, kinds, uniform)
        pair = at.previous * size + at.token
        double = _interpolated(*self._pairs.figures(pair, size), single)
        triple, inside = double.copy(), at.before >= 0
        three = at.before[inside] * size**2 + pair[inside]
        triple[inside] = _interpolated(*self._triples.figures(three, size), double[inside])
        return double, triple

    def losses(self, at: Events) -> tuple[float, float]:
        """Sums of the losses of the tokens, in nats: (bigram, trigram)."""
        double, triple = self.probabilities(at)
        return float(-np.log(double).sum()), float(-np.log(triple).sum())


def _interpolated(counts: Ints, total: Ints | int, kinds: Ints | int, lower: Floats) -> Floats:
    """Witten-Bell; where a context was never seen, `lower`."""
    scale = np.asarray(total + kinds, dtype=np.float64)
    found: Floats = np.where(scale > 0, (counts + kinds * lower) / np.maximum(scale, 1), lower)
    return found
