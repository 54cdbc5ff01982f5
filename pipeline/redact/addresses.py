"""E-mail, IPv4, IPv6 and hardware addresses; addresses of Bitcoin (Base58Check, Bech32 and Bech32m) and Ethereum (EIP-55), each
by its checksum."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterator

from corpusmill.pipeline.redact import ALNUM, DIGITS, LETTERS, WORD, Hit, after, before, context

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


BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_SAYS_ETHEREUM = re.compile(rb"(?i)\beth\b|ether|wallet|erc-?20|donat|\bsend\b|address|contract")
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32M = 0x2BC830A3


def coins(buffer: bytes, start: int, end: int) -> Iterator[Hit]:
    """The word from `start` to `end`, if its checksum is right. An Ethereum address in letters of one case has
    none: it needs a context word."""
    left, right = before(buffer, start, 1), after(buffer, end, 1)
    if (left and left[0] in b"_-/+=") or (right and right[0] in b"_-/+="):
        return
    word = buffer[start:end].decode()
    if word[:2] in ("0x", "0X"):
        checked = is_ethereum(word)
        good = checked or (checked is None and _SAYS_ETHEREUM.search(context(buffer, start, 60)) is not None)
    elif word[:2].lower() == "bc":
        good = is_bech32(word)
    else:
        good = is_base58check(word)
    if good:
        yield Hit(start, end, "crypto")


def is_base58check(word: str, test: bool = False) -> bool:
    """25 bytes whose last four are the first of the double SHA-256 of the others, with the version of an address of
    the main network (or of the test network)."""
    value = 0
    for char in word:
        digit = BASE58.find(char)
        if digit < 0:
            return False
        value = value * 58 + digit
    if value >= 1 << 200:
        return False
    data = value.to_bytes(25, "big")
    zeros = len(data) - len(data.lstrip(b"\0"))
    known = data[0] in ((0x6F, 0xC4) if test else (0x00, 0x05))
    return known and zeros == len(word) - len(word.lstrip("1")) and data[21:] == _double(data[:21])


def base58check(payload: bytes) -> str:
    """21 bytes (version and hash) with their checksum, in Base58."""
    value, word = int.from_bytes(payload + _double(payload), "big"), ""
    while value:
        value, digit = divmod(value, 58)
        word = BASE58[digit] + word
    return "1" * (len(payload) - len(payload.lstrip(b"\0"))) + word


def _double(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]


def is_bech32(word: str) -> bool:
    """A segregated-witness address of the main network (BIP 173, BIP 350)."""
    if word not in (word.lower(), word.upper()):
        return False
    values = [BECH32.find(char) for char in word.lower()[3:]]
    if len(values) < 8 or min(values) < 0 or values[0] > 16:
        return False
    return _polymod("bc", values) == (_BECH32M if values[0] else 1)


def bech32(prefix: str, data: bytes) -> str:
    """A version 0 address of 20 bytes."""
    bits = "".join(f"{byte:08b}" for byte in data)
    values = [0, *(int(bits[i : i + 5], 2) for i in range(0, len(bits), 5))]
    check = _polymod(prefix, [*values, 0, 0, 0, 0, 0, 0]) ^ 1
    values += [check >> 5 * (5 - i) & 31 for i in range(6)]
    return f"{prefix}1" + "".join(BECH32[value] for value in values)


def _polymod(prefix: str, values: list[int]) -> int:
    check = 1
    for value in [*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix), *values]:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for i, generator in enumerate(_GENERATORS):
            check ^= generator if top >> i & 1 else 0
    return check


def is_ethereum(word: str) -> bool | None:
    """Whether the letters' cases are those of EIP-55; None if all have one case, and carry no checksum."""
    digits = word[2:]
    if re.fullmatch(r"[0-9a-fA-F]{40}", digits) is None or len(set(digits)) < 4:
        return False
    if digits in (digits.lower(), digits.upper()):
        return None
    return eip55(digits) == digits


def eip55(digits: str) -> str:
    """40 hexadecimal digits in the cases that EIP-55 asks for."""
    lower = digits.lower()
    marks = keccak256(lower.encode()).hex()
    return "".join(c.upper() if int(m, 16) >= 8 else c for c, m in zip(lower, marks, strict=False))


def keccak256(data: bytes) -> bytes:
    """Keccak-256 as Ethereum uses it: SHA-3's padding is another, so `hashlib` has none. Under 136 bytes."""
    block = bytearray(data.ljust(136, b"\0"))
    block[len(data)] ^= 0x01
    block[135] ^= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for i in range(17):
        lanes[i % 5][i // 5] = int.from_bytes(block[8 * i : 8 * i + 8], "little")
    register = 1
    for _ in range(24):
        columns = [a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] for a in lanes]
        mixed = [columns[(x + 4) % 5] ^ _turn(columns[(x + 1) % 5], 1) for x in range(5)]
        lanes = [[lanes[x][y] ^ mixed[x] for y in range(5)] for x in range(5)]
        x, y, lane = 1, 0, lanes[1][0]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            lane, lanes[x][y] = lanes[x][y], _turn(lane, (step + 1) * (step + 2) // 2)
        for y in range(5):
            row = [lanes[x][y] for x in range(5)]
            for x in range(5):
                lanes[x][y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5])
        for j in range(7):
            register = (register << 1 ^ (register >> 7) * 0x71) % 256
            if register & 2:
                lanes[0][0] ^= 1 << ((1 << j) - 1)
    return b"".join((lanes[i][0] & (2**64 - 1)).to_bytes(8, "little") for i in range(4))


def _turn(lane: int, by: int) -> int:
    by %= 64
    lane &= 2**64 - 1
    return (lane << by | lane >> (64 - by)) & (2**64 - 1)
