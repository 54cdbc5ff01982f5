"""Ed25519 signatures, by `cryptography` (extra `sign`): a private key from the environment, public keys from files or as text.

A private key is read where something is signed and kept nowhere else: no message, representation or config holds it.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError

KEY = "CORPUSMILL_SIGNING_KEY"
RAW = 32  # bytes of an ed25519 key, private or public


class Signer:
    """Signs bytes. `public_key`: base64 of its 32 bytes, by which signatures are checked."""

    def __init__(self, key: Any) -> None:
        self._key = key
        self.public_key = base64.b64encode(key.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> str:
        """The signature of `data`, 64 bytes, as base64: the same bytes each time."""
        return base64.b64encode(self._key.sign(data)).decode()


def signer() -> Signer | None:
    """Of the private key in `CORPUSMILL_SIGNING_KEY`; None if that is empty. Raises `UserError` if it holds no such key, or
    `cryptography` is not installed."""
    text = os.environ.get(KEY, "").strip()
    if not text:
        return None
    library = _library(KEY)
    try:
        if text.startswith("-----"):
            key = library.serialization.load_pem_private_key(text.encode(), password=None)
        else:
            data = base64.b64decode(text, validate=True)
            key = (
                library.private.from_private_bytes(data)
                if len(data) == RAW
                else library.serialization.load_der_private_key(data, password=None)
            )
    except Exception:  # the library's own words might show some of the key
        key = None
    if not isinstance(key, library.private):
        raise UserError(
            f"{KEY}: no ed25519 private key; give PEM (`openssl genpkey -algorithm ed25519`), without a password, or base64 of"
            " its 32 bytes"
        )
    return Signer(key)


def public_key(text: str) -> str:
    """The public key that `text` is, or that the file of this name holds: PEM, or base64 of its 32 bytes or of DER; as base64 of
    its 32 bytes. Raises `UserError` if there is none."""
    library = _library("--public-key")
    content, where = text.encode("utf-8", "replace"), "the given text"
    try:
        if Path(text).is_file():
            content, where = Path(text).read_bytes(), text
    except (OSError, ValueError):  # longer than a name may be, or unreadable
        pass
    content = content.strip()
    try:
        if content.startswith(b"-----"):
            key = library.serialization.load_pem_public_key(content)
        else:
            data = base64.b64decode(content, validate=True)
            key = (
                library.public.from_public_bytes(data)
                if len(data) == RAW
                else library.serialization.load_der_public_key(data)
            )
    except Exception:
        key = None
    if not isinstance(key, library.public):
        raise UserError(  # without the text, which may be the private key
            f"--public-key: {where}: neither a file with an ed25519 public key, nor such a key; give a PEM file (`openssl pkey -in key.pem -pubout`), or base64 of its"
            " 32 bytes"
        )
    return base64.b64encode(key.public_bytes_raw()).decode()


def is_signed(data: bytes, signature: str, by: str) -> bool:
    """Whether a signature (base64) of `data` was made with the private key of the public key `by` (base64)."""
    library = _library("signatures")
    try:
        key = library.public.from_public_bytes(base64.b64decode(by, validate=True))
        key.verify(base64.b64decode(signature, validate=True), data)
    except (binascii.Error, ValueError, library.invalid):
        return False
    return True


class _Library(NamedTuple):
    private: Any
    public: Any
    serialization: Any
    invalid: type[Exception]


def _library(what: str) -> _Library:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError:
        raise UserError(f"{what}: needs the package cryptography: pip install 'corpusmill[sign]'") from None
    return _Library(Ed25519PrivateKey, Ed25519PublicKey, serialization, InvalidSignature)
