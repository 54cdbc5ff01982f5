"""What each Unicode code point is, as one table of bits that the kernels look up."""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

SPACE: Final = 1  # str.isspace()
ALPHA: Final = 2  # letters (general category L*)
DIGIT: Final = 4  # decimal digits of all scripts (Nd)
UPPER: Final = 8  # upper case letters (Lu)
PUNCT: Final = 16  # punctuation (P*)
TERMINAL: Final = 32  # ends a sentence in some script
CLOSER: Final = 64  # may follow the mark that ends a sentence: closing quotes and brackets
BULLET: Final = 128  # starts an item of a list
SPECIAL: Final = 256  # counted, or the rarest letter of a phrase that a rule looks for

# Unicode's Sentence_Terminal property, which `unicodedata` does not hold, and the ellipsis.
_TERMINAL = """21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E
1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 2026
203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 11047-11048 110BE-110C1
11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7
11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 16A6E-16A6F 16AF5
16B37-16B38 16B44 16E98 1BC9F 1DA88"""
_BULLETS = "•●*-"
_SPECIAL = "#.…{jkvfp"  # see `kernels.scan`; the letters in both cases


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint16]:
    """Bits per code point, uint16[0x110000], from this Python's `unicodedata`."""
    table = np.zeros(sys.maxunicode + 1, np.uint16)
    by_category = {"Nd": DIGIT, "Lu": ALPHA | UPPER, "Pe": PUNCT | CLOSER, "Pf": PUNCT | CLOSER}
    # Beyond the third plane there are only tags, variation selectors and private use: no class at all.
    for point in range(0x40000):
        category = unicodedata.category(chr(point))
        bits = by_category.get(category)
        if bits is None:
            bits = ALPHA if category[0] == "L" else PUNCT if category[0] == "P" else 0
        table[point] = bits
    for point in range(0x3001):
        if chr(point).isspace():
            table[point] |= SPACE
    for part in _TERMINAL.split():
        first, _, last = part.partition("-")
        table[int(first, 16) : int(last or first, 16) + 1] |= TERMINAL
    for char in "\"'":
        table[ord(char)] |= CLOSER
    for char in _BULLETS:
        table[ord(char)] |= BULLET
    for char in _SPECIAL + _SPECIAL.upper():
        table[ord(char)] |= SPECIAL
    table.flags.writeable = False
    return table
