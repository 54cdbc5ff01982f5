"""The HTTP response of an archived record (RFC 9112): status, type and body, its encodings undone within a limit of bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from email.message import Message as MimeHeader
from typing import Any, Final, NamedTuple

from corpusmill.pipeline.ingest.zstd_blocks import SLICE

HEADER_BYTES: Final = 64 << 10
# Header lines that end in a bare newline are common in old crawls (ClueWeb09).
_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"(?:HTTP/\d(?:\.\d)?|ICY)[ \t]+(\d{3})\b")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")


class Malformed(ValueError):
    """No HTTP message, or one whose body is damaged; the message says where, and holds none of it."""


class Message(NamedTuple):
    """`payload` may be one byte longer than the limit, never more. `kind` is the MIME type in lower case, or ""."""

    status: int
    kind: str
    charset: str | None
    payload: bytes
    body: bytes  # as stored
    unchunked: bytes  # with its transfer encoding undone, its content encoding not
    ignored: bool  # a header names an encoding that the body does not have


def parse(content: bytes, limit: int) -> Message:
    """The response in `content`; `payload` is decoded up to `limit` + 1 bytes.

    Crawlers that store a page decoded and leave `Content-Encoding` or `Transfer-Encoding` in its header are common: an
    encoding that the body does not begin with is ignored. Raises `Malformed`.
    """
    end = _END.search(content, 0, HEADER_BYTES)
    if end is None:
        raise Malformed(f"no end of the header in its first {min(len(content), HEADER_BYTES)} bytes")
    first, *lines = re.sub(rb"\r?\n[ \t]+", b" ", content[: end.start()]).split(b"\n")
    status = _STATUS.match(first)
    headers = _fields(lines)
    kind, charset = _content_type(headers.get("content-type", ""))
    body = content[end.end() :]
    payload, ignored = body, False
    if headers.get("transfer-encoding", "").lower().endswith("chunked"):
        plain = _dechunked(body)
        ignored = plain is None
        payload = body if plain is None else plain
    unchunked = payload
    codings = [name.strip().lower() for name in headers.get("content-encoding", "").split(",")]
    for name in reversed([name for name in codings if name not in ("", "identity", "none")]):
        decoded = _inflated(payload, name, limit)
        ignored |= decoded is None
        payload = payload if decoded is None else decoded
    return Message(
        int(status[1]) if status else 0, kind, charset, payload[: limit + 1], body, unchunked, ignored
    )


def _fields(lines: list[bytes]) -> dict[str, str]:
    """Field names in lower case; of a field given twice the first counts, as in browsers."""
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _content_type(value: str) -> tuple[str, str | None]:
    header = MimeHeader()
    header["content-type"] = value
    charset = header.get_param("charset")
    kind = value.partition(";")[0].strip().lower()
    return kind, charset.strip(" '\"") or None if isinstance(charset, str) else None


def _dechunked(body: bytes) -> bytes | None:
    """The body without its chunk headers; None if it does not begin with one. A last chunk may be cut short."""
    parts, at = [], 0
    while header := _CHUNK.match(body, at):
        size = int(header[1], 16)
        if not size:
            break
        parts.append(body[header.end() : header.end() + size])
        at = header.end() + size
        at += len(re.match(rb"\r?\n?", body[at : at + 2])[0])  # type: ignore[index]  # matches anything
    return b"".join(parts) if parts or _CHUNK.match(body) else None


def _inflated(data: bytes, name: str, limit: int) -> bytes | None:
    """Up to `limit` + 1 bytes of what `data` expands to; None if it is not of that coding, or the coding unknown.

    Raises `Malformed` where it is, and is damaged or cut short before the limit.
    """
    known = _CODINGS.get(name)
    if known is None or not data:
        return None
    magic, inflate = known
    if magic is not None and not magic.match(data):
        return None
    try:
        out, ended = inflate(data, limit + 1)
    except Malformed:
        raise
    except Exception as error:  # each library has its own
        if magic is None:
            return None
        raise Malformed(f"the body's {name} data is damaged ({type(error).__name__})") from None
    if not ended and len(out) <= limit:
        if magic is None and not out:
            return None
        raise Malformed(f"the body's {name} data ends early, after {len(out)} bytes of content")
    return out


def _gzip(data: bytes, most: int) -> tuple[bytes, bool]:
    out = b""
    while data:  # several members are one content
        decoder = zlib.decompressobj(wbits=31)
        out += decoder.decompress(data, most - len(out))
        if len(out) >= most:
            return out, True
        if not decoder.eof:
            return out, False
        data = decoder.unused_data.lstrip(b"\0")
        if not data.startswith(b"\x1f\x8b"):
            break
    return out, True


def _deflate(data: bytes, most: int) -> tuple[bytes, bool]:
    """With the header of RFC 1950, which HTTP asks for, or without it, as many servers send it."""
    for bits in (15, -15):
        decoder = zlib.decompressobj(wbits=bits)
        try:
            out = decoder.decompress(data, most)
        except zlib.error:
            continue
        return out, decoder.eof
    raise zlib.error("neither zlib nor raw deflate")


def _brotli(data: bytes, most: int) -> tuple[bytes, bool]:
    import brotli

    decoder, out = brotli.Decompressor(), b""
    while len(out) < most and not decoder.is_finished():
        try:
            piece = decoder.process(data, output_buffer_limit=most - len(out))
        except brotli.error:
            if out:
                raise Malformed(f"the body's br data is damaged after {len(out)} bytes of content") from None
            raise
        data = b""
        if not piece and decoder.can_accept_more_data():
            break
        out += piece
    return out, bool(decoder.is_finished())


def _zstd(data: bytes, most: int) -> tuple[bytes, bool]:
    import zstandard

    decoder, out = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    for at in range(0, len(data), SLICE):
        out += decoder.decompress(data[at : at + SLICE])
        if decoder.eof or len(out) >= most:
            return bytes(out[:most]), True
    return bytes(out), False


# Name -> (how such data begins; None: anyhow, up to `most` bytes of content and whether it ended).
_CODINGS: dict[str, tuple[re.Pattern[bytes] | None, Callable[[bytes, int], tuple[bytes, Any]]]] = {
    "gzip": (re.compile(rb"\x1f\x8b"), _gzip),
    "x-gzip": (re.compile(rb"\x1f\x8b"), _gzip),
    "deflate": (None, _deflate),
    "br": (None, _brotli),
    "zstd": (re.compile(rb"\x28\xb5\x2f\xfd"), _zstd),
}
