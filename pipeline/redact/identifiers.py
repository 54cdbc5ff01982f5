"""Numbers of records and people that nothing but a label tells from other numbers: patients, social security, licences, orders, cases.

A word or two of `identifier_labels` stands right before the value. What speaks for a number and against it is counted:

    label that names the number itself (`NASS`, `order number` in one word)   3
    the same, of up to four letters, not in capitals                          1
    label of a thing that has a number (`order`, `case`)                      1
    a sign or word of number, or a colon, between label and value            +1
    a value with a capital and three digits (`ORD-20331`), and of some kinds of eight digits +1
    check digits of one of the kind's national numbers that are right        +1
    the same that are wrong                                                  -1

From 2 on it is one. So a wrong check digit excludes `case: …`, and not what an explicit label names: typing errors are personal data, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Final

from corpusmill.pipeline.redact import ALNUM, Hit, Kind, after, before, context
from corpusmill.pipeline.redact.identifier_labels import (
    BETWEEN,
    LABELS,
    MAX_WORDS,
    NUMBERED,
    PREFIXES,
    fold,
)

ENOUGH: Final = 2
_REACH: Final = 88  # bytes before a value in which its label is looked for
_MAX_VALUE: Final = 36
_BACK = re.compile(rb"(?:[A-Z0-9]{1,8}[-/_.])*[A-Za-z0-9]{0,12}$|(?:[a-z0-9]{1,3}[-/_])+[A-Za-z0-9]{0,12}$")
_VALUE = re.compile(
    rb"(?:[0-9]:[0-9]{2}-[a-z]{2}-)?[A-Za-z0-9]+(?:[-/._][A-Za-z0-9]+|--[0-9]+)*"
    rb"(?: (?=[0-9])[0-9]+(?:[-/.][A-Za-z0-9]+)*)*(?:[ ][A-Z](?![A-Za-z0-9'.]))?"
)
_FIRST = re.compile(rb"(?:[0-9]:[0-9]{2}-[a-z]{2}-)?[A-Za-z0-9]+(?:[-/._][A-Za-z0-9]+|--[0-9]+)*")
_DATE = re.compile(
    rb"[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:19|20)?[0-9]{2}|(?:19|20)[0-9]{2}[-/.][0-9]{1,2}(?:[-/.][0-9]{1,2}(?:T[0-9]+)?)?"
)
_YEAR = re.compile(rb"(?:19|20)[0-9]{2}(?:[-/](?:[0-9]{2}|(?:19|20)[0-9]{2}))?")
_DECIMAL = re.compile(rb"[0-9]+\.[0-9]{1,2}|[0-9]{1,3}(?:\.[0-9]{3})+")
_QUAD = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){2,3}")
_TIME = re.compile(rb"[0-9]{1,2}[.h][0-9]{2}")
_UNIT = re.compile(
    rb"[ ]?(?:%|\$|\xe2\x82\xac|\xc2\xa3|\xc2\xb0|usd|eur|euros?|dollars|k[gmb]\b|m[glmbs]\b|[cm]m\b|gb\b|tb\b|mb\b|x [0-9]|years?\b|days?\b|hours?\b|min"
    rb"|people|items?\b|units?\b|times\b|a\xc3\xb1os|d\xc3\xadas|horas|pages?\b|million|thousand|billion|am\b|pm\b)"
)
_SIGN = re.compile("[:#=：№]|[Nn][º°]")
_PREFIXED = re.compile(rb"([A-Z]{2,6})([-_]?)([A-Z]{0,3}[-_]?[0-9]{4,14})(?:[-_/][A-Z0-9]{1,8}){0,3}")
_OF: Final = frozenset(["de", "del", "la", "di", "du", "d", "of", "the", "do", "da", "der", "des"])
_GERMAN_FILE = re.compile(rb"[0-9IVX]{1,4} [A-Z][A-Za-z]{0,3} [0-9]{1,6}/[0-9]{2}(?![0-9])")
_GAP = re.compile(r"[-_]?(?:[ \t:#=.()\[\"'*|>º°ª\u00a0：№–—]|(?<=[ \t])-)*")
_CAPITALS = re.compile(r"(?<![A-Za-z])[A-Z]{2,5}$")
_IN_ADDRESS = re.compile(
    rb"[&?@%\\]|//|/$|[0-9]\.|\.[a-z]{2,}[^.]|/.*/|[a-z0-9]/[A-Z0-9.]*\.$"
)  # a URL, a DOI, a path
_LONG_WORD = re.compile(r"\w{6}$")
_CODED = re.compile(rb"[A-Z]")
_FILE = re.compile(rb"\.[A-Za-z]{2,5}[0-9]?$")
_PROSE = re.compile(rb"[a-z]{4}|0x|^[0-9a-f]{8}-[0-9a-f]{4}-|[0-9]\.[0-9]+\.[0-9]|^[0-9a-f]*[a-f][0-9a-f]*$")
_LINE = re.compile(rb"[\r\n]")
# Kinds whose values may have blanks between groups of digits wherever they stand; of others only at the end of a line or clause.
_SPACED: Final = frozenset(
    {"patient_id", "social_security", "license_id", "national_id", "tax_id", "account_id"}
)

# Kinds of which eight digits and more are telling, and the least letters and digits of a value (others: 4).
_LONG: Final = frozenset(
    {
        "patient_id",
        "social_security",
        "national_id",
        "license_id",
        "passport",
        "driver_license",
        "tax_id",
        "account_id",
    }
)
_SHORTEST: Final[dict[Kind, int]] = {
    "social_security": 8, "tax_id": 8, "national_id": 6, "passport": 6, "driver_license": 5, "account_id": 5, "license_id": 4,
}  # fmt: skip

# National numbers by kind: module of stdnum (or a function here), and the lengths without separators.
_CHECKS: Final[dict[Kind, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    "social_security": (
        ("nass", (11, 12)), ("us.ssn", (9,)), ("ca.sin", (9,)), ("fr.nir", (15,)), ("it.codicefiscale", (16,)), ("at.vnr", (10,)),
        ("ch.ssn", (13,)), ("be.nn", (11,)), ("nl.bsn", (9,)), ("pl.pesel", (11,)), ("no.fodselsnummer", (11,)), ("dk.cpr", (10,)),
        ("rvnr", (12,)),
    ),
    "national_id": (
        ("es.dni", (9,)), ("es.nie", (9,)), ("mx.curp", (18,)), ("br.cpf", (11,)), ("cl.rut", (8, 9)), ("cn.ric", (18,)),
        ("in_.aadhaar", (12,)), ("tr.tckimlik", (11,)), ("ro.cnp", (13,)), ("bg.egn", (10,)), ("hr.oib", (11,)), ("cz.rc", (10,)),
    ),
    "tax_id": (
        ("es.nif", (9,)), ("es.cif", (9,)), ("pt.nif", (9,)), ("fr.siren", (9,)), ("fr.siret", (14,)), ("it.iva", (11,)),
        ("de.idnr", (11,)), ("br.cnpj", (14,)), ("mx.rfc", (12, 13)), ("ar.cuit", (11,)), ("pl.nip", (10,)), ("ru.inn", (10, 12)),
        ("in_.gstin", (15,)), ("au.abn", (11,)), ("cn.uscc", (18,)),
    ),
    "license_id": (("npi", (10,)),),
}  # fmt: skip


def identifiers(buffer: bytes, at: int, kinds: frozenset[str]) -> Iterator[Hit]:
    """The identifier that holds the digit at `at`, if it is one of `kinds` by what stands before it."""
    begin = at - len(_back(before(buffer, at, 24)))
    found = _labelled(buffer, begin, kinds) or _prefixed(buffer, begin, at, kinds)
    if not found and begin < at:
        found = _labelled(buffer, at, kinds)
    if found:
        yield found


def _prefixed(buffer: bytes, begin: int, at: int, kinds: frozenset[str]) -> Hit | None:
    """A value whose first letters tell its kind (`PREFIXES`)."""
    match = _PREFIXED.match(after(buffer, begin, _MAX_VALUE))
    kind = PREFIXES.get(match[1]) if match else None
    if match is None or kind is None or kind not in kinds or begin + match.end() <= at:
        return None
    end, rest = begin + match.end(), match.group()[len(match[1]) :].lstrip(b"-_")
    enough = len(match[3].strip(b"-_")) >= (4 if match[2] else 5)
    if not enough or _YEAR.fullmatch(match[3]) or _YEAR.fullmatch(rest):
        return None
    return Hit(begin, end, kind) if _begins(buffer, begin) and _ends(buffer, end) else None


def _back(left: bytes) -> bytes:
    if not left or not (left[-1] in ALNUM or left[-1] in b"-/_."):
        return b""
    match = _BACK.search(left)
    return match.group() if match else b""


def _begins(buffer: bytes, start: int) -> bool:
    left = before(buffer, start, 1)
    return not (left and (left.isalnum() or left in b"_/\\@$%&.+~-"))


def _ends(buffer: bytes, end: int) -> bool:
    right = after(buffer, end, 2)
    return not (
        right
        and (right[:1].isalnum() or right[0] in b"_@%/\\" or (right[0] in b".,-:" and right[1:].isalnum()))
    )


def _labelled(buffer: bytes, start: int, kinds: frozenset[str]) -> Hit | None:
    left = context(buffer, start, _REACH)
    left = _LINE.split(left)[-1]
    if not left.strip():
        return None
    kind, score, between = label(left[-72:].decode("utf-8", "ignore"))
    if kind is None or kind not in kinds or _IN_ADDRESS.search(left.rpartition(b" ")[2]):
        return None
    value = _value(buffer, start, kind)
    if value is None:
        return None
    end = start + len(value)
    if not is_plausible(value, kind, score >= 3) or not _ends(buffer, end):
        return None
    if between[:1] in ("-", "_") and value != value.upper():
        return None
    if score < 3 and (
        (value.isdigit() and between.endswith("(")) or _UNIT.match(after(buffer, end, 16).lower())
    ):
        return None
    digits = sum(48 <= c <= 57 for c in value)
    coded = (digits >= 8 and kind in _LONG) or (digits >= 3 and _CODED.search(value) is not None)
    checked = check(kind, value.decode())
    if score + coded + (checked or 0) < ENOUGH:
        return None
    return Hit(start, end, kind)


@lru_cache(maxsize=4096)
def label(left: str) -> tuple[Kind | None, int, str]:
    """(kind, score, what stands between) of the label at the end of what stands before a value; no kind if there is none."""
    between, words = gap(left[-40:]), fold(left[-72:])
    if not words or not _GAP.fullmatch(between):
        return None, 0, ""
    before = left[: len(left) - len(between)]
    glued = not between and before[-1:].isascii() and before[-1:].isalpha()
    if (glued or between[:1] in ("-", "_")) and not _CAPITALS.search(before):  # NHC-1234567, not dea3f89b
        return None, 0, ""
    sign = _SIGN.search(left[-len(between) - 1 :]) is not None
    end = len(words)
    for _ in range(4):
        found = _known(words[max(0, end - MAX_WORDS) : end])
        if found:
            size, (kind, explicit) = found
            score = 3 if explicit else 1
            sign = sign or _numbered_before(words, end - size)
            last = words[end - 1]
            if (
                len(last) == 1 and last.isascii() and last != "n" and before[-2:-1] != "."
            ):  # N.H.C., not "n h c"
                return None, 0, ""
            if explicit and size == 1 and len(last) <= 4 and last.isascii() and last.upper() not in left:
                score = 1
            if score < 3 and between.startswith(". ") and _LONG_WORD.search(before):  # the end of a sentence
                return None, 0, ""
            return kind, score + sign, between
        if end == 0:
            break
        word = words[end - 1]
        if word in NUMBERED:
            sign, end = True, end - 1
        elif word in BETWEEN:
            end -= 1
        else:
            break
    if end == len(words) or "<" in left or ">" in left:  # an `id` of markup
        return None, 0, ""
    return (*_far(words, end), between)


def _numbered_before(words: tuple[str, ...], end: int) -> bool:
    """Whether a word of number stands before a label: `nº de expediente`, `number of the case`."""
    while end and words[end - 1] in _OF:
        end -= 1
    return end > 0 and words[end - 1] in NUMBERED


def gap(text: str) -> str:
    """What stands behind the last letter of `text`, `º` and the like included."""
    place = len(text)
    while place and (text[place - 1] in "ºª" or unicodedata.category(text[place - 1])[0] not in "LMN"):
        place -= 1
    return text[place:]


def _known(words: tuple[str, ...]) -> tuple[int, tuple[Kind, bool]] | None:
    """The longest label that the words end with: its number of words, and what it is."""
    for size in range(len(words), 0, -1):
        found = LABELS.get(words[-size:])
        if found:
            return size, found
    if words and not words[-1].isascii():
        for size in range(min(len(words[-1]) - 1, 8), 1, -1):  # scripts without blanks
            found = LABELS.get((words[-1][-size:],))
            if found:
                return 1, found
    return None


def _far(words: tuple[str, ...], end: int) -> tuple[Kind | None, int]:
    """Of `patient Ann Lee, ID 4711`: the plain label up to four words before an `id` that says no more."""
    if "id" in words[end:]:
        for place in range(end - 1, max(-1, end - 5), -1):
            found = LABELS.get((words[place],))
            if found and not found[1] and len(words[place]) > 3:
                return found[0], 2
    return None, 0


def _value(buffer: bytes, start: int, kind: Kind) -> bytes | None:
    """What may be a value from `start` on."""
    right = after(buffer, start, _MAX_VALUE + 8)
    first, whole = _FIRST.match(right), _VALUE.match(right)
    if first is None or whole is None:
        return None
    german = _GERMAN_FILE.match(right) if kind == "case_id" else None
    if german:
        return german.group()
    value = first.group()
    if whole.end() > first.end() and re.fullmatch(rb"[0-9./-]+", value):
        rest = right[whole.end() :]
        ends = not rest.strip(b" ") or rest[:1] in b",;.)\r\n\t|<" or kind in _SPACED
        if ends and whole.end() <= _MAX_VALUE:
            value = whole.group()
    return value if len(value) <= _MAX_VALUE else None


def is_date(value: bytes) -> bool:
    """Whether a value as a whole is a day or a month."""
    return _DATE.fullmatch(value) is not None


def is_plausible(value: bytes, kind: Kind, explicit: bool) -> bool:
    """Whether a value may be an identifier, and is no date, amount, year, time or address."""
    digits = sum(48 <= c <= 57 for c in value)
    signs = sum(c in b"-/._ " for c in value)
    if digits < 3 or len(value) - signs < max(
        _SHORTEST.get(kind, 4), 4 if explicit or digits < len(value) else 5
    ):
        return False
    if _FILE.search(value) or (not explicit and _PROSE.search(value)):
        return False
    return not any(pattern.fullmatch(value) for pattern in (_DATE, _YEAR, _DECIMAL, _QUAD, _TIME))


@lru_cache(maxsize=4096)
def check(kind: Kind, value: str) -> int | None:
    """1 if the check digits of a national number of the kind are right, -1 if the value has the length of some and none is
    right, None if there is nothing to check."""
    bare = "".join(c for c in value.upper() if c.isalnum())
    tried = [name for name, sizes in _CHECKS.get(kind, ()) if len(bare) in sizes]
    if not tried:
        return None
    return 1 if any(_right(name, bare) for name in tried) else -1


def _right(name: str, bare: str) -> bool:
    if name == "nass":
        return is_nass(bare)
    if name == "npi":
        return is_npi(bare)
    if name == "rvnr":
        return is_rvnr(bare)
    return bool(import_module(f"stdnum.{name}").is_valid(bare))


def is_nass(bare: str) -> bool:
    """Spain's number of affiliation: province, eight (of firms seven) digits, and both together modulo 97. Of a number below ten
    millions some leave its first zero out of the sum, and some do not."""
    if not bare.isdigit() or len(bare) not in (11, 12):
        return False
    return int(bare[-2:]) in {int(bare[:-2]) % 97, (int(bare[:2]) * 10**7 + int(bare[2:-2])) % 97}


def is_npi(bare: str) -> bool:
    """The National Provider Identifier of the USA: Luhn's digit behind 80840."""
    from stdnum import luhn

    return bare.isdigit() and bool(luhn.is_valid("80840" + bare))


def is_rvnr(bare: str) -> bool:
    """Germany's pension insurance number: area, birth, letter of the name, serial number, check digit."""
    if not (bare[:8].isdigit() and bare[8].isalpha() and bare[9:].isdigit()):
        return False
    digits = f"{bare[:8]}{ord(bare[8]) - 64:02d}{bare[9:11]}"
    products = (int(d) * w for d, w in zip(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=True))
    return sum(p // 10 + p % 10 for p in products) % 10 == int(bare[11])
