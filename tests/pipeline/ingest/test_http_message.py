"""HTTP responses as crawlers store them: encodings undone within a limit, headers that say what is not so."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.readers.http_message import Malformed, parse
from tests.pipeline.ingest.memory import peak
from tests.pipeline.ingest.test_archives import record

LIMIT = 10_000
BODY = b"<p>Some text of a page.</p>" * 20


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "br": partial(brotli.compress, quality=4),
    "zstd": zstandard.compress,
}


def answer(body: bytes, *headers: str, end: str = "\r\n", status: str = "HTTP/1.1 200 OK") -> bytes:
    return end.join([status, "Content-Type: text/html; charset=utf-8", *headers, "", ""]).encode() + body


def chunks(body: bytes, size: int = 7, last: bytes = b"0\r\n\r\n") -> bytes:
    return (
        b"".join(
            b"%x\r\n%s\r\n" % (len(p), p) for p in (body[at : at + size] for at in range(0, len(body), size))
        )
        + last
    )


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_status_type_and_charset(end: str) -> None:
    message = parse(answer(BODY, end=end), LIMIT)
    assert (message.status, message.kind, message.charset, message.payload) == (
        200,
        "text/html",
        "utf-8",
        BODY,
    )
    assert parse(answer(b"", status="HTTP/2 404"), LIMIT).status == 404
    assert parse(answer(b"", status="<html>"), LIMIT).status == 0
    folded = b'HTTP/1.1 200 OK\r\nContent-Type: text/html;\r\n  charset="koi8-r"\r\n\r\nx'
    assert parse(folded, LIMIT).charset == "koi8-r"
    assert parse(b"HTTP/1.0 200 OK\r\n\r\nx", LIMIT).kind == ""


@pytest.mark.parametrize("name", CODINGS)
def test_each_coding(name: str) -> None:
    message = parse(answer(CODINGS[name](BODY), f"Content-Encoding: {name}"), LIMIT)
    assert message.payload == BODY and not message.ignored
    both = parse(
        answer(chunks(CODINGS[name](BODY)), f"Content-Encoding: {name}", "Transfer-Encoding: chunked"), LIMIT
    )
    assert both.payload == BODY and both.unchunked == CODINGS[name](BODY)


def test_two_codings_one_in_the_other() -> None:
    body = brotli.compress(gzip.compress(BODY))
    assert parse(answer(body, "Content-Encoding: gzip, br"), LIMIT).payload == BODY


@pytest.mark.parametrize("name", [*CODINGS, "chunked", "compress"])
def test_a_coding_that_the_body_does_not_have(name: str) -> None:
    header = "Transfer-Encoding: chunked" if name == "chunked" else f"Content-Encoding: {name}"
    message = parse(answer(BODY, header), LIMIT)
    assert message.payload == BODY and message.ignored


@pytest.mark.parametrize("name", CODINGS)
def test_a_body_cut_short_is_no_page(name: str) -> None:
    text = bytes(range(256)) * 30
    with pytest.raises(Malformed, match="ends early|damaged"):
        parse(answer(CODINGS[name](text)[:-20], f"Content-Encoding: {name}"), LIMIT)


@pytest.mark.parametrize("last", [b"", b"5\r\nab"])
def test_chunks_that_end_early_give_what_there_is(last: bytes) -> None:
    assert (
        parse(answer(chunks(BODY, last=last), "Transfer-Encoding: chunked"), LIMIT).payload == BODY + last[3:]
    )


@pytest.mark.parametrize("name", CODINGS)
def test_no_more_than_the_limit_is_expanded(name: str) -> None:
    message = parse(answer(CODINGS[name](b"x" * (20 * LIMIT)), f"Content-Encoding: {name}"), LIMIT)
    assert message.payload == b"x" * (LIMIT + 1)


@pytest.mark.parametrize(
    "name", ["gzip", *(pytest.param(name, marks=pytest.mark.slow) for name in ("deflate", "br", "zstd"))]
)
def test_a_bomb_in_an_archive(tmp_path: Path, name: str) -> None:
    """400 MiB of one letter in some kilobytes: a row of the ledger, and the page behind it."""
    body = CODINGS[name](b"<p>" + b"x" * (400 << 20))
    records = [record(0, headers=f"Content-Encoding: {name}\r\n", body=body), record(1)]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    del body, records
    documents, ((rule, _),), mib = peak(tmp_path / "a.warc")
    assert (documents, rule) == (1, "ingest.record_too_large") and mib < 300


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for content in (data, answer(data, "Content-Encoding: gzip"), answer(data, "Transfer-Encoding: chunked"),
                    answer(b"\x1f\x8b\x08" + data, "Content-Encoding: gzip"), answer(data, "Content-Encoding: br")):  # fmt: skip
        try:
            message = parse(content, 100)
        except Malformed:
            continue
        assert len(message.payload) <= 101
