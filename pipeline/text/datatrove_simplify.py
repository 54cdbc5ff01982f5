"""datatrove's `simplify_text` at its defaults, over UTF-8 bytes (datatrove 0.10.1, `utils/text.py`).

In this order, as there: `str.lower`; runs of decimal digits, with one decimal part, to "0"; punctuation and
control characters (datatrove's own list) to spaces; white space to one space; canonical decomposition, and what
is a non-spacing mark (Mn) dropped. What decomposes into punctuation after that stays. The quirks are kept:
"1,000,000" is "0 0"; a capital sigma at the end of a word is a final one; "İ" is "i".

By Unicode 14.0.0, the version of Python 3.11. datatrove takes its own from the Python that it runs in, and
the digits from the package `regex`: digits of scripts that were added later differ.
`python -m corpusmill.pipeline.text.datatrove_simplify` writes the table again.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.unicode_tables import BITS, CODE_POINTS, PIECES, POINT, unpack, write_table
from corpusmill.pipeline.text.utf8 import encode
from corpusmill.pipeline.text.word_hashes import byte_at, code_point
from corpusmill.pipeline.text.word_rule import SYLLABLES

FILE = Path(__file__).with_name("simplify.bin")
PUNCTUATION = frozenset(
    "!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»="
    + "".join(chr(x) for a, b in ((0, 9), (11, 13), (13, 32), (127, 160)) for x in range(a, b))
)
DECIMAL = frozenset(".,،٫⎖⎗⎘")
# An entry: code point or row of pieces, class << 21, case << 25, decimal separator << 27, order << 28.
SPACE, PLAIN, DIGIT, DROP, STOP, LATE, COMPOSED, HANGUL, SIGMA = range(9)
CASED, IGNORED = 1, 2
_CASE, _DECIMAL, _ORDER = 25, 27, 28
ORDERS = (6, 9, 216, 224, 226)  # combining classes of characters that are not Mn
RESERVE = 16  # bytes that one code point may give
_S = np.uint32(BITS)
_SPACE, _PLAIN, _DIGIT, _DROP, _STOP, _LATE, _COMPOSED, _HANGUL, _SIGMA = (np.uint32(k) for k in range(9))


class Simple(NamedTuple):
    """The table as the kernels take it."""

    entries: npt.NDArray[np.uint32]  # [0x110000]
    pieces: npt.NDArray[np.uint32]  # [composed, 4]: entries of the decomposition, filled up with DROP
    ascii: npt.NDArray[np.uint8]  # [256]: the lower case of an ASCII letter; else 0


def _piece(character: str) -> int:
    """The entry of a character that stands for itself. A combining class other than 0 moves it before those
    of greater class (LATE); a dropped mark of class 0 stops such moves (STOP)."""
    point, order = ord(character), unicodedata.combining(character)
    if unicodedata.category(character) == "Mn":
        return (DROP if order else STOP) << BITS | point
    if order:
        return ORDERS.index(order) + 1 << _ORDER | LATE << BITS | point
    return PLAIN << BITS | point


def _case(character: str) -> int:
    """How a character counts for the final sigma, as `str.lower` shows it."""
    if (character + "Σ").lower().endswith("ς"):
        return CASED
    return IGNORED if ("a" + character + "Σ").lower().endswith("ς") else 0


def build() -> Simple:
    """The table from this Python's `str.lower` and `unicodedata`."""
    entries = np.zeros(CODE_POINTS, np.uint32)
    pieces: list[list[int]] = []
    for point in range(CODE_POINTS):
        character = chr(point)
        if unicodedata.category(character) == "Nd":  # before punctuation, to which "１" belongs as well
            entry = DIGIT << BITS | point
        elif character in PUNCTUATION or character.isspace():
            entry = SPACE << BITS | point
        elif character == "Σ":
            entry = SIGMA << BITS | point
        elif point in SYLLABLES:
            entry = HANGUL << BITS | point
        else:
            lower = unicodedata.normalize("NFD", character.lower())
            parts = [part for part in map(_piece, lower) if part >> BITS & 15 != DROP] or [
                DROP << BITS | point
            ]
            entry = parts[0]
            if len(parts) > 1:
                entry = COMPOSED << BITS | len(pieces)
                pieces.append(parts + [DROP << BITS] * (PIECES - len(parts)))
        decimal = (character in DECIMAL) << _DECIMAL
        entries[point] = entry | _case(character) << _CASE | decimal
    return Simple(entries, np.array(pieces, np.uint32), _ascii())


def _ascii() -> npt.NDArray[np.uint8]:
    letters = [ord(chr(i).lower()) if i < 128 and chr(i).isalpha() else 0 for i in range(256)]
    return np.array(letters, np.uint8)


@lru_cache(maxsize=1)
def simple() -> Simple:
    """The table of the package."""
    entries, pieces = unpack(FILE.read_bytes())
    return Simple(entries, pieces, _ascii())


@compiled
def _reorder(out: Any, run: int, end: int, table: Any) -> None:
    """Canonical ordering of the LATE characters in `out[run:end]`: by combining class, else as they stand."""
    copy = out[run:end].copy()
    place = run
    for order in range(1, 6):
        i = 0
        while i < len(copy):
            point, following = code_point(copy, i, len(copy))
            if table.entries[point] >> np.uint32(_ORDER) == order:
                for k in range(i, following):
                    out[place] = copy[k]
                    place += 1
            i = following


@compiled
def _final(data: Any, i: int, stop: int, table: Any) -> Any:
    """Whether no cased letter follows, with only ignored characters between."""
    while i < stop:
        point, i = code_point(data, i, stop)
        case = (
            table.entries[point] >> np.uint32(_CASE) & np.uint32(3) if point < CODE_POINTS else np.uint32(0)
        )
        if case != IGNORED:
            return case != CASED
    return True


@compiled
def _number(data: Any, i: int, stop: int, table: Any) -> int:
    """Where a number ends whose first digit lies before `i`."""
    decimals = 0
    after = i  # the end of the digits
    while i < stop:
        point, following = code_point(data, i, stop)
        entry = table.entries[point] if point < CODE_POINTS else np.uint32(0)
        if entry >> _S & np.uint32(15) == _DIGIT:
            after = following
        elif decimals == 0 and i == after and entry >> np.uint32(_DECIMAL) & np.uint32(1):
            decimals = 1
        else:
            break
        i = following
    return after


@compiled
def simplify(data: Any, i: int, stop: int, table: Any, cased: bool, run: int, out: Any, end: int) -> Any:
    """Simplified bytes of UTF-8 `data[i:stop]` after `out[:end]`: (where it stopped, cased, run, end).

    It stops at the end of the text or where less than `RESERVE` of `out` is left. Words stand one space apart,
    and a space may be left at the end. `cased`: the last letter counts for a final sigma (begin with False).
    `run`: where the LATE characters at the end of `out` begin, -1 for none (begin with -1).
    """
    last = len(out) - RESERVE
    while i < stop and end <= last:
        letter = table.ascii[byte_at(data, i)]
        if letter:
            if run >= 0:
                _reorder(out, run, end, table)
                run = -1
            while letter and end <= last:
                out[end] = letter
                end += 1
                i += 1
                letter = table.ascii[byte_at(data, i)] if i < stop else np.uint8(0)
            cased = True
            continue
        point, i = code_point(data, i, stop)
        entry = table.entries[point] if point < CODE_POINTS else np.uint32(0)
        kind = entry >> _S & np.uint32(15)
        if kind == _SIGMA:
            point = np.uint32(0x3C2) if cased and _final(data, i, stop, table) else np.uint32(0x3C3)
            entry = _PLAIN << _S | point
        elif kind == _DIGIT:
            i = _number(data, i, stop, table)
            entry = _PLAIN << _S | np.uint32(0x30)
        case = entry >> np.uint32(_CASE) & np.uint32(3)
        cased = kind == _SIGMA or case == CASED or (case == IGNORED and cased)
        pieces = table.pieces.shape[1] if kind == _COMPOSED else 1
        row = entry & np.uint32(POINT)
        for k in range(pieces):
            if pieces > 1:
                entry = table.pieces[row, k]
            kind, point = entry >> _S & np.uint32(15), entry & np.uint32(POINT)
            if kind == _DROP:
                continue
            if kind == _LATE:
                run = end if run < 0 else run
                end = encode(point, out, end)
                continue
            if run >= 0:
                _reorder(out, run, end, table)
                run = -1
            if kind == _PLAIN:
                end = encode(point, out, end)
            elif kind == _SPACE:
                if end > 0 and out[end - 1] != 0x20:
                    out[end] = 0x20
                    end += 1
            elif kind == _HANGUL:
                index = point - np.uint32(0xAC00)
                end = encode(np.uint32(0x1100) + index // np.uint32(588), out, end)
                end = encode(np.uint32(0x1161) + index % np.uint32(588) // np.uint32(28), out, end)
                if index % np.uint32(28):
                    end = encode(np.uint32(0x11A7) + index % np.uint32(28), out, end)
    if i >= stop and run >= 0:
        _reorder(out, run, end, table)
        run = -1
    return i, cased, run, end


if __name__ == "__main__":
    write_table(FILE, *build()[:2])
