"""E-mail addresses, and public IPv4 and IPv6 addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from pipeline.redact.scan import ALNUM, DIGITS, LETTERS, WORD, Hit, after, before, spans

# --- e-mail: found by its '@' and domain; the local part is then read backwards.
AT_DOMAIN = rb"@[A-Za-z0-9\x80-\xff][A-Za-z0-9.\-\x80-\xff]*\.[A-Za-z]{2,24}"
_LOCAL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+$")
_DOMAIN = re.compile(r"@((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+)([A-Za-z]{2,24})(?![A-Za-z0-9])")
_SENTENCE = re.compile(r"(@(?:[^\W_][\w-]*\.)+[a-z]{2,24})\.[A-Z][a-z]*$")  # "…@site.org.Next sentence"
_IMAGES = frozenset(("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "css", "js", "pdf"))  # logo@2x.png
_EAST_ASIAN = "\u2e80"  # from here on scripts are written without spaces, and glue to an address

# --- IP addresses
IPV4_RUN = rb"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}"
IPV6 = rb"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]*"  # 2000::/3 is all of the public space
_NOT_AN_ADDRESS = re.compile(
    rb"(?:\b(?:v|ver|versions?|releases?|sections?|sect|sec|chapters?|clauses?|articles?|build|firmware|rev"
    rb"|revision|oid|update|patch|figure|fig|table|appendix|part)|\xc2\xa7)[.:#]?(?:[ \t]|\xc2\xa0){0,2}$"
    rb"|[<>=!~^;](?:=|gt;)?[ \t]?=[ \t]?$",  # a version's bounds: `>=4.14.1.0`
    re.IGNORECASE,
)
# Four small numbers are more often a version or a heading than an address: they need a word that says so.
_SMALL = 100  # one address in 43 has four such octets
_SAYS_ADDRESS = re.compile(
    rb"(?i)\bip|ipv4|addr|host|server|\bdns|resolver|\bping\b|gateway|inet|://|proxy|subnet|router?\b|traceroute|\bport"
)
_RESOLVERS = frozenset((b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"1.0.0.1", b"9.9.9.9"))  # known to everybody


def emails(buffer: bytes) -> Iterator[Hit]:
    """Addresses with a dotted domain; letters of any script (RFC 6531), no quoted local parts."""
    for at, end in spans(AT_DOMAIN, buffer):
        domain = _domain(buffer[at:end].decode("utf-8", "ignore"))
        local = _local(before(buffer, at, 260))
        if domain and local:
            yield Hit(at - len(local), at + len(domain.encode()), "email")


def _domain(text: str) -> str:
    """The longest valid `@domain` that `text` begins with, or ''."""
    cut = next(
        (i for i, c in enumerate(text) if c >= _EAST_ASIAN or not (c.isalnum() or c in "@.-")), len(text)
    )
    match = _DOMAIN.match(text[:cut])
    if match is None:
        return ""
    found = match.group()
    sentence = _SENTENCE.match(found)
    if sentence:
        found = sentence.group(1)
    return "" if found.rpartition(".")[2].lower() in _IMAGES else found


def _local(window: bytes) -> bytes:
    """The local part that `window` ends with, or b''."""
    match = _LOCAL.search(window.decode("utf-8", "ignore"))
    if match is None:
        return b""
    text = match.group()
    east_asian = [i for i, c in enumerate(text) if c >= _EAST_ASIAN]
    text = text[east_asian[-1] + 1 :] if east_asian else text
    text = text.lstrip(".!#$%&'*+/=?^`{|}~-")  # punctuation before the address: quotes, mailto=, lists
    for opener in ("=", "'", "`", "|", "/"):  # "to=ann@site.org", "'ann@site.org"
        text = text.rpartition(opener)[2]
    if not text or len(text) > 64 or text[-1] == "." or ".." in text:
        return b""
    return text.encode()


def addresses(buffer: bytes) -> Iterator[Hit]:
    """IPv4 and IPv6 addresses that `ipaddress` calls global. Not section numbers, versions or OIDs: more than
    four groups, a word such as "section" before, or four small numbers with no word of networks say so."""
    for start, end in spans(IPV4_RUN, buffer):
        if _plain_ipv4(buffer, start, end) and _is_global(buffer[start:end]):
            yield Hit(start, end, "ip")
    for start, end in spans(IPV6, buffer):
        while end > start and buffer[end - 1] == 0x3A and buffer[end - 2] != 0x3A:
            end -= 1
        left, right = before(buffer, start, 1), after(buffer, end, 1)
        if (left and left[0] in WORD | {0x2E, 0x3A}) or (right and right[0] in WORD | {0x3A}):
            continue
        groups = [group for group in buffer[start:end].split(b":") if group]
        if len(groups) >= 3 and _is_global(buffer[start:end]):  # `x[2000::2]` has two, and is a slice
            yield Hit(start, end, "ip")


def _plain_ipv4(buffer: bytes, start: int, end: int) -> bool:
    left, right = before(buffer, start, 24), after(buffer, end, 2)
    if left and (left[-1] in WORD or left[-1] in b".\\"):
        return False
    if left and left[-1] in b"-/" and len(left) > 1 and left[-2] in LETTERS:  # lib-1.2.3.4, path/1.2.3.4
        return False
    if right and right[0] in WORD:
        return False
    if (
        len(right) == 2
        and right[0] in b".-,"
        and right[1] in {0x2E: ALNUM, 0x2D: LETTERS, 0x2C: DIGITS}[right[0]]
    ):
        return False
    if _NOT_AN_ADDRESS.search(left):
        return False
    if all(int(octet) < _SMALL for octet in buffer[start:end].split(b".")):
        line = before(buffer, start, 40).rpartition(b"\n")[
            2
        ]  # "the server.\n\n27.2.5.2 Setting up": a heading
        return buffer[start:end] in _RESOLVERS or _SAYS_ADDRESS.search(line) is not None
    return True


def _is_global(raw: bytes) -> bool:
    try:
        return ipaddress.ip_address(raw.decode()).is_global
    except ValueError:
        return False
