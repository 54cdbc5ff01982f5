"""What stands in a find's place: a tag, or a keyed pseudonym of the same kind.

A pseudonym is a function of (key, kind, normal form of the datum): the same address becomes the same
pseudonym in any partition and any run with the key, and nothing can be linked without it. All pseudonyms
lie where real data cannot: example.com, the 555-01xx telephones, the networks that RFC 2544 and RFC 3849 set
aside, card numbers of no issuer, the country code ZZ, area 000. So they are known again, and a second pass
leaves them alone. Telephones and IPv4 addresses have small such ranges (about 60,000 and 131,072): there two
people may share a pseudonym.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os

from pipeline.redact.scan import Kind
from schemas.errors import UserError

MIN_KEY = 16  # bytes

# Every form that `pseudonym` makes. Finds that overlap one are dropped.
OWN = (
    rb"user-[0-9a-f]{16}@example\.com|\+1-[2-9][0-8][0-9]-555-01[0-9]{2}|198\.1[89]\.[0-9]{1,3}\.[0-9]{1,3}"
    rb"|2001:db8(?::[0-9a-f]{4}){6}|9[0-9]{3} [0-9]{4} [0-9]{4} [0-9]{4}|ZZ[0-9]{20}|000-[0-9]{2}-[0-9]{4}"
    rb"|secret-[0-9a-f]{16}"
)


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
    """Tells one key from another and gives neither away."""
    return hmac.new(key, b"corpusmill redact fingerprint", hashlib.sha256).hexdigest()[:16]


def pseudonym(key: bytes, kind: Kind, value: bytes) -> bytes:
    """The pseudonym of a datum (HMAC-SHA256); other spellings of the same datum get the same one."""
    text = normal_form(kind, value.decode("utf-8", "replace"))
    digest = hmac.new(key, f"{kind}\x00{text}".encode(), hashlib.sha256).digest()
    number, code = int.from_bytes(digest[:8], "big"), digest.hex()
    if kind == "email":
        made = f"user-{code[:16]}@example.com"
    elif kind == "phone":
        made = f"+1-{2 + number % 8}{number // 8 % 9}{number // 72 % 10}-555-01{number // 720 % 100:02d}"
    elif kind == "ip" and ":" in text:
        made = "2001:db8:" + ":".join(code[i : i + 4] for i in range(0, 24, 4))
    elif kind == "ip":
        made = str(ipaddress.IPv4Address(int(ipaddress.IPv4Address("198.18.0.0")) + number % 2**17))
    elif kind == "card":
        body = f"9{number % 10**14:014d}"
        full = body + _luhn(body)
        made = " ".join(full[i : i + 4] for i in range(0, 16, 4))
    elif kind == "iban":
        body = f"{number % 10**18:018d}"
        made = f"ZZ{98 - int(body + '353500') % 97:02d}{body}"
    elif kind == "ssn":
        made = f"000-{number % 100:02d}-{number // 100 % 10000:04d}"
    else:
        made = f"secret-{code[:16]}"
    return made.encode()


def normal_form(kind: Kind, text: str) -> str:
    """One spelling for all spellings of a datum."""
    if kind == "email":
        return text.lower()
    if kind == "ip":
        return str(ipaddress.ip_address(text))
    if kind in ("card", "ssn"):
        return "".join(c for c in text if c.isdigit())
    if kind == "phone":
        digits = "".join(c for c in text if c.isdigit())
        return digits[-10:]  # with or without the country's code
    if kind == "iban":
        return "".join(c for c in text if c.isalnum()).upper()
    return text


def _luhn(digits: str) -> str:
    from stdnum import luhn

    return str(luhn.calc_check_digit(digits))
