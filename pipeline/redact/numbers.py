"""Payment cards and US social security numbers, of which the kernels found digits in the right shape, standing
alone, and IBANs, of which nothing is left to check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from corpusmill.pipeline.redact.scan import DIGITS, Hit, context

# --- payment cards: ISO/IEC 7812 with the issuers' ranges, and the Luhn digit.
_CARD_CONTEXT = re.compile(
    rb"(?i)card|visa|master|amex|american express|maestro|discover|diners|jcb|unionpay|credit|debit|\bcc\b"
    rb"|payment"
)
_ISSUERS: tuple[tuple[int, int, tuple[int, ...]], ...] = (  # first six digits from, to, lengths
    (400000, 499999, (13, 16, 19)),  # Visa
    (510000, 559999, (16,)), (222100, 272099, (16,)),  # Mastercard
    (340000, 349999, (15,)), (370000, 379999, (15,)),  # American Express
    (601100, 601199, (16, 19)), (644000, 659999, (16, 19)),  # Discover
    (352800, 358999, (16, 17, 18, 19)), (213100, 213199, (15,)), (180000, 180099, (15,)),  # JCB
    (300000, 305999, (14, 16)), (309500, 309599, (14,)), (360000, 369999, (14, 16)),  # Diners
    (380000, 399999, (14, 16)),
    (620000, 629999, (16, 17, 18, 19)),  # UnionPay
    (501800, 501899, (12, 13, 14, 15, 16, 18, 19)), (502000, 502099, (12, 13, 14, 15, 16, 18, 19)),  # Maestro
    (503800, 503899, (12, 13, 14, 15, 16, 18, 19)), (560000, 589999, (12, 13, 14, 15, 16, 18, 19)),
    (630400, 630499, (12, 13, 14, 15, 16, 18, 19)), (639000, 639099, (12, 13, 14, 15, 16, 18, 19)),
    (675900, 676399, (12, 13, 14, 15, 16, 18, 19)),
    (220000, 220499, (16, 17, 18, 19)),  # Mir
)  # fmt: skip
# As often a telephone or a serial number: only beside a word such as "card".
_CARD_UNSURE = (12, 13, 14)


def cards(buffer: bytes, start: int, end: int, table: bool) -> Iterator[Hit]:
    """A card number: an issuer's. `table`: more groups of four stand beside it, so a word must say so."""
    digits = only_digits(buffer[start:end])
    if is_card(digits) and (
        (len(digits) not in _CARD_UNSURE and not table) or _CARD_CONTEXT.search(context(buffer, start, 48))
    ):
        yield Hit(start, end, "card")


def is_card(digits: str) -> bool:
    """Length and prefix of an issuer's range, and a right Luhn digit."""
    from stdnum import luhn

    if not 12 <= len(digits) <= 19:
        return False
    prefix = int(digits[:6])
    return any(
        low <= prefix <= high and len(digits) in sizes for low, high, sizes in _ISSUERS
    ) and luhn.is_valid(digits)


# --- US social security numbers
_SSN_CONTEXT = re.compile(rb"(?i)\bssn\b|social[ -]?security|\bss#")


def ssns(buffer: bytes, start: int, end: int) -> Iterator[Hit]:
    """`AAA-GG-SSSS` of the ranges in use; written otherwise only beside "SSN" or "social security"."""
    from stdnum.us import ssn

    value = buffer[start:end]
    dashed = value.count(b"-") + value.count(b"\xe2\x80") == 2
    plain = len(value) == 9 or not value.strip(b"0123456789 .")
    if not dashed and not (plain and _SSN_CONTEXT.search(context(buffer, start, 48))):
        return
    if ssn.is_valid(only_digits(value)):
        yield Hit(start, end, "ssn")


def only_digits(value: bytes) -> str:
    """The ASCII digits of `value`."""
    return bytes(byte for byte in value if byte in DIGITS).decode()


@lru_cache(maxsize=1024)
def iban_length(country: str) -> int:
    """Characters of an IBAN of that country, 0 if it has none (registry: python-stdnum)."""
    from stdnum import numdb

    info = numdb.get("iban").info(country)[0][1]
    return 4 + sum(int(size) for size in re.findall(r"(\d+)!", info.get("bban", ""))) if info else 0
