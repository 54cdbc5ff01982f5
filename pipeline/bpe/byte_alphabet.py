"""Tokens as bytes: GPT-2's printable stand-ins for the 256 bytes, and back."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def token_bytes(token: str) -> bytes:
    """The bytes that a byte-level token's name stands for; a name outside the alphabet stands for itself."""
    try:
        return bytes(map(alphabet().__getitem__, token))
    except KeyError:
        return token.encode()
