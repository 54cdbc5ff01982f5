"""Identity by content: the same record has the same id in any run, on any machine, in any partition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import xxhash

from corpusmill.common.storage import Folder

ID_BYTES = 16


def doc_id(source: str, locator: str) -> bytes:
    """16-byte document id: xxh3_128 of the source's name and the locator inside it.

    The locator is `path#record` (path relative to the source, record counted from 0) or a WARC record
    id: never a row position, a rank or a random number, so partitions may be cut differently tomorrow.
    """
    return xxhash.xxh3_128_digest(f"{source}\x00{locator}".encode("utf-8", "surrogatepass"))


def named_id(name: str) -> bytes | None:
    """The document id that a user writes as 32 hex digits; None for any other name."""
    try:
        found = bytes.fromhex(name)
    except ValueError:
        return None
    return found if len(found) == ID_BYTES else None


def text_hash(text: str) -> bytes:
    """16-byte xxh3_128 of the UTF-8 text."""
    return xxhash.xxh3_128_digest(text.encode("utf-8"))


def checksum(data: bytes | memoryview) -> str:
    """xxh3_128 of a file's bytes, in hex: what manifests hold for every published file."""
    return xxhash.xxh3_128_hexdigest(data)


def sha256(data: bytes | memoryview) -> str:
    """SHA-256 of a file's bytes, in hex: nobody can make other bytes that have it, so a signature may rest on it."""
    return hashlib.sha256(data).hexdigest()


def write_pieces(file: Folder, pieces: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write `pieces`, one after the other, as one file, atomically; (its bytes, their xxh3_128)."""
    size, whole = 0, xxhash.xxh3_128()
    with file.create() as stream:
        for piece in pieces:
            stream.write(piece)
            whole.update(piece)
            size += len(piece)
    return size, whole.hexdigest()
