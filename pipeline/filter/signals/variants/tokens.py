"""datatrove's words of a batch, and what its Gopher rules count on them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants.codepoints import ALPHA, SYMBOL, bits
from corpusmill.pipeline.filter.signals.variants.contractions import hash_of, known_units, known_words
from corpusmill.pipeline.filter.signals.variants.spacy_words import words_of
from corpusmill.pipeline.filter.signals.variants.white_words import stop_word
from corpusmill.pipeline.filter.text.view import TextView, once
from corpusmill.pipeline.text.utf8 import decode

# Columns of `counts`.
WORDS: Final = 0  # not made of symbols alone
WORD_CHARS: Final = 1  # characters of those
ALPHA_WORDS: Final = 2  # with a letter, of all
STOPS: Final = 3  # bit k: stop word k occurs
COUNTS: Final = 4

_BASE = np.uint64(0x9E3779B97F4A7C15)


class Tokens(NamedTuple):
    """Words of D documents: `offsets` int64[D + 1], `chars`, `hashes` of each; `joins` and `powers` as in
    `grams.walked_duplicates`; `counts` int64[D, COUNTS]."""

    offsets: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    joins: npt.NDArray[np.uint64]
    powers: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


@once
def tokens(view: TextView) -> Tokens:
    """The words of a view."""
    size = int(view.offsets[-1] - view.offsets[0])
    starts, ends = np.empty(size + 1, np.int64), np.empty(size + 1, np.int64)
    offsets, counts = np.empty(len(view) + 1, np.int64), np.zeros((len(view), COUNTS), np.int64)
    words, units = known_words(), known_units()
    found = _split(view.data, view.offsets, bits(), *words, units.keys, units.longest, starts, ends, offsets)
    chars, hashes = np.empty(found, np.int32), np.empty(found, np.uint64)
    joins, powers = np.empty(found, np.uint64), np.empty(found, np.uint64)
    _describe(view.data, bits(), starts, ends, offsets, chars, hashes, joins, powers, counts)
    return Tokens(offsets, chars, hashes, joins, powers, counts)


def split(text: str) -> list[str]:
    """The words of one text as strings: to compare with spaCy's, not for a batch."""
    raw = text.encode()
    words, units = known_words(), known_units()
    starts, ends = np.empty(len(raw) + 1, np.int64), np.empty(len(raw) + 1, np.int64)
    n = words_of(
        np.frombuffer(raw, np.uint8), 0, len(raw), bits(), *words, units.keys, units.longest, starts, ends, 0
    )
    return [raw[a:b].decode() for a, b in zip(starts[:n], ends[:n], strict=True)]


@compiled
def _split(
    data: Any, offsets: Any, table: Any, keys: Any, parts: Any, sizes: Any, longest: int, unit_keys: Any,
    unit_longest: int, starts: Any, ends: Any, found: Any,
) -> int:  # fmt: skip
    n = 0
    found[0] = 0
    for d in range(len(offsets) - 1):
        n = words_of(
            data, offsets[d], offsets[d + 1], table, keys, parts, sizes, longest, unit_keys, unit_longest,
            starts, ends, n,
        )  # fmt: skip
        found[d + 1] = n
    return n


@compiled
def _describe(
    data: Any, table: Any, starts: Any, ends: Any, offsets: Any, chars: Any, hashes: Any, joins: Any,
    powers: Any, counts: Any,
) -> None:  # fmt: skip
    for d in range(len(offsets) - 1):
        row = counts[d]
        for k in range(offsets[d], offsets[d + 1]):
            i, size, letters, plain = starts[k], 0, False, False
            while i < ends[k]:
                point, width = decode(data, i)
                c = table[point]
                letters = letters or (c & ALPHA) != 0
                plain = plain or (c & SYMBOL) == 0
                size += 1
                i += width
            chars[k], hashes[k] = size, hash_of(data, starts[k], ends[k])
            join, power = np.uint64(0), np.uint64(1)
            for i in range(starts[k], ends[k]):
                join = join * _BASE + np.uint64(data[i]) + np.uint64(1)
                power *= _BASE
            joins[k], powers[k] = join, power
            row[ALPHA_WORDS] += letters
            if plain:
                row[WORDS] += 1
                row[WORD_CHARS] += size
                stop = stop_word(data, starts[k], ends[k], False)
                if stop >= 0:
                    row[STOPS] |= 1 << stop
