"""Scripts of letters: how many of a text's letters are Latin, Cyrillic, Han and so on, over Arrow buffers.

A script is the first word of a character's Unicode name (`unicodedata`), which differs from the property Script of UAX #24
in rare signs only, and needs no further table.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.stored_tables import stored
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.text.utf8 import decode

NONE: Final = 0  # no letter, or a letter of a script that is not listed
SCRIPTS: Final = (
    "", "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Han", "Hiragana", "Katakana", "Hangul", "Devanagari",
    "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao",
    "Myanmar", "Khmer", "Tibetan", "Ethiopic", "Georgian", "Armenian", "Thaana", "Cherokee", "Canadian", "Ol", "Nko",
    "Syriac", "Yi", "Tifinagh", "Mongolian", "Javanese", "Meetei", "Gothic", "Bopomofo", "Limbu", "Sundanese",
    "Balinese", "Buginese", "Vai", "Adlam", "Lisu", "Cham",
)  # fmt: skip
_LIMIT: Final = 0x20000  # beyond it letters are Han
_NAMES: Final = {"Cjk": "Han", "Ideographic": "Han"}


@stored()
def table() -> Array:
    """uint8[code points]: the number in `SCRIPTS` of each letter's script."""
    numbers = {name: number for number, name in enumerate(SCRIPTS)}
    found = np.zeros(0x110000, np.uint8)
    for point in range(0x41, _LIMIT):
        if 0x3400 <= point <= 0x9FFF:
            found[point] = numbers["Han"]
        elif 0xAC00 <= point <= 0xD7A3:
            found[point] = numbers["Hangul"]
        elif unicodedata.category(chr(point))[0] == "L":
            first = unicodedata.name(chr(point), "").partition(" ")[0].partition("-")[0].capitalize()
            found[point] = numbers.get(_NAMES.get(first, first), NONE)
    found[_LIMIT:0x32000] = numbers["Han"]
    return found


def letters_by_script(data: Array, first: Array, last: Array, owner: Array) -> Array:
    """int64[D, scripts]: letters of each script in the pieces data[first[p]:last[p]] of document d, which are
    owner[d]:owner[d + 1]; column 0 counts letters of no listed script and is left at 0."""
    out = np.zeros((len(owner) - 1, len(SCRIPTS)), np.int64)
    _count(data, first, last, owner, table(), out)
    return out


@compiled
def _count(data: Any, first: Any, last: Any, owner: Any, scripts: Any, out: Any) -> None:
    for d in range(len(owner) - 1):
        for p in range(owner[d], owner[d + 1]):
            i, end = first[p], last[p]
            while i < end:
                latin = np.int64(0)
                while i < end and data[i] < 128:
                    latin += np.uint8((data[i] | 32) - 97) < 26
                    i += 1
                out[d, 1] += latin
                if i >= end:
                    break
                c, size = decode(data, i)
                out[d, scripts[c]] += 1
                i += size
        out[d, 0] = 0
