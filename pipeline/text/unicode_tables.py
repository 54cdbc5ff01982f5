"""Tables over all Unicode code points: how they are stored, their classes, and ranges written in hexadecimal.

- `pack` and `unpack`: the tables of the word rule and of datatrove's simplification, which are files of the package
  (Unicode `VERSION`), stored as runs of one class whose values lie at one distance; `write_table` makes them.
- `class_table` and `lower_table`: one word of class bits per code point for the quality filter's kernels, from this
  Python's `unicodedata`.
"""

from __future__ import annotations

import unicodedata
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
VERSION: Final = "14.0.0"  # of Unicode, in the tables that are files of the package
CODE_POINTS: Final = 0x110000
BITS = 21  # of a code point: the lower bits of an entry; above them stands its class
POINT = (1 << BITS) - 1
PIECES = 4  # code points of the longest canonical decomposition
SPACE: Final = 1  # str.isspace()
ALPHA: Final = 2  # letters (general category L*)
DIGIT: Final = 4  # decimal digits of all scripts (Nd)
UPPER: Final = 8  # upper case letters (Lu)
PUNCT: Final = 16  # punctuation (P*)
TERMINAL: Final = 32  # ends a sentence in some script
CLOSER: Final = 64  # may follow the mark that ends a sentence: closing quotes and brackets
BULLET: Final = 128  # starts an item of a list
SPECIAL: Final = 256  # counted, or the rarest letter of a phrase that a rule looks for
LOWER: Final = 512  # lower case letters (Ll)
MARK: Final = 1024  # combining marks (M*)
CJK: Final = 2048  # letters of scripts written without spaces in East Asia, and Hangul
OTHER: Final = 4096  # neither white space nor letter, mark or number (N*)
LIST_MARK: Final = 8192  # starts an item of a list, as RedPajama-V2 reads it
# Unicode's Sentence_Terminal property, which `unicodedata` does not hold, and the ellipsis.
_TERMINAL = """21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E
1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 2026
203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 11047-11048 110BE-110C1
11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7
11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 16A6E-16A6F 16AF5
16B37-16B38 16B44 16E98 1BC9F 1DA88"""
# Blocks of Han, Bopomofo, kana and Hangul; of these only letters count.
_CJK = """1100-11FF 2E80-2FDF 3005-3007 3021-3029 3031-303C 3041-30FF 3105-312F 3131-318E 31A0-31BF 31F0-31FF
3400-4DBF 4E00-9FFF A960-A97F AC00-D7FF F900-FAFF FF66-FFDC 1AFF0-1B16F 20000-3FFFF"""
_BULLETS = "•●*-"
_LIST_MARKS = "•‣▶◀◦■□▪▫–"
_SPECIAL = "#.…{}()[]⟨⟩,?!:jkvfp"  # see `scan.scan`; the letters in both cases


def pack(entries: U32, pieces: U32) -> bytes:
    """`entries` (uint32[0x110000]) and `pieces` (uint32[n, 4]) as bytes, deflated."""
    kind = (entries >> BITS).astype(np.int32)
    shift = (entries & POINT).astype(np.int32) - np.arange(CODE_POINTS, dtype=np.int32)
    starts = np.flatnonzero(np.r_[True, (np.diff(kind) != 0) | (np.diff(shift) != 0)])
    runs = np.stack([starts, kind[starts], shift[starts]]).astype("<i4")
    size = np.array([len(starts)], "<i4")
    return zlib.compress(size.tobytes() + runs.tobytes() + pieces.astype("<u4").tobytes(), 9)


def write_table(file: Path, entries: U32, pieces: U32) -> None:
    """Writes a table of the package; raises `SystemExit` if this Python has another version of Unicode."""
    if unicodedata.unidata_version != VERSION:
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}, the table is {VERSION}")
    file.write_bytes(pack(entries, pieces))


def unpack(packed: bytes) -> tuple[U32, U32]:
    """(entries, pieces) as they were given to `pack`."""
    values = np.frombuffer(zlib.decompress(packed), "<i4")
    end = 1 + 3 * int(values[0])
    starts, kind, shift = values[1:end].reshape(3, -1)
    lengths = np.diff(np.r_[starts, CODE_POINTS])
    low = np.arange(CODE_POINTS, dtype=np.int32) + np.repeat(shift, lengths)
    high = np.repeat(kind, lengths).astype(np.uint32) << BITS
    entries: U32 = high | low.astype(np.uint32)
    return entries, values[end:].astype(np.uint32).reshape(-1, PIECES)


def points(ranges: str) -> list[tuple[int, int]]:
    """(first, last + 1) of hexadecimal ranges."""
    pairs = (part.partition("-") for part in ranges.split())
    return [(int(first, 16), int(last or first, 16) + 1) for first, _, last in pairs]


def _category_bits(category: str) -> int:
    if category == "Nd":
        return DIGIT
    if category in ("Pe", "Pf"):
        return PUNCT | CLOSER | OTHER
    case = UPPER if category == "Lu" else LOWER if category == "Ll" else 0
    by_kind = {"L": ALPHA | case, "M": MARK, "N": 0, "P": PUNCT | OTHER}
    return by_kind.get(category[0], OTHER)


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint16]:
    """Bits per code point, uint16[0x110000], from this Python's `unicodedata`."""
    table = np.full(CODE_POINTS, OTHER, np.uint16)
    bits = {category: _category_bits(category) for category in ("Nd", "Pe", "Pf", "Lu", "Ll")}
    # Beyond the third plane there are only tags, variation selectors and private use.
    for point in [*range(0x40000), *range(0xE0100, 0xE01F0)]:
        category = unicodedata.category(chr(point))
        if category not in bits:
            bits[category] = _category_bits(category)
        table[point] = bits[category]
    for point in range(0x3001):
        if chr(point).isspace():
            table[point] = table[point] & (0xFFFF ^ OTHER) | SPACE
    for first, last in points(_TERMINAL):
        table[first:last] |= TERMINAL
    for first, last in points(_CJK):
        table[first:last] |= np.where(table[first:last] & ALPHA, CJK, 0).astype(np.uint16)
    for chars, bit in (
        ("\"'", CLOSER), (_BULLETS, BULLET), (_LIST_MARKS, LIST_MARK), (_SPECIAL + _SPECIAL.upper(), SPECIAL)
    ):  # fmt: skip
        for char in chars:
            table[ord(char)] |= bit
    table.flags.writeable = False
    return table


@lru_cache(maxsize=1)
def lower_table() -> npt.NDArray[np.uint32]:
    """The lower case of each code point below 0x20000, uint32; itself where that is not one code point.

    No letter with case lies beyond.
    """
    table = np.arange(0x20000, dtype=np.uint32)
    for point in np.flatnonzero(class_table()[: len(table)] & UPPER):
        lower = chr(point).lower()
        if len(lower) == 1:
            table[point] = ord(lower)
    table.flags.writeable = False
    return table
