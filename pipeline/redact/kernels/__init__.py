"""One pass over a batch's bytes that yields the few candidates: `candidates.py` is the loop, `digit_groups.py` judges
groups of digits, `tokens.py` words with digits, `around.py` what surrounds `@`, `:`, `=`, `-` and `_`; `known.py` finds what is known.

What the kernels share stands here: classes of bytes, classes of candidates, and the growing list of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

# Classes of candidates: what a detector is then asked about.
AT: Final = 1  # from `@` to the end of what may be a domain
IP4: Final = 2  # four small numbers with points
IP6: Final = 3
MAC: Final = 4
CARD: Final = 5  # a right Luhn digit in a shape of cards, standing alone
CARD_TABLE: Final = 6  # the same with more groups of four beside it
SSN: Final = 7
NUMBER: Final = 8  # digits that may be a national number
WORD: Final = 9  # letters and digits that may be a national number
PHONE: Final = 10  # groups of digits that may hold telephone numbers
IBAN: Final = 11  # right modulo 97 and of its country's length
COIN: Final = 12  # an address of Bitcoin or Ethereum, checksum not looked at
FORMAT: Final = 13  # begins like a key of a known issuer
PEM: Final = 14
ASSIGNED: Final = 15  # the `=` or `:` between a telling name and a long value
USERINFO: Final = 16  # the `://` of a URL with an `@` before its first slash
QUERY: Final = 17  # the `=` of a telling parameter of a URL
MASKED: Final = 18  # digits beside signs that hide others
LABELLED: Final = 19  # a word with a digit that may stand behind a label
CANDIDATES: Final = 20

# Separators between two groups of digits. From OTHER on they end a segment.
BLANK, HYPHEN, POINT, SLASH, CLOSE, BLANK_OPEN, OPEN, OTHER = range(1, 9)

# Classes of bytes in the outer loop. All others are skipped.
DIGIT, COMMERCIAL_AT, COLON, EQUALS, DASH, UNDERSCORE, CAPITAL = range(1, 8)


def _byte_classes() -> npt.NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    table[list(b"0123456789")] = DIGIT
    for byte, kind in (
        (b"@", COMMERCIAL_AT),
        (b":", COLON),
        (b"=", EQUALS),
        (b"-", DASH),
        (b"_", UNDERSCORE),
    ):
        table[byte[0]] = kind
    table[list(b"KSzJG")] = CAPITAL  # of AKIA, ASIA, AIza, eyJ and SG.
    return table


def _is(members: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = b"0123456789"
CLASSES = _byte_classes()
IS_DIGIT = _is(_DIGITS)
IS_ALNUM = _is(_LETTERS + _DIGITS)
IS_LETTER = _is(_LETTERS)
IS_WORD = _is(_LETTERS + _DIGITS + b"_")
IS_HEX = _is(b"0123456789abcdefABCDEF")
IS_VALUE = _is(_LETTERS + _DIGITS + b"+/_-.=~")  # of an assigned secret
IS_DOMAIN = _is(_LETTERS + _DIGITS + b".-" + bytes(range(0x80, 0x100)))
IS_LOCAL = _is(_LETTERS + _DIGITS + b"!#$%&'*+/=?^_`{|}~-" + bytes(range(0x80, 0x100)))


@compiled
def put(found: Any, count: int, kind: int, start: int, end: int) -> int:
    """The count of candidates with this one, which is written at row `count` of `found` (int64[capacity, 3]) if it
    fits: a caller that sees a count beyond the capacity allocates a larger array."""
    if count < len(found):
        found[count, 0] = kind
        found[count, 1] = start
        found[count, 2] = end
    return count + 1
