"""Words between white space, and what Dolma, DCLM and NeMo count on them. Words as DCLM's repetition rules see them: pieces
between the word breaks of Unicode (UAX #29, as `uniseg` finds them) that begin with a letter or a digit. Hebrew's quotation
marks and emoji sequences are no pieces of their own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import TextView, once, per_document
from corpusmill.pipeline.filter.text.words import STOP_WORDS, hash_of
from corpusmill.pipeline.text import unicode_tables as breaks
from corpusmill.pipeline.text.unicode_tables import tool_table, word_break_table
from corpusmill.pipeline.text.utf8 import decode


class UnicodeWords(NamedTuple):
    """Words of D documents: `offsets` int64[D + 1], `chars` and `hashes` of each."""

    offsets: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]


@once
def unicode_words(view: TextView) -> UnicodeWords:
    """The words of a view."""
    most = int(view.offsets[-1] - view.offsets[0]) + 1
    offsets, chars, hashes = (
        np.empty(len(view) + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint64),
    )
    words = _scan_breaks(view.data, view.offsets, word_break_table(), offsets, chars, hashes)
    return UnicodeWords(offsets, chars[:words], hashes[:words])


@compiled
def _extended(data: Any, i: int, last: int, table: Any) -> Any:
    """(place behind the marks that extend the character before byte `i`, how many)."""
    count = 0
    while i < last:
        point, size = decode(data, i)
        if table[point] != breaks.WB_EXTEND:
            break
        i += size
        count += 1
    return i, count


@compiled
def _scan_breaks(data: Any, offsets: Any, table: Any, word_offsets: Any, chars: Any, hashes: Any) -> int:
    n = 0
    word_offsets[0] = 0
    for d in range(len(offsets) - 1):
        i, last = offsets[d], offsets[d + 1]
        while i < last:
            start, (point, size) = i, decode(data, i)
            before = table[point]
            i, more = _extended(data, i + size, last, table)
            length = 1 + more
            first = before
            while i < last and (
                before in (breaks.WB_LETTER, breaks.WB_NUMBER, breaks.WB_KATAKANA, breaks.WB_JOINER)
            ):
                point, size = decode(data, i)
                own = table[point]
                end, more = _extended(data, i + size, last, table)
                own_length = 1 + more
                joined = (own == breaks.WB_JOINER) or (own == before and own != breaks.WB_JOINER)
                joined = joined or (
                    before == breaks.WB_JOINER
                    and (own in (breaks.WB_LETTER, breaks.WB_NUMBER, breaks.WB_KATAKANA))
                )
                joined = (
                    joined
                    or (before == breaks.WB_LETTER and own == breaks.WB_NUMBER)
                    or (before == breaks.WB_NUMBER and own == breaks.WB_LETTER)
                )
                middle = own == breaks.WB_MID_BOTH or (
                    before == breaks.WB_LETTER and own == breaks.WB_MID_LETTER
                )
                middle = middle or (before == breaks.WB_NUMBER and own == breaks.WB_MID_NUMBER)
                if not joined and middle and (before in (breaks.WB_LETTER, breaks.WB_NUMBER)) and end < last:
                    point, size = decode(data, end)
                    if table[point] == before:
                        own = before
                        end, more = _extended(data, end + size, last, table)
                        own_length += 1 + more
                        joined = True
                if not joined:
                    break
                before, i, length = own, end, length + own_length
            if first in (breaks.WB_LETTER, breaks.WB_NUMBER, breaks.WB_KATAKANA, breaks.WB_ALONE):
                chars[n], hashes[n] = length, hash_of(data, start, i)
                n += 1
        word_offsets[d + 1] = n
    return n


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
    words = _scan(view.data, view.offsets, tool_table(), _omissions(), *found)
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
                width, c = 1, np.uint16(breaks.SPACE)
            if c & breaks.SPACE:
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
                letters = letters or (c & breaks.ALPHA) != 0
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
