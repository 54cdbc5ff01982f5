"""Numbers of cards, accounts (IBAN) and people, by their check digits; national ones by python-stdnum.

A number is accepted on its own where its form is distinctive and its check strong; otherwise a word of its country
must stand before it. Numbers that are never issued (test ranges, births in the 1800s) are none: `pseudonyms` makes
such ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from corpusmill.pipeline.redact import ALNUM, DIGITS, Hit, Kind, after, before, context

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
    """A card number: an issuer's. `table`: more groups of four stand beside it, so a context word is required."""
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


WINDOW = 60  # bytes before a number in which its name is looked for


class Number(NamedTuple):
    """A number's validator, the forms taken anywhere, those taken beside its name, and the name.

    Forms are of letters as `A` and digits as `9`, other characters as they are. Spaces are also no-break spaces.
    """

    module: str  # of stdnum
    sure: frozenset[str]
    named: frozenset[str]
    name: re.Pattern[bytes]
    issued: Callable[[str], bool]  # of the compact form: whether such numbers are given out


def _forms(*forms: str) -> frozenset[str]:
    return frozenset(forms)


def _name(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?i)" + pattern)


_ID_CODE = "AAAAAA99A99A999A"
NUMBERS: dict[Kind, Number] = {
    "br_cpf": Number("br.cpf", _forms("999.999.999-99"), _forms("9" * 11), _name(rb"\bcpf\b|cadastro de pessoa"), bool),
    "ca_sin": Number(
        "ca.sin", _forms(), _forms("9" * 9, "999 999 999", "999-999-999"),
        _name(rb"\bsin\b|social insurance|assurance sociale|\bnas\b"), lambda n: n[0] not in "08",
    ),
    "de_idnr": Number(
        "de.idnr", _forms(), _forms("9" * 11, "99 999 999 999"),
        _name(rb"steuer|\bidnr|\bid-?nr|identifikationsnummer|\btin\b|\btax"), lambda n: n[0] != "0",
    ),
    "es_dni": Number(
        "es.dni", _forms("99.999.999-A"), _forms("99999999A", "99999999-A", "99999999 A", "A9999999A"),
        _name(rb"\bd\.?n\.?i\b|\bn\.?i\.?[ef]\b|identidad|identificaci|documento|c\xc3\xa9dula"), bool,
    ),
    "fr_nir": Number(
        "fr.nir", _forms("9 99 99 99 999 999 99", "9" * 13 + " 99", "9" * 15, "999999A99999999"), _forms(), _name(rb"$."),
        lambda n: n[0] in "12" and n[5:7] != "00" and (1 <= int(n[3:5]) <= 12 or int(n[3:5]) >= 20),
    ),
    "gb_nhs": Number(
        "gb.nhs", _forms(), _forms("9" * 10, "999 999 9999", "999-999-9999"),
        _name(rb"\bnhs\b|national health|health service"), lambda n: n[:3] != "999",
    ),
    "gb_nino": Number(
        "", _forms("AA 99 99 99 A"), _forms("AA999999A"),
        _name(rb"national insurance|\bnino?\b|\bni[ -](?:no|num)|insurance n"), lambda n: True,
    ),
    "in_aadhaar": Number(
        "in_.aadhaar", _forms(), _forms("9" * 12, "9999 9999 9999", "9999-9999-9999"),
        _name(rb"aadha+r|\buid(?:ai)?\b|\xe0\xa4\x86\xe0\xa4\xa7\xe0\xa4\xbe\xe0\xa4\xb0"), lambda n: n[0] not in "01",
    ),
    "it_cf": Number(
        "it.codicefiscale", _forms(_ID_CODE), _forms(), _name(rb"$."), lambda n: n[11:13] != "Z0",
    ),
    "nl_bsn": Number(
        "nl.bsn", _forms(), _forms("9" * 9, "999 999 999", "999.999.999", "9999.99.999"),
        _name(rb"\bbsn\b|burgerservice|sofi-?n"), lambda n: n[:3] != "999",
    ),
    "pl_pesel": Number("pl.pesel", _forms(), _forms("9" * 11), _name(rb"pesel"), lambda n: n[2] not in "89"),
    "se_pnr": Number(
        "se.personnummer", _forms("99999999-9999"), _forms("999999-9999", "9" * 10, "9" * 12),
        _name(rb"person-?n(?:umme)?r|\bpnr\b|person(?:al)? ?(?:identity )?number|samordningsn|f\xc3\xb6delse|\bssn\b"),
        lambda n: len(n) < 12 or n[:2] in ("19", "20"),
    ),
}  # fmt: skip
_NINO = re.compile(r"(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][0-9]{6}[A-D]")
_CODE_FORM = re.compile(r"[A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]")
_LETTER, _DIGIT = re.compile(r"[A-Za-z]"), re.compile(r"[0-9]")
_DASHES = re.compile("[\u2010-\u2015]")


@lru_cache(maxsize=64)
def by_form(kinds: frozenset[str]) -> dict[str, list[tuple[Kind, bool]]]:
    """Form -> the kinds written so, and whether a context word is required."""
    table: dict[str, list[tuple[Kind, bool]]] = {}
    for kind, number in NUMBERS.items():
        if kind in kinds:
            for forms, named in ((number.sure, False), (number.named, True)):
                for form in sorted(forms):
                    table.setdefault(form, []).append((kind, named))
    return table


def national(buffer: bytes, start: int, end: int, kinds: frozenset[str]) -> Iterator[Hit]:
    """The national numbers that the bytes from `start` to `end` are, mostly none or one."""
    left, right = before(buffer, start, 1), after(buffer, end, 2)
    if left and (left[-1] in ALNUM or left[-1] in b"_-./"):
        return
    if right and (
        right[0] in ALNUM or right[0] in b"_" or (right[0] in b"-./" and right[1:] and right[1] in ALNUM)
    ):
        return
    value = _DASHES.sub("-", buffer[start:end].decode("utf-8", "replace").replace("\u00a0", " "))
    value = value.replace("\u202f", " ")
    for kind, named in by_form(kinds).get(form(value), ()):
        if (not named or NUMBERS[kind].name.search(context(buffer, start, WINDOW))) and is_number(
            kind, value
        ):
            yield Hit(start, end, kind)


def form(value: str) -> str:
    """Letters as `A`, digits as `9`; an Italian code's digits that are written as letters count as digits."""
    if len(value) == 16 and _CODE_FORM.fullmatch(value.upper()):
        return _ID_CODE
    return _DIGIT.sub("9", _LETTER.sub("A", value))


def is_number(kind: Kind, value: str) -> bool:
    """Whether the check digits are right, and such numbers are issued."""
    number, bare = NUMBERS[kind], compact(value)
    if kind == "gb_nino":  # no check digit: the letters in use
        return _NINO.fullmatch(bare) is not None
    module = number.module
    if kind == "es_dni" and bare[0] in "XYZ":
        module = "es.nie"
    elif kind == "se_pnr":
        return number.issued(bare) and bool(import_module("stdnum.se.personnummer").is_valid(_swedish(bare)))
    return bool(import_module(f"stdnum.{module}").is_valid(bare)) and number.issued(bare)


def compact(value: str) -> str:
    """Letters, in capitals, and digits alone."""
    return "".join(c for c in value.upper() if c.isalnum())


def _swedish(digits: str) -> str:
    return f"{digits[:-4]}-{digits[-4:]}"
