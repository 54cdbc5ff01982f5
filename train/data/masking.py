"""Masked language modelling: which tokens of a row are hidden, by what, and that they alone are labels.

BERT's 80/10/10 (Devlin et al. 2018), and whole words, as in its later models. The masks are a pure function of the seed, the number of
the sequence, the row's place in it and the position: the same in any layout and after any restart, others in each epoch.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.train.data.pack import IGNORED, Rows
from corpusmill.train.data.shuffle import key_of, keys_of

if TYPE_CHECKING:
    from corpusmill.common.token_text import TokenText
    from corpusmill.schemas.masking import MaskingConfig

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
SCORED = 0.15  # of the tokens, hidden where a model is scored: losses depend on the share
PARTS = 2**20  # rows that a sequence may be cut into by a ramp


class Words(NamedTuple):
    """Of each token: whether it continues a word that ends on its left, whether one may continue on its right, and whether it is
    ordinary text rather than a special token."""

    left: Flags
    right: Flags
    ordinary: Flags

    @classmethod
    def of(cls, text: TokenText, size: int) -> Words:
        """Of the tokens 0 to `size` - 1. Letters and digits make words; a letter of a script without spaces (wide in Unicode) is a
        word of its own."""
        found = cls(*(np.zeros(size, dtype=np.bool_) for _ in range(3)))
        for token in range(size):
            if token == text.eos_id or token in text.added or not text.knows(token):
                continue
            data = text.bytes_of(token)
            found.ordinary[token] = True
            found.left[token], found.right[token] = _joins(data, first=True), _joins(data, first=False)
        return found

    def starts(self, tokens: Ints, documents: Ints) -> Flags:
        """Where a word begins in rows [B, T], each in one document."""
        starts = np.ones(tokens.shape, dtype=np.bool_)
        joined = self.right[tokens[:, :-1]] & self.left[tokens[:, 1:]]
        starts[:, 1:] = ~joined | (documents[:, 1:] != documents[:, :-1])
        return starts


def _joins(data: bytes, first: bool) -> bool:
    """Whether the first or last character of a token is one of a word; part of a character is."""
    if not data:
        return False
    if first and data[0] & 0xC0 == 0x80:
        return True
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data[: error.start].decode(errors="ignore")
        if not first or not text:
            return True
    letter = text[0 if first else -1]
    return letter.isalnum() and unicodedata.east_asian_width(letter) not in "WF"


class Masking:
    """Rows of text into rows with masks. `mask`: the id of the mask; `seed`: of the run."""

    def __init__(self, config: MaskingConfig, words: Words, mask: int, seed: int) -> None:
        self.config, self.words, self.mask, self.seed = config, words, mask, seed
        self._ordinary = np.flatnonzero(words.ordinary)
        self._key = partial(key_of, seed, "masking")

    def __call__(self, rows: Rows, numbers: Ints, parts: Ints) -> Rows:
        """Tokens [B, T] are those of the labels, so that position and label are of one token; labels but of hidden tokens are
        `IGNORED`. `numbers`, `parts`: int64 [B], the sequence of each row, and its place in it."""
        known = rows.labels != IGNORED
        text = np.where(known, rows.labels, rows.tokens)
        documents = rows.marks().documents.astype(np.int64)
        wanted = self.chosen(text, documents, numbers * PARTS + parts) & known
        keys = self._places("token", text.shape, numbers * PARTS + parts)
        draw = uniform(keys)
        tokens = np.where(wanted & (draw < self.config.masked), self.mask, text)
        other = wanted & (draw >= self.config.masked) & (draw < self.config.masked + self.config.random)
        which = keys_of(self._key("which"), keys[other]) % np.uint64(len(self._ordinary))
        tokens[other] = self._ordinary[which.astype(np.int64)]
        return replace(rows, tokens=tokens, labels=np.where(wanted, text, IGNORED))

    @cached_property
    def fixed(self) -> Masking:
        """What validation reads: masks of 15 % whatever the share in training, and the same ones at every step."""
        config = self.config.model_copy(update={"share": SCORED, "masked": 1.0, "random": 0.0})
        return Masking(config, self.words, self.mask, 0)

    def chosen(self, text: Ints, documents: Ints, row: Ints) -> Flags:
        """Which tokens [B, T] are hidden: each word, or token, with the probability `share`, independently."""
        keys = self._places("word", text.shape, row)
        if self.config.whole_words:
            starts = self.words.starts(text, documents)
            first = np.maximum.accumulate(np.where(starts, np.arange(text.shape[1]), 0), axis=1)
            keys = np.take_along_axis(keys, first, axis=1)
        found: Flags = (uniform(keys) < self.config.share) & self.words.ordinary[text]
        return found

    def parts(self, text: Ints, documents: Ints, count: int) -> Ints:
        """Which of `count` parts each ordinary token [B, T] belongs to, -1 of special ones; words are dealt out at random, whole if the
        config hides them so, and the same row always alike."""
        first = np.broadcast_to(np.arange(text.shape[1]), text.shape)
        if self.config.whole_words:
            first = np.maximum.accumulate(np.where(self.words.starts(text, documents), first, 0), axis=1)
        keys = keys_of(key_of("parts"), np.take_along_axis(text, first, axis=1) * PARTS + first)
        found = (keys % np.uint64(count)).astype(np.int64)
        return np.where(self.words.ordinary[text], found, -1)

    def _places(self, name: str, shape: tuple[int, ...], row: Ints) -> npt.NDArray[np.uint64]:
        """uint64 [B, T]: a key for each position of each row."""
        rows = keys_of(self._key(name), row)
        return keys_of(self._key(name, "position"), rows[:, None] + np.arange(shape[1], dtype=np.uint64))


def uniform(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Of [0, 1), from the upper 53 bits."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
