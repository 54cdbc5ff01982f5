"""Addresses of Bitcoin (Base58Check, Bech32 and Bech32m) and Ethereum (EIP-55), each by its checksum."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from corpusmill.pipeline.redact.scan import Hit, after, before, context

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
