"""What stands in a find's place: a tag, or a keyed pseudonym of the same kind.

A pseudonym is a function of (key, kind, normal form of the datum): the same address becomes the same pseudonym in any partition
and any run with the key, and nothing can be linked without it. All pseudonyms lie where real data cannot: example.com,
telephones kept for fiction, the networks that RFC 2544 and RFC 3849 set aside, cards of test ranges, the country code ZZ, area
000, test networks of coins, and numbers that no country issues. So they are recognised, and a second pass leaves them alone.
Some of those ranges are small (telephones: about 60,000 with +1, some thousands elsewhere; IPv4: 131,072; BSN: 91,000): there
two people may share a pseudonym.

National numbers, telephones, cards and IBANs are functions of a `Draw`. A check digit is right wherever there is a range that is
never issued: test ranges (Germany, Canada, the NHS, Aadhaar, the Dutch BSN), births in the 1800s (PESEL, personnummer), places
that do not exist (department 00, municipality Z0xx). Where there is none (CPF, DNI, NIE) the check is wrong on purpose, so that
the number belongs to no one all the same.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from unicodedata import normalize

from corpusmill.common.errors import UserError
from corpusmill.pipeline.redact import TAG, Kind
from corpusmill.pipeline.redact.addresses import base58check, bech32, eip55, is_base58check
from corpusmill.pipeline.redact.identifier_labels import KINDS as IDENTIFIERS
from corpusmill.pipeline.redact.identity_numbers import compact
from corpusmill.pipeline.redact.other_digits import ascii_digits


class Draw:
    """Numbers drawn from the bits of a digest, the same for the same digest."""

    def __init__(self, digest: bytes) -> None:
        self.bits = int.from_bytes(digest, "big")

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        self.bits, number = divmod(self.bits, limit)
        return number

    def digits(self, count: int) -> str:
        """`count` digits."""
        return f"{self.below(10**count):0{count}d}"

    def letters(self, count: int, alphabet: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> str:
        """`count` letters."""
        return "".join(alphabet[self.below(len(alphabet))] for _ in range(count))

    def date(self) -> tuple[int, int, int]:
        """Year of a century, month, day."""
        return self.below(100), 1 + self.below(12), 1 + self.below(28)


# --- cards: the first digits of the numbers that payment services publish for tests, by what a card begins with.
_TEST_CARDS: Final = (
    ("34", "378282", 15), ("37", "378282", 15), ("5", "555555", 16), ("2", "222300", 16), ("60", "601111", 16),
    ("64", "601111", 16), ("65", "601111", 16), ("35", "356600", 16), ("36", "305693", 14), ("30", "305693", 14),
    ("38", "305693", 14), ("39", "305693", 14), ("62", "620000", 16), ("", "400000", 16),
)  # fmt: skip
OWN_CARDS: Final = rb"(?:378282[0-9]{9}|3782 82[0-9]{4} [0-9]{5}|(?:4000 00|5555 55|2223 00|6011 11|3566 00|6200 00)[0-9]{2} [0-9]{4} [0-9]{4}|3056 93[0-9]{4} [0-9]{4})"


def card(value: str, draw: Draw) -> str:
    """A number of a test range of the same issuer, with its Luhn digit, in the issuer's groups."""
    _, prefix, size = next(row for row in _TEST_CARDS if value.startswith(row[0]))
    body = prefix + draw.digits(size - len(prefix) - 1)
    number = body + luhn(body)
    groups = (4, 4, 4, 4) if size == 16 else (4, 6, 5)
    return " ".join(cut(number, groups))


def cut(text: str, sizes: tuple[int, ...]) -> list[str]:
    """`text` in pieces of these sizes, the last as long as what is left."""
    pieces, place = [], 0
    for size in sizes:
        pieces.append(text[place : place + size])
        place += size
    return pieces


def luhn(digits: str) -> str:
    """The Luhn digit of `digits`."""
    from stdnum import luhn

    return str(luhn.calc_check_digit(digits))


def iban(value: str, draw: Draw) -> str:
    """An account of the country ZZ, which there is none of, as long as the real one and with letters where it has
    letters; 1 modulo 97."""
    from stdnum.iso7064 import mod_97_10

    body = "".join(draw.letters(1) if c.isalpha() else draw.digits(1) for c in value[4:])
    return f"ZZ{mod_97_10.calc_check_digits(body + 'ZZ')}{body}"


# --- telephones: ranges that regulators keep free for fiction, by country code. `#` is a digit.
_FICTION: Final = {
    1: ("+1-[]-555-01##",),
    44: ("+44 20 7946 0###", "+44 1632 960###", "+44 7700 900###"),  # Ofcom
    49: ("+49 30 23125###", "+49 69 90009###", "+49 40 66969###", "+49 221 4710###", "+49 89 99998###"),  # BNetzA
    33: ("+33 1 99 00 ## ##", "+33 2 61 91 ## ##", "+33 3 53 01 ## ##", "+33 4 65 71 ## ##", "+33 5 36 49 ## ##",
         "+33 6 39 98 ## ##"),  # ARCEP
    61: ("+61 2 5550 ####", "+61 3 5550 ####", "+61 7 5550 ####", "+61 8 5550 ####"),  # ACMA
    353: ("+353 20 91# ####",),  # ComReg
    46: ("+46 31 390 06 ##", "+46 40 628 04 ##", "+46 8 465 004 ##"),  # PTS
}  # fmt: skip
_AREA: Final = "[2-9][0-8][0-9]"


def phone(country: int, draw: Draw) -> str:
    """A number that its country keeps for fiction; of a country that keeps none, one of the +1 555-01xx."""
    forms = _FICTION.get(country, _FICTION[1])
    made = forms[draw.below(len(forms))]
    made = made.replace("[]", f"{2 + draw.below(8)}{draw.below(9)}{draw.below(10)}")
    return "".join(draw.digits(1) if c == "#" else c for c in made)


def own_phones() -> bytes:
    """The pattern of every number that `phone` makes."""
    forms = (form.replace("+", r"\+").replace("[]", _AREA) for row in _FICTION.values() for form in row)
    return "|".join(form.replace("#", "[0-9]") for form in forms).encode()


# --- national numbers
def _checked(body: str, weights: tuple[int, ...], last: int) -> str:
    """`body` and the digit that makes the weighted sum 0 modulo 11 (`last`: its own weight); where no digit does, the
    body counts on."""
    for number in range(int(body), int(body) + 10):
        total = sum(int(digit) * weight for digit, weight in zip(str(number), weights, strict=True))
        for check in range(10):
            if (total + last * check) % 11 == 0:
                return f"{number}{check}"
    raise AssertionError(f"{body}: of ten numbers in a row at most one has no check digit")


def _cpf(value: str, draw: Draw) -> str:
    from stdnum.br import cpf

    body = draw.digits(9)
    tail = draw.below(99)
    check = f"{tail + cpf.is_valid(f'{body}{tail:02d}'):02d}"
    return f"{body[:3]}.{body[3:6]}.{body[6:]}-{check}"


def _sin(value: str, draw: Draw) -> str:
    body = "0" + draw.digits(7)
    return "-".join(cut(body + luhn(body), (3, 3, 3)))


def _idnr(value: str, draw: Draw) -> str:
    from stdnum.iso7064 import mod_11_10

    pool, body = list("123456789"), ["0"]
    chosen = [pool.pop(draw.below(len(pool))) for _ in range(8)]
    chosen.append(chosen[0])
    while chosen:
        body.append(chosen.pop(draw.below(len(chosen))))
    digits = "".join(body)
    return " ".join(cut(digits + mod_11_10.calc_check_digit(digits), (2, 3, 3, 3)))


def _dni(value: str, draw: Draw) -> str:
    # Of all letters, I, O and U are never control letters.
    if value[0] in "XYZ":
        return value[0] + draw.digits(7) + draw.letters(1, "IOU")
    return draw.digits(8) + draw.letters(1, "IOU")


def _nir(value: str, draw: Draw) -> str:
    from stdnum.fr import nir

    year, month, _ = draw.date()
    body = f"{1 + draw.below(2)}{year:02d}{month:02d}00{draw.digits(6)}"
    return " ".join(cut(body + nir.calc_check_digits(body), (1, 2, 2, 2, 3, 3, 2)))


def _nhs(value: str, draw: Draw) -> str:
    made = _checked(f"999{draw.below(10**6 - 10):06d}", (10, 9, 8, 7, 6, 5, 4, 3, 2), 1)
    return " ".join(cut(made, (3, 3, 4)))


def _nino(value: str, draw: Draw) -> str:
    return " ".join(["QQ", *(draw.digits(2) for _ in range(3)), draw.letters(1, "ABCD")])


def _aadhaar(value: str, draw: Draw) -> str:
    from stdnum import verhoeff

    body = "0" + draw.digits(10)
    return " ".join(cut(body + verhoeff.calc_check_digit(body), (4, 4, 4)))


def _code(value: str, draw: Draw) -> str:
    from stdnum.it import codicefiscale

    year, month, day = draw.date()
    name = draw.letters(6, "BCDFGLMNPRST")
    body = f"{name}{year:02d}{'ABCDEHLMPRST'[month - 1]}{day + 40 * draw.below(2):02d}Z0{draw.digits(2)}"
    return body + codicefiscale.calc_check_digit(body)


def _bsn(value: str, draw: Draw) -> str:
    return _checked(f"999{draw.below(10**5 - 10):05d}", (9, 8, 7, 6, 5, 4, 3, 2), -1)


def _pesel(value: str, draw: Draw) -> str:
    from stdnum.pl import pesel

    year, month, day = draw.date()
    body = f"{year:02d}{month + 80}{day:02d}{draw.digits(4)}"
    return body + pesel.calc_check_digit(body)


def _pnr(value: str, draw: Draw) -> str:
    year, month, day = draw.date()
    body = f"{year:02d}{month:02d}{day:02d}{draw.digits(3)}"
    return f"18{body[:6]}-{body[6:]}{luhn(body)}"


NATIONAL: Final[dict[Kind, Callable[[str, Draw], str]]] = {
    "br_cpf": _cpf, "ca_sin": _sin, "de_idnr": _idnr, "es_dni": _dni, "fr_nir": _nir, "gb_nhs": _nhs, "gb_nino": _nino,
    "in_aadhaar": _aadhaar, "it_cf": _code, "nl_bsn": _bsn, "pl_pesel": _pesel, "se_pnr": _pnr,
}  # fmt: skip


MIN_KEY = 16  # bytes

# The forms that `pseudonym` makes and a detector might read. Finds that overlap one are dropped.
OWN = re.compile(
    rb"user-[0-9a-f]{16}@example\.com|user-[0-9a-f]{8}:secret-[0-9a-f]{16}|secret-[0-9a-f]{16}"
    rb"|198\.1[89]\.[0-9]{1,3}\.[0-9]{1,3}|2001:db8(?::[0-9a-f]{4}){6}|02:00:5e(?::[0-9a-f]{2}){3}"
    rb"|ZZ[0-9]{2}[0-9A-Z]{11,30}|000-[0-9]{2}-[0-9]{4}|0x0{8}[0-9a-fA-F]{32}|tb1q[02-9ac-hj-np-z]{38}"
    rb"|(?:Person|Address) [0-9a-f]{8}|id-[0-9a-f]{16}|\*{3}-\*{3}-01[0-9]{2}|"
    + OWN_CARDS
    + b"|"
    + own_phones()
)
MARGIN = 80  # bytes; no pseudonym is longer
_TEST_COIN = re.compile(rb"(?<![A-Za-z0-9])[mn2][1-9A-HJ-NP-Za-km-z]{25,34}(?![A-Za-z0-9])")


def is_own(buffer: bytes, start: int, end: int) -> bool:
    """Whether a find overlaps what `pseudonym` makes."""
    return _touches(OWN, buffer, start, end) or any(
        is_base58check(word, test=True) for word in _words(_TEST_COIN, buffer, start, end)
    )


def is_tag(buffer: bytes, start: int, end: int) -> bool:
    """Whether a find overlaps a tag: models may take one for a name."""
    return _touches(TAG, buffer, start, end)


def _touches(pattern: re.Pattern[bytes], buffer: bytes, start: int, end: int) -> bool:
    return next(_words(pattern, buffer, start, end), None) is not None


def _words(pattern: re.Pattern[bytes], buffer: bytes, start: int, end: int) -> Iterator[str]:
    """The matches that overlap a find."""
    low = max(0, start - MARGIN)
    for match in pattern.finditer(buffer[low : end + MARGIN]):
        if match.start() + low < end and match.end() + low > start:
            yield match.group().decode()


def tag(kind: Kind) -> bytes:
    """`<EMAIL>` and the like: letters and brackets, which no detector reads."""
    return f"<{kind.upper()}>".encode()


def read_key(variable: str) -> bytes:
    """The key in an environment variable; raises `UserError` if there is none, or a short one."""
    key = os.environ.get(variable, "").encode()
    if not key:
        raise UserError(
            f"redact.key_env: the environment variable {variable} is empty, and pseudonyms need a secret key;"
            f" set it (at least {MIN_KEY} characters), or use redact.replacement=tag"
        )
    if len(key) < MIN_KEY:
        raise UserError(
            f"redact.key_env: the key in {variable} has {len(key)} characters, fewer than {MIN_KEY}"
        )
    return key


def fingerprint(key: bytes) -> str:
    """A public identifier of a key that does not reveal it."""
    return hmac.new(key, b"corpusmill redact fingerprint", hashlib.sha256).hexdigest()[:16]


def pseudonym(key: bytes, kind: Kind, value: bytes, regions: Sequence[str] = ()) -> bytes:
    """The pseudonym of a datum (HMAC-SHA256); other spellings of the same datum get the same one. `regions`: whose
    plans a telephone number without + follows."""
    text = normal_form(kind, normalize("NFC", ascii_digits(value).decode("utf-8", "replace")), tuple(regions))
    digest = hmac.new(key, f"{kind}\x00{text}".encode(), hashlib.sha256).digest()
    draw, code = Draw(digest), digest.hex()
    if kind in NATIONAL:
        made = NATIONAL[kind](text, draw)
    elif kind == "email":
        made = f"user-{code[:16]}@example.com"
    elif kind == "phone":
        made = phone(_country(text), draw)
    elif kind == "ip" and ":" in text:
        made = "2001:db8:" + ":".join(code[i : i + 4] for i in range(0, 24, 4))
    elif kind == "ip":
        made = str(ipaddress.IPv4Address(int(ipaddress.IPv4Address("198.18.0.0")) + draw.below(2**17)))
    elif kind == "mac":
        made = f"02:00:5e:{code[:2]}:{code[2:4]}:{code[4:6]}"  # locally administered: no maker's
    elif kind == "card":
        made = card(text, draw)
    elif kind == "iban":
        made = iban(text, draw)
    elif kind == "ssn":
        made = f"000-{draw.digits(2)}-{draw.digits(4)}"
    elif kind == "crypto":
        made = _coin(text, digest)
    elif kind == "url_credential" and b":" in value:
        made = f"user-{code[:8]}:secret-{code[8:24]}"
    elif kind == "masked_phone":
        made = f"***-***-01{draw.digits(2)}"
    elif kind in IDENTIFIERS:
        made = f"id-{code[:16]}"
    elif kind in ("name", "address"):
        made = f"{'Person' if kind == 'name' else 'Address'} {code[:8]}"
    else:
        made = f"secret-{code[:16]}"
    return made.encode()


def normal_form(kind: Kind, text: str, regions: tuple[str, ...] = ()) -> str:
    """One spelling for all spellings of a datum."""
    if kind == "email":
        return text.lower()
    if kind == "ip":
        return str(ipaddress.ip_address(text))
    if kind in ("card", "ssn"):
        return "".join(c for c in text if c.isdigit())
    if kind == "phone":
        return _e164(text, regions)
    if kind == "se_pnr":  # with its century or without
        return compact(text)[-10:]
    if kind in ("iban", "mac") or kind in NATIONAL or kind in IDENTIFIERS:
        return compact(text)
    if kind == "crypto" and text[:2].lower() in ("bc", "0x"):
        return text.lower()
    if kind in ("name", "address"):
        return " ".join(text.lower().split())
    return text


@lru_cache(maxsize=4096)
def _e164(text: str, regions: tuple[str, ...]) -> str:
    """A telephone number with its country's code and without its extension; its digits where no plan knows it."""
    import phonenumbers

    first = phonenumbers.normalize_digits_only(text)
    if not text.lstrip("( ").startswith("+") and first.startswith("00"):
        text = "+" + first[2:]
    for region in (None,) if "+" in text else regions:
        try:
            number = phonenumbers.parse(text, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_possible_number(number):
            return f"+{number.country_code} {number.national_number}"
    return first


def _country(normal: str) -> int:
    return int(normal[1:].partition(" ")[0]) if normal.startswith("+") else 1


def _coin(text: str, digest: bytes) -> str:
    """An address of the same form: of Bitcoin's test network, of Ethereum with eight zeros first."""
    if text.startswith("0x"):
        return "0x" + eip55("0" * 8 + digest.hex()[:32])
    if text.startswith("bc1"):
        return bech32("tb", digest[:20])
    return base58check((b"\x6f" if text.startswith("1") else b"\xc4") + digest[:20])
