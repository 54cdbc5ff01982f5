"""What was recognised once, anywhere in the run, as keyed hashes: looked for wherever it stands (`kernels/known.py`).

An entry is a 64-bit hash (SipHash-2-4) of a datum's normal form, with its kind in the last five bits. A telephone number has
several: its digits with and without country code and trunk prefix, and the number that its plan makes of it, by which
`Known.spelled` finds the country of digits that have none.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.redact import Hit, Kind
from corpusmill.pipeline.redact.identity_numbers import only_digits
from corpusmill.pipeline.redact.kernels.known import (
    KIND_BITS,
    MAX_DIGITS,
    MAX_LETTERED,
    MIN_DIGITS,
    MIN_GROUPED,
    fill,
    occurrences,
)
from corpusmill.pipeline.redact.kernels.siphash import hash_all
from corpusmill.pipeline.redact.other_digits import ascii_digits
from corpusmill.pipeline.redact.pseudonyms import normal_form
from corpusmill.schemas.stages import EVERYWHERE

KINDS: tuple[Kind, ...] = EVERYWHERE
Entries = npt.NDArray[np.uint64]
Message = bytes
_PHONE = b"+"  # class of a number with its country's code, which is found by `spelled` alone


def derived_key(secret: bytes) -> bytes:
    """The 16 bytes that key the hashes, of a secret that has other uses."""
    return hmac.new(secret, b"corpusmill redact everywhere", hashlib.sha256).digest()[:16]


def messages(kind: Kind, value: bytes, regions: tuple[str, ...]) -> set[Message]:
    """What is hashed of a recognised datum, in all spellings in which it is looked for."""
    value = ascii_digits(value)
    text = normalize("NFC", value.decode("utf-8", "replace"))
    if kind == "email":
        return {b"@" + form.encode().lower() for form in (text, text.lower())}
    if kind == "phone":
        return _of_phone(text, regions)
    bare = normal_form(kind, text, regions)
    forms = {bare}
    if kind == "se_pnr":  # with the century, too
        forms.add(only_digits(value))
    return {message for form in forms if (message := _of_number(form.upper()))}


def _of_number(bare: str) -> Message:
    """Digits, or digits and letters; b"" where there are too few of them."""
    if not bare.isascii():
        return b""
    if bare.isdigit():
        return b"#" + bare.encode() if MIN_DIGITS <= len(bare) <= MAX_DIGITS else b""
    return b"A" + bare.encode() if MIN_DIGITS <= len(bare) <= MAX_LETTERED else b""


def _of_phone(text: str, regions: tuple[str, ...]) -> set[Message]:
    normal = normal_form("phone", text, regions)
    found = {_PHONE + normal.encode()}
    groups = _groups(text)
    if normal.startswith("+"):
        code, _, national = normal[1:].partition(" ")
        numbers = [national, "0" + national, _trunk(code) + national, code + national]
        numbers += [f"{prefix}{code}{national}" for prefix in ("00", "011")]
        groups = groups[1:] if groups and groups[0].removeprefix("00") == code else groups
    else:
        numbers = [normal]
    found.update(message for number in numbers if (message := _of_number(number)))
    if len(groups) > 1 and MIN_GROUPED <= sum(map(len, groups)) < MIN_DIGITS:
        found.add(b"-" + "-".join(groups).encode())
    return found


def _groups(text: str) -> list[str]:
    text = text.lower().partition("x")[0]  # an extension is no part of it
    return "".join(c if c.isascii() and c.isdigit() else " " for c in text).split()


@lru_cache(maxsize=256)
def _trunk(code: str) -> str:
    """The prefix dialled before national numbers of a country's code."""
    import phonenumbers

    region = phonenumbers.region_code_for_country_code(int(code))
    data = phonenumbers.PhoneMetadata.metadata_for_region(region)
    return (data.national_prefix or "") if data else ""


def hashes(data: Iterable[Message], key: bytes) -> Entries:
    """uint64[n]: the keyed hash of each message. key: 16 bytes."""
    found = list(data)
    offsets = np.cumsum([0, *map(len, found)], dtype=np.int64)
    out = np.empty(len(found), np.uint64)
    hash_all(np.frombuffer(b"".join(found) or b"\0", np.uint8), offsets, _words(key), out)
    return out


def entries(values: Iterable[tuple[Kind, bytes]], key: bytes, regions: tuple[str, ...]) -> Entries:
    """Sorted entries of recognised data, one for each hash; of several kinds the first of `KINDS`."""
    pairs = [(kind, message) for kind, value in values for message in messages(kind, value, regions)]
    codes = np.array([KINDS.index(kind) + 1 for kind, _ in pairs], np.uint64)
    bits = np.uint64(KIND_BITS)
    return unique((hashes((message for _, message in pairs), key) >> bits << bits) | codes)


def unique(found: Entries) -> Entries:
    """Sorted entries of distinct hashes."""
    found = np.sort(found)
    if not len(found):
        return found
    first = np.concatenate([[True], np.diff(found >> np.uint64(KIND_BITS)) != 0])
    distinct: Entries = found[first]
    return distinct


def _words(key: bytes) -> npt.NDArray[np.uint64]:
    return np.frombuffer(key, "<u8").astype(np.uint64)


class Known(NamedTuple):
    """A set of entries, ready to be looked up. 16 to 32 bytes of memory for each."""

    table: Entries  # uint64[2**n], open addressing, at most half full
    size: int
    key: bytes
    regions: tuple[str, ...] = ()
    kinds: frozenset[Kind] = frozenset(KINDS)  # of these only is anything reported

    @classmethod
    def of(cls, found: Entries, key: bytes, regions: tuple[str, ...] = ()) -> Known:
        """The set of sorted entries."""
        table = np.zeros(1 << max(4, int(2 * len(found) - 1).bit_length()), np.uint64)
        fill(table, found)
        return cls(table, len(found), key, regions)

    def find(self, buffer: bytes) -> Iterator[Hit]:
        """The occurrences in a buffer of separated texts; they may overlap."""
        if self.size:
            data = np.frombuffer(buffer, dtype=np.uint8)
            for kind, start, end in occurrences(data, self.table, _words(self.key)).tolist():
                if KINDS[kind - 1] in self.kinds:
                    yield Hit(start, end, KINDS[kind - 1], known=True)

    def has(self, message: Message) -> bool:
        """Whether a message is of something recognised."""
        from corpusmill.pipeline.redact.kernels.known import lookup

        return bool(lookup(self.table, hashes([message], self.key)[0]))

    def spelled(self, kind: Kind, value: bytes) -> bytes:
        """A datum in a spelling whose normal form is that under which it was recognised, so that its pseudonym is the same."""
        value = ascii_digits(value)
        if kind == "email":
            return value.replace(b"%40", b"@")
        return self._with_country(value) if kind == "phone" else value

    def _with_country(self, value: bytes) -> bytes:
        text = value.decode("utf-8", "replace")
        if self.has(_PHONE + normal_form("phone", text, self.regions).encode()):
            return value
        digits = only_digits(value)
        for code, prefixes in _codes(self.regions):
            for prefix in prefixes:
                national = digits.removeprefix(prefix)
                if digits.startswith(prefix) and self.has(_PHONE + f"+{code} {national}".encode()):
                    return f"+{code} {national}".encode()
        return value


@lru_cache(maxsize=16)
def _codes(regions: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Countries' codes, those of `regions` first, with what may stand before a national number."""
    import phonenumbers

    own = [phonenumbers.country_code_for_region(region) for region in regions]
    every = dict.fromkeys([*own, *sorted(phonenumbers.COUNTRY_CODE_TO_REGION_CODE)])
    return [
        (str(code), tuple(dict.fromkeys(("", _trunk(str(code)), "0", str(code), f"00{code}", f"011{code}"))))
        for code in every
    ]
