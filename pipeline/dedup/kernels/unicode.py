"""The word rule of deduplication as a table: for each code point, its class and its case-folded form.

The rule, by Unicode general category (the version is recorded in `VERSION`):

- letters and numbers (L*, N*) make words, folded by Unicode simple case folding;
- marks (M*) belong to the word before them and are kept; with no word before them they separate;
- letters of scripts written without spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan and the like) are
  words of one character each, with their marks: otherwise a whole sentence would be one word;
- invisible format characters (Cf: soft hyphen, joiners, direction marks) are passed over, but for the zero
  width space, which separates, as do punctuation, symbols, white space and everything else.

Canonically equivalent spellings are not unified here: ingest writes composed text. The table is a file of
the package rather than made from `unicodedata` at run time, so that two Python versions give the same bytes.
`python -m pipeline.dedup.kernels.unicode` makes it anew.
"""

from __future__ import annotations

import unicodedata
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

VERSION = "14.0.0"
FILE = Path(__file__).with_name("unicode.bin")
CODE_POINTS = 0x110000
CLASS_SHIFT = 21
SEPARATOR, LETTER, MARK, ALONE, SKIP = range(5)

# First and last code point of the blocks whose letters stand alone.
UNSPACED = (
    (0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF),
    (0x1A20, 0x1AAF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B),
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF),
    (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip


def fold(character: str) -> str:
    """Unicode simple case folding of one character (CaseFolding.txt, statuses C and S)."""
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()[0]


def classify(character: str) -> int:
    """The class of one character, by the rule above."""
    point, category = ord(character), unicodedata.category(character)
    if category[0] == "M":
        return MARK
    if category[0] in "LN":
        alone = any(first <= point <= last for first, last in UNSPACED) and category != "Nd"
        return ALONE if alone else LETTER
    return SKIP if category == "Cf" and point != 0x200B else SEPARATOR


def build() -> npt.NDArray[np.uint32]:
    """The table from this Python's `unicodedata`: `class << 21 | folded code point`, uint32[0x110000]."""
    entries = np.zeros(CODE_POINTS, np.uint32)
    for point in range(CODE_POINTS):
        character = chr(point)
        entries[point] = classify(character) << CLASS_SHIFT | ord(fold(character))
    return entries


def pack(table: npt.NDArray[np.uint32]) -> bytes:
    """The table as runs of constant class and constant shift, deflated."""
    kind = (table >> CLASS_SHIFT).astype(np.int32)
    shift = (table & ((1 << CLASS_SHIFT) - 1)).astype(np.int32) - np.arange(CODE_POINTS, dtype=np.int32)
    starts = np.flatnonzero(np.r_[True, (np.diff(kind) != 0) | (np.diff(shift) != 0)])
    return zlib.compress(np.stack([starts, kind[starts], shift[starts]]).astype("<i4").tobytes(), 9)


@lru_cache(maxsize=1)
def table() -> npt.NDArray[np.uint32]:
    """The table of the package: uint32[0x110000], `class << 21 | folded code point`."""
    starts, kind, shift = np.frombuffer(zlib.decompress(FILE.read_bytes()), "<i4").reshape(3, -1)
    lengths = np.diff(np.r_[starts, CODE_POINTS])
    folded = np.arange(CODE_POINTS, dtype=np.int32) + np.repeat(shift, lengths)
    kinds = np.repeat(kind, lengths).astype(np.uint32) << CLASS_SHIFT
    entries: npt.NDArray[np.uint32] = kinds | folded.astype(np.uint32)
    return entries


if __name__ == "__main__":
    if unicodedata.unidata_version != VERSION:
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}, the table is {VERSION}")
    FILE.write_bytes(pack(build()))
