"""National numbers of people, by the check digits of python-stdnum.

A number is taken without more ado where its form is distinctive and its check strong; otherwise a word of its country
must stand before it. Numbers that are never issued (test ranges, births in the 1800s) are none: `pseudonyms` makes
such ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from corpusmill.pipeline.redact.scan import ALNUM, Hit, Kind, after, before, context

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
    """Form -> the kinds written so, and whether a word must say so."""
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
