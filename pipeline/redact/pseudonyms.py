"""What stands in a find's place: a tag, or a keyed pseudonym of the same kind.

A pseudonym is a function of (key, kind, normal form of the datum): the same address becomes the same
pseudonym in any partition and any run with the key, and nothing can be linked without it. All pseudonyms
lie where real data cannot: example.com, telephones kept for fiction, the networks that RFC 2544 and RFC 3849 set
aside, cards of test ranges, the country code ZZ, area 000, test networks of coins, and what `standins` defines for
national numbers. So they are known again, and a second pass leaves them alone. Some of those ranges are small
(telephones: about 60,000 with +1, some thousands elsewhere; IPv4: 131,072; BSN: 91,000): there two people may share a
pseudonym.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from unicodedata import normalize

from corpusmill.common.errors import UserError
from corpusmill.pipeline.redact.coins import base58check, bech32, eip55, is_base58check
from corpusmill.pipeline.redact.identity_numbers import compact
from corpusmill.pipeline.redact.scan import TAG, Kind
from corpusmill.pipeline.redact.standins import NATIONAL, OWN_CARDS, Draw, card, iban, own_phones, phone

MIN_KEY = 16  # bytes

# The forms that `pseudonym` makes and a detector might read. Finds that overlap one are dropped.
OWN = re.compile(
    rb"user-[0-9a-f]{16}@example\.com|user-[0-9a-f]{8}:secret-[0-9a-f]{16}|secret-[0-9a-f]{16}"
    rb"|198\.1[89]\.[0-9]{1,3}\.[0-9]{1,3}|2001:db8(?::[0-9a-f]{4}){6}|02:00:5e(?::[0-9a-f]{2}){3}"
    rb"|ZZ[0-9]{2}[0-9A-Z]{11,30}|000-[0-9]{2}-[0-9]{4}|0x0{8}[0-9a-fA-F]{32}|tb1q[02-9ac-hj-np-z]{38}"
    rb"|(?:Person|Address) [0-9a-f]{8}|" + OWN_CARDS + b"|" + own_phones()
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
    text = normal_form(kind, normalize("NFC", value.decode("utf-8", "replace")), tuple(regions))
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
    if kind in ("iban", "mac") or kind in NATIONAL:
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
