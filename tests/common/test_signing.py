"""Keys from the environment and from files, signatures, and what a wrong key says: never the key."""

from __future__ import annotations

import base64
import builtins
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.signing import KEY, is_signed, public_key, signer

SEED = bytes(range(32))
PRIVATE = Ed25519PrivateKey.from_private_bytes(SEED)
RAW = base64.b64encode(PRIVATE.public_key().public_bytes_raw()).decode()


def private(encoding: form.Encoding, key: Any = PRIVATE) -> bytes:
    return key.private_bytes(encoding, form.PrivateFormat.PKCS8, form.NoEncryption())


def public(encoding: form.Encoding) -> bytes:
    return PRIVATE.public_key().public_bytes(encoding, form.PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    "text",
    [
        private(form.Encoding.PEM).decode(),
        base64.b64encode(private(form.Encoding.DER)).decode(),
        base64.b64encode(SEED).decode() + "\n",
    ],
)
def test_a_private_key_in_every_form(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(KEY, text)
    key = signer()
    assert key is not None and key.public_key == RAW
    assert base64.b64encode(SEED).decode() not in repr(key) and repr(SEED) not in repr(vars(key))
    assert key.sign(b"data") == key.sign(b"data")
    assert is_signed(b"data", key.sign(b"data"), RAW) and not is_signed(b"date", key.sign(b"data"), RAW)


def test_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    assert signer() is None
    monkeypatch.setenv(KEY, " ")
    assert signer() is None


RSA = private(form.Encoding.PEM, generate_private_key(65537, 1024)).decode()


@pytest.mark.parametrize("text", ["secret-of-mine", base64.b64encode(SEED[:31]).decode(), RSA, RSA[:-90]])
def test_a_wrong_key_is_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(KEY, text)
    with pytest.raises(UserError, match=f"{KEY}: no ed25519 private key") as raised:
        signer()
    assert text not in str(raised.value) and raised.value.__cause__ is None


@pytest.mark.parametrize(
    "content", [public(form.Encoding.PEM), RAW.encode(), base64.b64encode(public(form.Encoding.DER))]
)
def test_a_public_key_as_text_or_in_a_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content + b"\n")
    assert public_key(str(file)) == public_key(content.decode()) == RAW


@pytest.mark.parametrize(
    "text", ["nowhere.pem", "AAAA", "x" * 5000, "\0", private(form.Encoding.PEM).decode()]
)
def test_no_public_key(text: str) -> None:
    with pytest.raises(
        UserError, match="--public-key: the given text: neither a file with an ed25519"
    ) as raised:
        public_key(text)
    assert text not in str(raised.value) and len(str(raised.value)) < 300


@given(st.text(max_size=100), st.text(max_size=100))
def test_signatures_of_any_text(signature: str, by: str) -> None:
    assert not is_signed(b"data", signature, by) and not is_signed(b"data", signature, RAW)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setenv(KEY, base64.b64encode(SEED).decode())
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install 'corpusmill\[sign\]'"):
        signer()
