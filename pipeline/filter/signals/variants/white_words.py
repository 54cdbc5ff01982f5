"""Words between white space, and what Dolma, DCLM and NeMo count on them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants.codepoints import ALPHA, SPACE, bits
from corpusmill.pipeline.filter.signals.variants.contractions import hash_of
from corpusmill.pipeline.filter.text.view import TextView, once, per_document
from corpusmill.pipeline.filter.text.word_hashes import STOP_WORDS
from corpusmill.pipeline.text.utf8 import decode

# Columns of `counts`.
ALPHA_WORDS: Final = 0  # with a letter
STOPS: Final = 1  # occurrences of the eight stop words, as they are
STOPS_LOWER: Final = 2  # the same in either case
MARKED: Final = 3  # words with # or … (Dolma)
SYMBOLS: Final = 4  # words that are a mark of omission, or # for more than a half (NeMo)
MARKS: Final = 5  # #, ..., ". . ." and … in the text (DCLM)
COUNTS: Final = 6

# Bytes behind a leading 1, so that a NUL in front makes another number.
_STOPS = np.array([int.from_bytes(b"\1" + word.encode(), "big") for word in STOP_WORDS], np.int64)
OMISSIONS: Final = ("...", "[...]", "…", "(...)", "[…]", "-»")


class WhiteWords(NamedTuple):
    """Words of D documents: `offsets` int64[D + 1]; bytes [`starts`, `ends`), `chars`, `hashes` of each; `counts`
    int64[D, COUNTS]."""

    offsets: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def _omissions() -> npt.NDArray[np.uint64]:
    """Hashes of NeMo's marks of omission that are words, sorted."""
    raw = [np.frombuffer(mark.encode(), np.uint8) for mark in OMISSIONS]
    return np.sort(np.array([hash_of(mark, 0, len(mark)) for mark in raw], np.uint64))


@once
def white_words(view: TextView) -> WhiteWords:
    """The words of a view."""
    most = (int(view.offsets[-1] - view.offsets[0]) + len(view)) // 2 + 1
    found = WhiteWords(
        np.empty(len(view) + 1, np.int64), np.empty(most, np.int64), np.empty(most, np.int64),
        np.empty(most, np.int32), np.empty(most, np.uint64), np.zeros((len(view), COUNTS), np.int64),
    )  # fmt: skip
    words = _scan(view.data, view.offsets, bits(), _omissions(), *found)
    return found._replace(
        starts=found.starts[:words],
        ends=found.ends[:words],
        chars=found.chars[:words],
        hashes=found.hashes[:words],
    )


def word_total(view: TextView) -> npt.NDArray[np.int64]:
    """int64[D]: words."""
    return np.diff(white_words(view).offsets)


@once
def word_characters(view: TextView) -> npt.NDArray[np.int64]:
    """int64[D]: characters of all words."""
    return per_document(white_words(view).chars, white_words(view).offsets)


@compiled
def stop_word(data: Any, a: int, b: int, either_case: bool) -> int:
    """Place of the word [a, b) among the stop words, -1 if it is none."""
    if b - a < 2 or b - a > 4:
        return -1
    packed = np.int64(1)
    for i in range(a, b):
        c = np.int64(data[i])
        packed = packed << 8 | (c | 32 if either_case and 65 <= c <= 90 else c)
    for k in range(len(_STOPS)):
        if packed == _STOPS[k]:
            return k
    return -1


@compiled
def _scan(
    data: Any, offsets: Any, table: Any, omissions: Any,
    word_offsets: Any, starts: Any, ends: Any, chars: Any, hashes: Any, counts: Any,
) -> int:  # fmt: skip
    n = 0
    word_offsets[0] = 0
    for d in range(len(offsets) - 1):
        i, last = offsets[d], offsets[d + 1]
        row = counts[d]
        start, size, letters, marks, runs, hash_before = i, 0, False, False, 0, False
        while i <= last:
            if i < last:
                point, width = decode(data, i)
                c = table[point]
            else:
                width, c = 1, np.uint16(SPACE)
            if c & SPACE:
                if size:
                    starts[n], ends[n], chars[n], hashes[n] = start, i, size, hash_of(data, start, i)
                    row[ALPHA_WORDS] += letters
                    row[MARKED] += marks
                    row[STOPS] += stop_word(data, start, i, False) >= 0
                    row[STOPS_LOWER] += stop_word(data, start, i, True) >= 0
                    if 2 * runs > size:
                        row[SYMBOLS] += 1
                    elif size <= 5:
                        at = np.searchsorted(omissions, hashes[n])
                        row[SYMBOLS] += at < len(omissions) and omissions[at] == hashes[n]
                    n += 1
                start, size, letters, marks, runs, hash_before = i + width, 0, False, False, 0, False
            else:
                size += 1
                letters = letters or (c & ALPHA) != 0
                if point == 35:
                    runs += not hash_before
                marks = marks or point == 35 or point == 0x2026
                hash_before = point == 35
            i += width
        word_offsets[d + 1] = n
        row[MARKS] = _marks(data, offsets[d], last)
    return n


@compiled
def _marks(data: Any, first: int, last: int) -> int:
    """How often #, …, "..." and ". . ." stand in [first, last), each counted by itself from the left."""
    total, close, wide = 0, first, first  # the next places at which "..." and ". . ." may begin
    for i in range(first, last):
        b = data[i]
        if b == 35:
            total += 1
        elif b == 0xE2:
            total += i + 2 < last and data[i + 1] == 0x80 and data[i + 2] == 0xA6
        elif b == 46:
            if i >= close and i + 2 < last and data[i + 1] == 46 and data[i + 2] == 46:
                total += 1
                close = i + 3
            if (
                i >= wide and i + 4 < last and data[i + 1] == 32 and data[i + 2] == 46
                and data[i + 3] == 32 and data[i + 4] == 46
            ):  # fmt: skip
                total += 1
                wide = i + 5
    return total
