"""The word rule of deduplication as a table: for each code point, its class and its case-folded form.

A text is read as its canonical decomposition (NFD), so that the NFC, NFD and any other canonically equivalent
spelling of a text give the same words and the same hashes. By Unicode general category:

- letters and numbers (L*, N*) make words, folded by Unicode simple case folding;
- marks (M*) belong to the character before them and are kept, in whatever order they stand; with no word
  before them they separate;
- letters of scripts written without spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan and the like) are
  words of one character each, with their marks: otherwise a whole sentence would be one word;
- Hangul syllables are letters; conjoining vowels and finals belong to the character that they continue, so that
  a syllable is one character, composed or not;
- invisible format characters (Cf: soft hyphen, joiners, direction marks) are passed over, but for the zero
  width space, which separates, as do punctuation, symbols, white space and everything else.

Compatibility forms (NFKC: ligatures, full width, superscripts) are not unified: they are other characters.
Code points that Unicode 14.0.0 does not assign separate words; what a later Unicode says of them is not known
here, and the equality of spellings holds for the others.

The table is a file of the package rather than made from `unicodedata` at run time, so that two Python
versions give the same bytes. `python -m corpusmill.pipeline.text.word_rule` writes it again.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.unicode_tables import BITS, CODE_POINTS, PIECES, VERSION, unpack, write_table

RULE = f"2/unicode-{VERSION}"  # of words and their hashes; raised with every change of either
FILE = Path(__file__).with_name("unicode.bin")
CLASS_SHIFT = BITS
SEPARATOR, LETTER, MARK, ALONE, SKIP, JOIN, COMPOSED, HANGUL = range(8)
SYLLABLES = range(0xAC00, 0xD7A4)

# First and last code point of the blocks whose letters stand alone.
UNSPACED = (
    (0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF),
    (0x1A20, 0x1AAF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B),
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF),
    (0xAA60, 0xAADF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip
CONJOINING = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))  # Hangul vowels and finals


class Rule(NamedTuple):
    """The table as the kernels take it."""

    entries: npt.NDArray[np.uint32]  # [0x110000]: class << 21 | folded code point, or the row of `pieces`
    pieces: npt.NDArray[np.uint32]  # [composed, 4]: entries of the decomposition, filled up with SKIP
    ascii: npt.NDArray[np.uint8]  # [256]: the folded form of an ASCII letter or digit; else 0


def fold(character: str) -> str:
    """Unicode simple case folding of one character (CaseFolding.txt, statuses C and S)."""
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()[0]


def within(point: int, blocks: tuple[tuple[int, int], ...]) -> bool:
    """Whether a code point lies in one of the blocks."""
    return any(first <= point <= last for first, last in blocks)


def classify(character: str) -> int:
    """The class of one character that is its own decomposition, by the rule above."""
    point, category = ord(character), unicodedata.category(character)
    if category[0] == "M":
        return MARK
    if category[0] in "LN":
        if within(point, CONJOINING):
            return JOIN
        return ALONE if within(point, UNSPACED) and category != "Nd" else LETTER
    return SKIP if category == "Cf" and point != 0x200B else SEPARATOR


def decompose(character: str) -> list[int]:
    """Entries of the folded canonical decomposition of one character."""
    parts = unicodedata.normalize("NFD", character)
    if classify(parts[0]) == SEPARATOR:  # marks after it separate as well
        parts = parts[0]
    return [classify(part) << CLASS_SHIFT | ord(fold(part)) for part in parts]


def build() -> Rule:
    """The rule from this Python's `unicodedata`."""
    entries = np.zeros(CODE_POINTS, np.uint32)
    pieces: list[list[int]] = []
    for point in range(CODE_POINTS):
        if point in SYLLABLES:
            entries[point] = HANGUL << CLASS_SHIFT | point
            continue
        parts = decompose(chr(point))
        if len(parts) > 1:
            entries[point] = COMPOSED << CLASS_SHIFT | len(pieces)
            pieces.append(parts + [SKIP << CLASS_SHIFT] * (PIECES - len(parts)))
        else:
            entries[point] = parts[0]
    return Rule(entries, np.array(pieces, np.uint32), _ascii(entries))


def _ascii(entries: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    letters = entries[:128] >> CLASS_SHIFT == LETTER
    table[:128] = np.where(letters, entries[:128] & 0xFF, 0)
    return table


@lru_cache(maxsize=1)
def rule() -> Rule:
    """The rule of the package."""
    entries, pieces = unpack(FILE.read_bytes())
    return Rule(entries, pieces, _ascii(entries))


if __name__ == "__main__":
    write_table(FILE, *build()[:2])
