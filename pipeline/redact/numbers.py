"""Runs of digits: payment cards, US social security numbers, IBANs. Telephones are in `phones`.

A run is the longest stretch of digit groups with at most three separators between them. It is taken apart
into groups, and each detector tries the sequences of groups that its kind can be written as: so a card's
number beside other numbers is found, and the first ten digits of a longer number are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pipeline.redact.scan import ALNUM, DIGITS, Hit, after, before, spans

# Blanks, no-break spaces and the Unicode hyphens and dashes count like ' ' and '-'.
SEPARATORS = rb"(?:[ .\-/()\t]|\xc2\xa0|\xe2\x80[\x90-\x95\xaf])"
RUN = rb"[0-9](?:" + SEPARATORS + rb"{0,3}[0-9]){6,}"
_GROUP = re.compile(rb"[0-9]+")
_BLANKS = re.compile(rb"\xc2\xa0|\xe2\x80\xaf")
_DASHES = re.compile(rb"\xe2\x80[\x90-\x95]")
_WEAK = frozenset((b" ", b"-", b".", b"/", b") ", b")-", b")", b" (", b"-(", b".("))


class Group(NamedTuple):
    """Digits without a separator, and the separator before them ('' for the first)."""

    digits: str
    start: int
    end: int
    separator: bytes


# What a run must hold at the least, tried before it is taken apart: most runs are dates and measures.
_CARD_LIKE = re.compile(
    rb"[0-9]{12}|[0-9]{4}" + SEPARATORS + rb"[0-9]{4}" + SEPARATORS + rb"[0-9]{4}|[0-9]{4}.{1,3}[0-9]{6}"
)
_SSN_LIKE = re.compile(rb"[0-9]{9}|[0-9]{3}" + SEPARATORS + rb"[0-9]{2}" + SEPARATORS + rb"[0-9]{4}")
_NO_PHONE = re.compile(rb"[0-9]+\.[0-9]+$|(?:1[0-9]|20)[0-9]{2}[-/.][0-9]{2}[-/.][0-9]{2}(?![0-9])")
_TABLE = 48  # bytes; a longer run with neither '(' nor '-' nor '+' is a row of measures


def runs(buffer: bytes, kinds: frozenset[str]) -> Iterator[tuple[list[Group], frozenset[str]]]:
    """Groups of each run, and which of the kinds they may hold; a run is cut where more than an ordinary
    separator lies between two groups."""
    for start, end in spans(RUN, buffer):
        run = buffer[start:end]
        likely = set()
        if "card" in kinds and _CARD_LIKE.search(run):
            likely.add("card")
        if "ssn" in kinds and _SSN_LIKE.search(run):
            likely.add("ssn")
        signed = b"+" in buffer[max(0, start - 2) : start]
        if "phone" in kinds and (
            signed or (not _NO_PHONE.match(run) and (len(run) < _TABLE or b"(" in run or b"-" in run))
        ):
            likely.add("phone")
        if likely:
            for groups in _split(buffer, start, end):
                yield groups, frozenset(likely)


def _split(buffer: bytes, start: int, end: int) -> Iterator[list[Group]]:
    groups: list[Group] = []
    for match in _GROUP.finditer(buffer, start, end):
        separator = buffer[groups[-1].end : match.start()] if groups else b""
        if len(separator) > 1:
            separator = _DASHES.sub(b"-", _BLANKS.sub(b" ", separator))
        if groups and separator not in _WEAK:
            yield groups
            groups, separator = [], b""
        groups.append(Group(match.group().decode(), match.start(), match.end(), separator))
    yield groups


# --- payment cards: ISO/IEC 7812 with the issuers' ranges, and the Luhn digit.
_CARD_CONTEXT = re.compile(
    rb"(?i)card|visa|master|amex|american express|maestro|discover|diners|jcb|unionpay|credit|debit|\bcc\b"
    rb"|payment"
)
_CARD_SHAPES = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1)}
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


def cards(buffer: bytes, groups: list[Group]) -> Iterator[Hit]:
    """Card numbers in a run: contiguous, or in the issuers' groups with one kind of separator."""
    for first, group in enumerate(groups):
        if len(group.digits) != 4 and not 12 <= len(group.digits) <= 19:
            continue
        for last in range(min(first + 5, len(groups)) - 1, first - 1, -1):
            chosen = groups[first : last + 1]
            shape = tuple(len(group.digits) for group in chosen)
            separators = {group.separator for group in chosen[1:]}
            if len(shape) > 1 and (shape not in _CARD_SHAPES or separators not in ({b" "}, {b"-"})):
                continue
            digits = "".join(group.digits for group in chosen)
            if not is_card(digits) or not _stands_alone(buffer, groups, first, last):
                continue
            context = _CARD_CONTEXT.search(before(buffer, chosen[0].start, 48))
            table = len(shape) > 1 and (_fours(groups, first - 1) or _fours(groups, last + 1))
            if (len(digits) in _CARD_UNSURE or table) and not context:
                continue
            yield Hit(chosen[0].start, chosen[-1].end, "card")
            break


def is_card(digits: str) -> bool:
    """Length and prefix of an issuer's range, and a right Luhn digit."""
    from stdnum import luhn

    if not 12 <= len(digits) <= 19:
        return False
    prefix = int(digits[:6])
    return any(
        low <= prefix <= high and len(digits) in sizes for low, high, sizes in _ISSUERS
    ) and luhn.is_valid(digits)


def _fours(groups: list[Group], index: int) -> bool:
    return 0 <= index < len(groups) and len(groups[index].digits) == 4


def _stands_alone(buffer: bytes, groups: list[Group], first: int, last: int) -> bool:
    """No letter, digit, decimal point or path touches the groups from either side."""
    if first > 0:
        if groups[first].separator not in (b" ", b" ("):
            return False
    else:
        left = before(buffer, groups[0].start, 2)
        if left and (left[-1] in ALNUM or left[-1] in b"_#$@%&/\\.-+"):
            return False
        if len(left) == 2 and left[-1] in b",:" and left[0] in DIGITS:
            return False
    if last < len(groups) - 1:
        return groups[last + 1].separator in (b" ", b") ", b" (")
    right = after(buffer, groups[last].end, 2)
    if right and (right[0] in ALNUM or right[0] in b"_@%&"):
        return False
    return not (len(right) == 2 and right[0] in b".,-/:" and right[1] in ALNUM)


# --- US social security numbers
_SSN_CONTEXT = re.compile(rb"(?i)\bssn\b|social[ -]?security|\bss#")


def ssns(buffer: bytes, groups: list[Group]) -> Iterator[Hit]:
    """`AAA-GG-SSSS` of the ranges in use; written otherwise only beside "SSN" or "social security"."""
    from stdnum.us import ssn

    for first, group in enumerate(groups):
        if len(group.digits) not in (3, 9):
            continue
        for size in (1, 3):
            chosen, last = groups[first : first + size], first + size - 1
            shape = tuple(len(item.digits) for item in chosen)
            if len(chosen) < size or shape not in ((9,), (3, 2, 4)):
                continue
            dashed = shape == (3, 2, 4) and all(item.separator == b"-" for item in chosen[1:])
            spaced = shape == (9,) or all(item.separator in (b" ", b".") for item in chosen[1:])
            if not dashed and not (spaced and _SSN_CONTEXT.search(before(buffer, group.start, 48))):
                continue
            if _stands_alone(buffer, groups, first, last) and ssn.is_valid(
                "".join(item.digits for item in chosen)
            ):
                yield Hit(group.start, chosen[-1].end, "ssn")


# --- IBAN
IBAN = rb"[A-Za-z]{2}[0-9]{2}[ -]?[A-Za-z0-9]{4}"
_IBAN_REST = re.compile(rb"[A-Za-z]{2}[0-9]{2}(?:(?: |-|\xc2\xa0)?[A-Za-z0-9])*")


def ibans(buffer: bytes) -> Iterator[Hit]:
    """International bank account numbers (ISO 13616): the country's length, and 1 modulo 97."""
    from stdnum import iban

    for start, _ in spans(IBAN, buffer):
        left = before(buffer, start, 1)
        size = iban_length(buffer[start : start + 2].decode().upper())
        if not size or (left and (left[0] in ALNUM or left[0] in b"_-")):
            continue
        match = _IBAN_REST.match(buffer, start, start + 2 * size + 8)
        assert match is not None
        end, taken = start, 0
        while taken < size and end < match.end():
            taken += buffer[end] in ALNUM
            end += 1
        right = after(buffer, end, 1)
        compact = bytes(byte for byte in buffer[start:end] if byte in ALNUM).decode().upper()
        if (
            taken == size
            and not (right and right[0] in ALNUM)
            and iban.is_valid(compact, check_country=False)
        ):
            yield Hit(start, end, "iban")


@lru_cache(maxsize=512)
def iban_length(country: str) -> int:
    """Characters of an IBAN of that country, 0 if it has none (registry: python-stdnum)."""
    from stdnum import numdb

    info = numdb.get("iban").info(country)[0][1]
    return 4 + sum(int(size) for size in re.findall(r"(\d+)!", info.get("bban", ""))) if info else 0
