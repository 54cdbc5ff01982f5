"""Keys and tokens: by the published form of their issuer, by PEM armour, or by a telling name and entropy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from pipeline.redact.scan import WORD, Hit, after, before, spans

# AWS access key ids, GitHub, GitLab, Slack, Google, Stripe, npm, JSON Web Tokens (RFC 7519).
FORMATS = (
    rb"(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}"
    rb"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35}|[rs]k_(?:live|test)_[0-9A-Za-z]{16,}|npm_[A-Za-z0-9]{36,}"
    rb"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
)
PEM = (
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.()\"'-]*?"
    rb"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
)
MAX_PEM = 16 << 10  # bytes; a 16384-bit RSA key takes 12.7 kB
ASSIGNED = (
    rb"(?i)(?:api[_-]?key|secret|token|passw(?:or)?d|access[_-]?key|client[_-]?secret|private[_-]?key)"
    rb"[\"']?[ \t]*(?:=>|:=|=|:)[ \t]*[\"']?[A-Za-z0-9+/_\-.=~]{16,}"
)
_NAME = re.compile(rb"[A-Za-z_-]+[\"']?[ \t]*(?:=>|:=|=|:)[ \t]*[\"']?")  # what stands before the value
_PLACEHOLDER = re.compile(rb"(?i)example|your[_-]|xxxx|placeholder|change[_-]?me|dummy|redacted")
MAX_VALUE = 512
MIN_ENTROPY = 3.5  # bits per character; random hex of 32 characters has 3.6 on average, English names 3.0
MIN_ENTROPY_HEX = 3.0


def secrets(buffer: bytes) -> Iterator[Hit]:
    """Credentials; of a `name = value` pair only the value."""
    for start, end in spans(FORMATS, buffer):
        left, right = before(buffer, start, 1), after(buffer, end, 1)
        if not (left and left[0] in WORD) and not (right and right[0] in WORD):
            yield Hit(start, end, "secret")
    for start, end in spans(PEM, buffer):
        if end - start <= MAX_PEM:
            yield Hit(start, end, "secret")
    for start, end in spans(ASSIGNED, buffer):
        name = _NAME.match(buffer, start, end)
        assert name is not None
        value = buffer[name.end() : end].rstrip(b".")
        if looks_random(value):
            yield Hit(name.end(), name.end() + len(value), "secret")


def looks_random(value: bytes) -> bool:
    """Letters and digits mixed, with more entropy than words have. `value` holds no white space."""
    if not 16 <= len(value) <= MAX_VALUE or _PLACEHOLDER.search(value):
        return False
    if not re.search(rb"[0-9]", value) or not re.search(rb"[A-Za-z]", value):
        return False
    hexadecimal = re.fullmatch(rb"[0-9a-fA-F]+", value) is not None
    return entropy(value) >= (MIN_ENTROPY_HEX if hexadecimal else MIN_ENTROPY)


def entropy(value: bytes) -> float:
    """Shannon entropy of the bytes' distribution, bits per byte."""
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts)
