"""Keys and tokens: by the published form of their issuer, by PEM armour, or by a suggestive name and entropy; user names
and passwords in URLs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from corpusmill.pipeline.redact import WORD, Hit, after, before

# AWS, GitHub, GitLab, Slack, Google, Stripe, npm, Hugging Face, DigitalOcean, Shopify, Linear, Groq, Grafana, Docker,
# RubyGems, OpenAI and Anthropic, PyPI, age, SendGrid, Twilio, Databricks, JSON Web Tokens (RFC 7519). Each begins with
# one of `kernels.around.PREFIXES`, or is a word that `kernels.tokens` knows.
_FORMATS = re.compile(
    rb"(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}"
    rb"|glpat-[A-Za-z0-9_-]{20,255}|xox[abeoprs]-[A-Za-z0-9-]{10,255}|xapp-[0-9]-[A-Za-z0-9-]{10,255}"
    rb"|AIza[0-9A-Za-z_-]{35}|GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{20,1024}"
    rb"|[rs]k_(?:live|test)_[0-9A-Za-z]{16,255}|whsec_[A-Za-z0-9+/=]{32,255}|npm_[A-Za-z0-9]{36,255}"
    rb"|hf_[A-Za-z0-9]{30,64}|do[opr]_v1_[0-9a-f]{64}|shp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}|lin_api_[A-Za-z0-9]{40}"
    rb"|gsk_[A-Za-z0-9]{40,64}|glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|dckr_pat_[A-Za-z0-9_-]{27}|rubygems_[0-9a-f]{48}"
    rb"|sk-(?:ant|proj|svcacct|or)-[A-Za-z0-9_-]{20,255}|sk-[A-Za-z0-9]{32,64}|pypi-AgE[A-Za-z0-9_-]{50,512}"
    rb"|AGE-SECRET-KEY-1[0-9A-Z]{58}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|SK[0-9a-f]{32}|dapi[0-9a-f]{32}"
    rb"|eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,2048}"
)
_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(rb"[A-Za-z0-9+/=\s\\:,.()\"'-]*")
_CUT_BODY = re.compile(rb"(?:\s|\\n|\\r)*[A-Za-z0-9+/=]{32,}(?:(?:\s|\\n|\\r)+[A-Za-z0-9+/=]{16,})*")
MAX_PEM = 16 << 10  # bytes; a 16384-bit RSA key takes 12.7 kB

_NAME = re.compile(
    rb"(?i)(?:api[_-]?key|secret|token|passw(?:or)?d|\bpwd|access[_-]?key|account[_-]?key|shared[_-]?key"
    rb"|private[_-]?key|secret[_-]?key|authorization)[\"']?[ \t]*:?$"
)
_OPERATOR = re.compile(rb"(?:=>|:=|==?|:)[ \t]*[\"']?(?:(?:bearer|basic|token)[ ]+)?", re.IGNORECASE)
_VALUE = re.compile(rb"[A-Za-z0-9+/_\-.=~]{16,}")
_PLACEHOLDER = re.compile(rb"(?i)example|your[_-]|xxxx|placeholder|change[_-]?me|dummy|redacted")
MAX_VALUE = 512
MIN_ENTROPY = 3.5  # bits per character; random hex of 32 characters has 3.6 on average, English names 3.0
MIN_ENTROPY_HEX = 3.0

# --- in URLs
_USERINFO = re.compile(rb"://([^\s/?#@:\"<>\\]{1,128}:[^\s/?#@\"<>\\]{1,128})@[A-Za-z0-9\[]")
_QUERY_NAME = re.compile(
    rb"(?i)(?:[a-z0-9_-]*[_-])?(token|api-?key|secret|pass(?:word|wd)?|pwd|key|sig(?:nature)?|auth|credential)"
)
_QUERY_VALUE = re.compile(rb"[A-Za-z0-9+/_\-.=~%]{4,512}")
_URL = re.compile(rb"(?i)(?:[a-z][a-z0-9+.-]*://|www\.)[^\s\"<>]*$")
# A signature grants access where the URL gives an expiry or a grantee; Google Books signs every page.
_SIGNED = re.compile(
    rb"(?i)[?&;](?:sv|se|exp|expires?|policy|key-pair-id|googleaccessid|awsaccesskeyid|x-(?:amz|goog)-)"
)
# What stands for a password in documentation.
_STANDS_FOR = re.compile(
    rb"(?i)(?:your[_-]?)?(?:pass(?:word|wd)?|pwd|secret|token)[0-9]?|x{2,}|\*+|\.+|[$%{\[(].*|.*[)}\]]"
)


def formats(buffer: bytes, start: int) -> Iterator[Hit]:
    """A key in the form of its issuer that begins at `start`."""
    match = _FORMATS.match(buffer, start)
    if match is None:
        return
    left, right = before(buffer, start, 1), after(buffer, match.end(), 1)
    if not (left and left[0] in WORD) and not (right and right[0] in WORD):
        yield Hit(start, match.end(), "secret")


def armoured(buffer: bytes, start: int) -> Iterator[Hit]:
    """A private key in PEM armour; where a text ends before the armour does, the lines that are there."""
    begin = _BEGIN.match(buffer, start)
    if begin is None:
        return
    end = buffer.find(b"-----END ", begin.end(), start + MAX_PEM)
    last = _END.match(buffer, end) if end >= 0 else None
    body = _BODY.match(buffer, begin.end(), end) if last else None
    if last and body and body.end() == end and b"-----BEGIN" not in buffer[begin.end() : end]:
        yield Hit(start, last.end(), "secret")
        return
    cut = _CUT_BODY.match(buffer, begin.end(), start + MAX_PEM)
    if cut:
        yield Hit(start, cut.end(), "secret")


def assigned(buffer: bytes, at: int) -> Iterator[Hit]:
    """The value of `name = value`, the operator at `at`: a telling name, a value that looks random."""
    if not _NAME.search(before(buffer, at, 40)):
        return
    operator = _OPERATOR.match(buffer, at)
    match = _VALUE.match(buffer, operator.end()) if operator else None
    if match and looks_random(match.group().rstrip(b".")):
        yield Hit(match.start(), match.start() + len(match.group().rstrip(b".")), "secret")


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


def userinfo(buffer: bytes, at: int) -> Iterator[Hit]:
    """`user:password` of a URL (RFC 3986, 3.2.1) whose `://` is at `at`."""
    match = _USERINFO.match(buffer, at)
    if match is None:
        return
    user, _, password = match.group(1).partition(b":")
    if not _STANDS_FOR.fullmatch(password) and user[0] not in b"{$[(%":
        yield Hit(match.start(1), match.end(1), "url_credential")


def query(buffer: bytes, start: int, at: int) -> Iterator[Hit]:
    """The value of a telling parameter of a URL: the name from `start` on, its `=` at `at`. A password is one
    whatever it looks like; a token or key must look random, since `?key=value` mostly is no secret."""
    name, match = _QUERY_NAME.fullmatch(buffer, start, at), _QUERY_VALUE.match(buffer, at + 1)
    if name is None or match is None or not _URL.search(before(buffer, start, 400)):
        return
    value, word = match.group().rstrip(b"."), name.group(1).lower()
    if len(value) < 4 or _STANDS_FOR.fullmatch(value) or _PLACEHOLDER.search(value):
        return
    if word.startswith(b"sig") and not _SIGNED.search(
        before(buffer, start, 400) + after(buffer, at, 400).split()[0]
    ):
        return
    if word.startswith((b"pass", b"pwd")) or looks_random(value) or (word == b"token" and _mixed(value)):
        yield Hit(match.start(), match.start() + len(value), "url_credential")


def _mixed(value: bytes) -> bool:
    return (
        len(value) >= 8
        and re.search(rb"[0-9]", value) is not None
        and re.search(rb"[A-Za-z]", value) is not None
    )
