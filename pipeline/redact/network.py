"""E-mail addresses, IPv4 and IPv6 addresses, and the addresses of network hardware."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from corpusmill.pipeline.redact.scan import ALNUM, DIGITS, LETTERS, WORD, Hit, after, before, context

# --- e-mail: found by its '@' and domain; the local part is then read backwards.
_LOCAL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+$")
_DOMAIN = re.compile(r"@((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+)([A-Za-z]{2,24})(?![A-Za-z0-9])")
_SENTENCE = re.compile(r"(@(?:[^\W_][\w-]*\.)+[a-z]{2,24})\.[A-Z][a-z]*$")  # "…@site.org.Next sentence"
_IMAGES = frozenset(("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "css", "js", "pdf"))  # logo@2x.png
_EAST_ASIAN = "\u2e80"  # from here on scripts are written without spaces, and glue to an address

# --- IP addresses
_NOT_AN_ADDRESS = re.compile(
    rb"(?:\b(?:v|ver|versions?|releases?|sections?|sect|sec|chapters?|clauses?|articles?|build|firmware|rev"
    rb"|revision|oid|update|patch|figure|fig|table|appendix|part)|\xc2\xa7)[.:#]?(?:[ \t]|\xc2\xa0){0,2}$"
    rb"|[<>=!~^;](?:=|gt;)?[ \t]?=[ \t]?$",  # a version's bounds: `>=4.14.1.0`
    re.IGNORECASE,
)
# Four small numbers are more often a version or a heading than an address: they need a context word.
_SMALL = 100  # one address in 43 has four such octets
_ADDRESS_CONTEXT = re.compile(
    rb"(?i)\bip|ipv4|addr|host|server|\bdns|resolver|\bping\b|gateway|inet|://|proxy|subnet|router?\b|traceroute|\bport"
)
_RESOLVERS = frozenset((b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"1.0.0.1", b"9.9.9.9"))  # known to everybody

# --- network hardware
_HARDWARE_CONTEXT = re.compile(
    rb"(?i)\bmac\b|hwaddr|\bether|bssid|\bphysical|wlan|wi-?fi|bluetooth|\bnic\b|\barp\b"
)


def emails(buffer: bytes, at: int, end: int) -> Iterator[Hit]:
    """The address around the `@` at `at`: a dotted domain, letters of any script (RFC 6531), no quoted local
    part."""
    domain = _domain(buffer[at:end].decode("utf-8", "ignore"))
    if domain:
        local = _local(before(buffer, at, 260))
        if local:
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


def ipv4(buffer: bytes, start: int, end: int, every: bool) -> Iterator[Hit]:
    """Four octets, unless the context indicates a section, version or OID: a fifth group, a word such as
    "section" before them, or four small numbers with no word of networks. `every`: private ones too."""
    if _plain_ipv4(buffer, start, end) and _is_address(buffer[start:end], every):
        yield Hit(start, end, "ip")


def ipv6(buffer: bytes, start: int, end: int, every: bool) -> Iterator[Hit]:
    """Groups of hexadecimal digits that are an address; at least three, since `x[2000::2]` is a slice."""
    groups = sum(1 for group in buffer[start:end].split(b":") if group)
    if groups >= 3 and _is_address(buffer[start:end], every):
        yield Hit(start, end, "ip")


def _plain_ipv4(buffer: bytes, start: int, end: int) -> bool:
    left, right = before(buffer, start, 24), after(buffer, end, 2)
    if left and (left[-1] in WORD or left[-1] in b".\\"):
        return False
    if left and left[-1] in b"-/" and len(left) > 1 and left[-2] in LETTERS:  # lib-1.2.3.4, path/1.2.3.4
        return False
    if right and right[0] in WORD:
        return False
    followers = {0x2E: ALNUM, 0x2D: LETTERS, 0x2C: DIGITS}
    if len(right) == 2 and right[0] in followers and right[1] in followers[right[0]]:
        return False
    if _NOT_AN_ADDRESS.search(left):
        return False
    if all(int(octet) < _SMALL for octet in buffer[start:end].split(b".")):
        # "the server.\n\n27.2.5.2 Setting up": a heading
        line = context(buffer, start, 40).rpartition(b"\n")[2]
        return buffer[start:end] in _RESOLVERS or _ADDRESS_CONTEXT.search(line) is not None
    return True


def _is_address(raw: bytes, every: bool) -> bool:
    """Public; or any that can be a machine's: neither unspecified, loopback nor the mask of a network."""
    try:
        address = ipaddress.ip_address(raw.decode())
    except ValueError:
        return False
    if not every:  # 2000::/3 is all that is given out of IPv6
        return address.is_global and (address.version == 4 or int(address) >> 125 == 1)
    return not (address.is_unspecified or address.is_loopback or raw.startswith((b"255.", b"0.")))


def hardware(buffer: bytes, start: int, end: int) -> Iterator[Hit]:
    """An EUI-48 (IEEE 802) as `00:1a:2b:3c:4d:5e`, with `-`, or as `001a.2b3c.4d5e`; without a letter only beside
    a word of networks, since six pairs of digits are often a time."""
    value = bytes(byte for byte in buffer[start:end] if byte in ALNUM).lower()
    if len(set(value)) < 3:  # 00:00:00:00:00:00, ff:ff:ff:ff:ff:ff: no device's
        return
    left, right = before(buffer, start, 1), after(buffer, end, 2)
    if (left and (left[0] in WORD or left[0] in b".:-")) or (right and right[0] in WORD):
        return
    if len(right) == 2 and right[0] in b".:-" and right[1] in ALNUM:
        return
    letters = any(byte in LETTERS for byte in value)
    if letters or _HARDWARE_CONTEXT.search(context(buffer, start, 48)):
        yield Hit(start, end, "mac")
