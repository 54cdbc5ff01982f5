"""Words as DCLM's repetition rules see them: pieces between the word breaks of Unicode (UAX #29, as `uniseg` finds
them) that begin with a letter or a digit. Hebrew's quotation marks and emoji sequences are no pieces of their own."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.variants import codepoints
from corpusmill.pipeline.filter.signals.variants.contractions import hash_of
from corpusmill.pipeline.filter.text.view import TextView, once
from corpusmill.pipeline.text.unicode_tables import points
from corpusmill.pipeline.text.utf8 import decode

OTHER: Final = 0
LETTER: Final = 1
NUMBER: Final = 2
KATAKANA: Final = 3
JOINER: Final = 4  # _ and its kin
MID_LETTER: Final = 5
MID_NUMBER: Final = 6
MID_BOTH: Final = 7
ALONE: Final = 8  # a letter or digit by itself
EXTEND: Final = 9

_MID_LETTER = ":\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_MID_BOTH = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"
_KATAKANA = "3031-3035 309B-309C 30A0-30FA 30FC-30FF 31F0-31FF 32D0-32FE 3300-3357 FF66-FF9D 1AFF0-1AFFE 1B000 1B120-1B122 1B164-1B167"
# Letters to UAX #29 that `str.isalpha` does not know: marks of modification, circled letters.
_LETTERS = "2C2-2C5 2D2-2D7 2DE-2DF 2E5-2EB 2ED 2EF-2FF 55A-55C 55E 58A 5F3 2160-2188 24B6-24E9 A708-A716 A720-A721 A789-A78A AB5B"


class UnicodeWords(NamedTuple):
    """Words of D documents: `offsets` int64[D + 1], `chars` and `hashes` of each."""

    offsets: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """Class per code point, uint8[0x110000]."""
    bits = codepoints.bits()
    table = np.zeros(0x110000, np.uint8)
    table[(bits & codepoints.ALPHA) != 0] = LETTER
    for text, own in ((_LETTERS, LETTER), (_KATAKANA, KATAKANA)):
        for first, last in points(text):
            table[first:last] = own
    table[(bits & codepoints.EXTEND) != 0] = EXTEND
    for point in range(0x20000):
        category = unicodedata.category(chr(point))
        if category == "Nd":
            table[point] = NUMBER
        elif category == "Pc":
            table[point] = JOINER
        elif category[0] == "N" and table[point] == OTHER:
            table[point] = ALONE
    alone = ((bits & codepoints.ALONE) != 0) & (table == LETTER)
    table[alone] = ALONE
    for chars, own in ((_MID_LETTER, MID_LETTER), (_MID_NUMBER, MID_NUMBER), (_MID_BOTH, MID_BOTH)):
        for char in chars:
            table[ord(char)] = own
    table[0x066B], table[0x202F] = NUMBER, JOINER
    table[0x1F3FB:0x1F400] = EXTEND
    table.flags.writeable = False
    return table


@once
def unicode_words(view: TextView) -> UnicodeWords:
    """The words of a view."""
    most = int(view.offsets[-1] - view.offsets[0]) + 1
    offsets, chars, hashes = (
        np.empty(len(view) + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint64),
    )
    words = _scan(view.data, view.offsets, classes(), offsets, chars, hashes)
    return UnicodeWords(offsets, chars[:words], hashes[:words])


@compiled
def _extended(data: Any, i: int, last: int, table: Any) -> Any:
    """(place behind the marks that extend the character before byte `i`, how many)."""
    count = 0
    while i < last:
        point, size = decode(data, i)
        if table[point] != EXTEND:
            break
        i += size
        count += 1
    return i, count


@compiled
def _scan(data: Any, offsets: Any, table: Any, word_offsets: Any, chars: Any, hashes: Any) -> int:
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
            while i < last and (before in (LETTER, NUMBER, KATAKANA, JOINER)):
                point, size = decode(data, i)
                own = table[point]
                end, more = _extended(data, i + size, last, table)
                own_length = 1 + more
                joined = (own == JOINER) or (own == before and own != JOINER)
                joined = joined or (before == JOINER and (own in (LETTER, NUMBER, KATAKANA)))
                joined = (
                    joined or (before == LETTER and own == NUMBER) or (before == NUMBER and own == LETTER)
                )
                middle = own == MID_BOTH or (before == LETTER and own == MID_LETTER)
                middle = middle or (before == NUMBER and own == MID_NUMBER)
                if not joined and middle and (before in (LETTER, NUMBER)) and end < last:
                    point, size = decode(data, end)
                    if table[point] == before:
                        own = before
                        end, more = _extended(data, end + size, last, table)
                        own_length += 1 + more
                        joined = True
                if not joined:
                    break
                before, i, length = own, end, length + own_length
            if first in (LETTER, NUMBER, KATAKANA, ALONE):
                chars[n], hashes[n] = length, hash_of(data, start, i)
                n += 1
        word_offsets[d + 1] = n
    return n
