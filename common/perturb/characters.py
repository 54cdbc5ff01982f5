"""Noise of characters. Each function changes `rate` of a text's characters, as far as there are enough that it can change; of
whitespace and punctuation, `rate` of those. Nothing else of the text is touched."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping

from corpusmill.common.perturb.draw import some

ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# What recognition confuses one character with (Rice et al. 1996, classes of errors with one character for one).
OCR = {
    "0": "O", "O": "0", "o": "0", "1": "l", "l": "1", "i": "l", "I": "l", "5": "S", "S": "5", "8": "B", "B": "8", "e": "c",
    "c": "e", "u": "v", "v": "u", "h": "b", "b": "h", "n": "u", "f": "t", "t": "f", "g": "9", "9": "g", "2": "Z", "Z": "2",
    "6": "G", "G": "6", ".": ",", ",": ".",
}  # fmt: skip
# Of the confusables of Unicode (UTS 39) those that look alike in most typefaces.
HOMOGLYPHS = dict(
    zip(
        "aceijopsxyABCEHIJKMOPSTXYZ",
        "\u0430\u0441\u0435\u0456\u0458\u043e\u0440\u0455\u0445\u0443\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u039a\u041c\u041e\u0420\u0405\u0422\u0425\u03a5\u0396",
        strict=True,
    )
)
PUNCTUATION = frozenset(string.punctuation)


def _neighbours() -> dict[str, str]:
    """Of each letter those beside, above and below it on a QWERTY keyboard, whose rows stand half a key apart."""
    at = {
        letter: (row, column + row / 2) for row, keys in enumerate(ROWS) for column, letter in enumerate(keys)
    }
    found = {
        one: "".join(
            other for other, (row, column) in at.items()
            if other != one and abs(row - at[one][0]) <= 1 and abs(column - at[one][1]) <= 1
        )
        for one in at
    }  # fmt: skip
    return found | {one.upper(): others.upper() for one, others in found.items()}


NEIGHBOURS = _neighbours()


def typos(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Letters a to z become neighbours on a QWERTY keyboard, in the same case."""
    return _replaced(text, rate, draw, NEIGHBOURS)


def ocr(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Characters become what optical recognition takes them for, one for one."""
    return _replaced(text, rate, draw, OCR)


def homoglyphs(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Latin letters become Cyrillic or Greek ones of the same look."""
    return _replaced(text, rate, draw, HOMOGLYPHS)


def case(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Letters whose other case is one letter take it."""
    return _at(
        text,
        rate,
        len(text),
        draw,
        [at for at, one in enumerate(text) if len(_other_case(one)) == 1],
        _other_case,
    )


def whitespace(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Of the spaces, `rate` are doubled or left out, with equal chances."""
    places = [at for at, one in enumerate(text) if one == " "]
    return _at(text, rate, len(places), draw, places, lambda _: draw.choice(("", "  ")))


def punctuation(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Of the characters of ASCII punctuation, `rate` are left out."""
    places = [at for at, one in enumerate(text) if one in PUNCTUATION]
    return _at(text, rate, len(places), draw, places, lambda _: "")


def _other_case(one: str) -> str:
    """Empty for what has no case."""
    other = one.swapcase()
    return other if other != one and other.swapcase() == one else ""


def _replaced(text: str, rate: float, draw: random.Random, table: Mapping[str, str]) -> str:
    places = [at for at, one in enumerate(text) if one in table]
    return _at(text, rate, len(text), draw, places, lambda one: draw.choice(table[one]))


def _at(
    text: str, rate: float, of: int, draw: random.Random, places: list[int], change: Callable[[str], str]
) -> str:
    found = list(text)
    for at in some(places, of, rate, draw):
        found[at] = change(found[at])
    return "".join(found)
