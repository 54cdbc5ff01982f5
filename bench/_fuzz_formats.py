"""What the fuzz bench damages: a small file of each format, whose records are known piece by piece.

To add a format: a function that makes its pieces, and its line in `FORMATS`. Every record's text holds a mark that
occurs nowhere else (`mark`), so that records are known again in whatever comes out.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench import _fuzz_archives
from bench._fuzz_papers import PAPERS, PDF_WORDS, ZIP_WORDS
from bench._fuzz_words import Piece, mark, sentence, text_of


class Format(NamedTuple):
    """`pieces` makes a file with a random generator; `words` are what a mutant puts where it should not be.

    `apart`: a record that is whole must be kept whatever is damaged elsewhere, if both its neighbours (`line`: if
    nothing of its own line; `row`: as long as no quote is damaged; `file`: the file is the record; `table`: none of its rows is missing without account) are untouched. None: a
    quarantined record may stand for the loss.
    """

    suffix: str
    pieces: Callable[[random.Random], list[Piece]]
    words: tuple[bytes, ...]
    apart: str | None = None
    compressed: bool = True  # may be inside gzip and the like


def jsonl(random: random.Random, records: int = 24) -> list[Piece]:
    pieces = []
    for number in range(records):
        name = mark(random)
        record: dict[str, object] = {"id": f"r{number}", "text": text_of(random, name)}
        if random.random() < 0.3:
            record["meta"] = {"tags": ["a", {"b": [1.5, None]}], "n": random.random()}
        line = json.dumps(record, ensure_ascii=random.random() < 0.5)
        pieces.append(Piece(line.encode() + random.choice([b"\n", b"\n", b"\r\n"]), name))
    return pieces


def json_values(random: random.Random) -> list[Piece]:
    """An array, printed or not, or values side by side."""
    pieces, shape = [], random.randrange(3)
    indent = random.choice([None, 2])
    for number in range(16):
        name = mark(random)
        data = json.dumps(
            {"id": number, "text": text_of(random, name), "deep": {"x": [{}, []]}}, indent=indent
        )
        between = b"" if number == 15 else [b",\n", b", ", b"\n\n"][shape]
        pieces.append(Piece(data.encode() + between, name))
    return [Piece(b"[\n"), *pieces, Piece(b"\n]\n")] if shape < 2 else pieces


def table_rows(delimiter: str) -> Callable[[random.Random], list[Piece]]:
    def rows(random: random.Random) -> list[Piece]:
        pieces = [Piece(f"id{delimiter}text{delimiter}note\n".encode())]
        quoted = random.random() < 0.6
        for number in range(24):
            name = mark(random)
            out = io.StringIO()
            text = text_of(random, name)
            if quoted and random.random() < 0.4:
                text = random.choice([f'{text} said "yes"', f"{text}\nsecond line", f"one{delimiter} {text}"])
            style = csv.QUOTE_MINIMAL if random.random() < 0.8 or not quoted else csv.QUOTE_ALL
            writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=style)
            writer.writerow([f"r{number}", text, "x" * random.randint(0, 5)])
            pieces.append(Piece(out.getvalue().encode(), name))
        return pieces

    return rows


def plain_text(random: random.Random) -> list[Piece]:
    name = mark(random)
    paragraphs = "\n\n".join(sentence(random, 30) for _ in range(random.randint(1, 6)))
    return [Piece(f"{text_of(random, name)}\n\n{paragraphs}\n".encode(), name)]


def markdown(random: random.Random) -> list[Piece]:
    name = mark(random)
    parts = ["---\ntitle: a\n---", f"# {sentence(random, 3)}", text_of(random, name), "```\ncode()\n```"]
    return [Piece("\n\n".join([*parts, "* [link](http://a.example/)"]).encode() + b"\n", name)]


def html_page(random: random.Random, name: str) -> bytes:
    body = "".join(f"<p>{sentence(random, 25)}.</p>\n" for _ in range(random.randint(1, 3)))
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{sentence(random, 2)}</title></head><body>'
        f"<div><p>{text_of(random, name)}</p>\n{body}<ul><li>one</li></ul><img src=a></div></body></html>"
    ).encode()


def html(random: random.Random) -> list[Piece]:
    name = mark(random)
    return [Piece(html_page(random, name), name)]


def _http(random: random.Random, name: str) -> tuple[bytes, bytes]:
    """(HTTP response, its body as stored)."""
    body, headers = html_page(random, name), ["Content-Type: text/html; charset=utf-8"]
    kind = random.randrange(4)
    if kind == 1:
        body = gzip.compress(body, mtime=0)
        headers.append("Content-Encoding: gzip")
    stored = body
    if kind == 2:
        half = len(body) // 2
        stored = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (half, body[:half], len(body) - half, body[half:])
        headers.append("Transfer-Encoding: chunked")
    head = "HTTP/1.1 200 OK\r\n" + "".join(f"{line}\r\n" for line in headers) + "\r\n"
    return head.encode() + stored, body


def warc_record(kind: str, number: int, content: bytes, fields: list[str]) -> bytes:
    head = [
        "WARC/1.0", f"WARC-Type: {kind}", f"WARC-Record-ID: <urn:uuid:{kind}-{number}>", "WARC-Date: 2024-01-01T00:00:00Z",
        *fields, f"Content-Length: {len(content)}",
    ]  # fmt: skip
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content + b"\r\n\r\n"


def _digest(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def warc(random: random.Random) -> list[Piece]:
    pieces = [
        Piece(warc_record("warcinfo", 0, b"software: x\r\n", ["Content-Type: application/warc-fields"]))
    ]
    for number in range(12):
        name = mark(random)
        content, body = _http(random, name)
        fields = [
            f"WARC-Target-URI: http://a.example/{number}",
            "Content-Type: application/http; msgtype=response",
        ]
        if random.random() < 0.5:
            fields += [f"WARC-Payload-Digest: {_digest(body)}", f"WARC-Block-Digest: {_digest(content)}"]
        if random.random() < 0.4:
            request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
            pieces.append(Piece(warc_record("request", number, request, fields[:1])))
        pieces.append(Piece(warc_record("response", number, content, fields), name))
    return pieces


def wet(random: random.Random) -> list[Piece]:
    pieces = [Piece(warc_record("warcinfo", 0, b"software: x\r\n", []))]
    for number in range(16):
        name = mark(random)
        content = f"{text_of(random, name)}\n{sentence(random, 12)}\n".encode()
        fields = [f"WARC-Target-URI: http://a.example/{number}", "Content-Type: text/plain"]
        if random.random() < 0.5:
            fields.append(f"WARC-Block-Digest: {_digest(content)}")
        pieces.append(Piece(warc_record("conversion", number, content, fields), name))
    return pieces


def arc(random: random.Random) -> list[Piece]:
    version = b"1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n"
    pieces = [Piece(b"filedesc://a.arc 0.0.0.0 20080430204825 text/plain %d\n%s\n" % (len(version), version))]
    for number in range(12):
        name = mark(random)
        content, _ = _http(random, name)
        line = f"http://a.example/{number} 1.2.3.4 2008043020{number:04d} text/html {len(content)}\n"
        pieces.append(Piece(line.encode() + content + b"\n", name))
    return pieces


def mediawiki(random: random.Random) -> list[Piece]:
    head = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n<siteinfo>'
        '<base>https://a.example/wiki/Main</base><namespaces><namespace key="6">File</namespace></namespaces>'
        "</siteinfo>\n"
    )
    pieces = [Piece(head.encode())]
    for number in range(12):
        name = mark(random)
        text = f"'''{sentence(random, 2)}''' is {text_of(random, name)} {{{{infobox|a=1}}}} [[link|{sentence(random, 2)}]] &lt;ref&gt;x&lt;/ref&gt;"
        page = (
            f"<page><title>Page {number}</title><ns>0</ns><id>{number}</id><revision><id>{number}9</id>"
            f"<timestamp>2024-01-01T00:00:00Z</timestamp><model>wikitext</model><text>{text}</text></revision></page>\n"
        )
        pieces.append(Piece(page.encode(), name))
    return [*pieces, Piece(b"</mediawiki>\n")]


def _table(random: random.Random, rows: int) -> tuple[pa.Table, list[str]]:
    marks = [mark(random) for _ in range(rows)]
    columns = {
        "id": [f"r{n}" for n in range(rows)],
        "text": [text_of(random, name) for name in marks],
        "tags": [["a", "b"] * (n % 3) for n in range(rows)],
        "half": [n / 2 if n % 5 else None for n in range(rows)],
    }
    return pa.table(columns), marks


def parquet(random: random.Random) -> list[Piece]:
    """Three row groups; codec, dictionary, checksums and page version at random. Its records have no bytes of their own."""
    table, marks = _table(random, 48)
    out = io.BytesIO()
    pq.write_table(
        table, out, row_group_size=16, compression=random.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        use_dictionary=random.random() < 0.5, write_page_checksum=random.random() < 0.6, data_page_size=random.choice([256, 1 << 20]),
        data_page_version=random.choice(["1.0", "2.0"]),
    )  # fmt: skip
    return [Piece(out.getvalue()), *(Piece(b"", name) for name in marks)]


def arrow(random: random.Random) -> list[Piece]:
    """An IPC file or stream of three batches, the bodies compressed or not."""
    table, marks = _table(random, 48)
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=random.choice([None, "lz4", "zstd"]))
    new = random.choice([pa.ipc.new_file, pa.ipc.new_stream])
    with new(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=16)
    return [Piece(out.getvalue()), *(Piece(b"", name) for name in marks)]


def archive(make: Callable[..., list[tuple[bytes, str | None]]]) -> Callable[[random.Random], list[Piece]]:
    def pieces(random: random.Random) -> list[Piece]:
        def text() -> tuple[str, str]:
            name = mark(random)
            return name, text_of(random, name)

        return [Piece(*one) for one in make(random, text)]

    return pieces


_JSON = (
    b"NaN", b"-Infinity", b"1e999999", b"{", b"}", b"[" * 3000, b"]", b'"', b"\\", b"\\ud800", b"\\u0000", b"\x00",
    b"null", b",", b":", b"\n", b"\x1e", b"\xef\xbb\xbf", b"\xff\xfe", b'{"text": 1}', b'{"text": ["a"]}', b'{"a":' * 2000,
    b"9" * 5000,
)  # fmt: skip
_CSV = (
    b'"',
    b'""',
    b'"""',
    b",",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\xff",
    b";",
    b'\n"',
    b"id,text,note\n",
)
_WARC = (
    b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n", b"Content-Length: 18446744073709551616\r\n", b"\r\n\r\n", b"\n",
    b"WARC/1.0\r\n", b"WARC/1.1\r\nWARC-Type: response\r\n", b"WARC-Type: request\r\n", b"\x00", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 No\r\n",
    b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffff\r\n", b"\x1f\x8b\x08\x00",
    b"WARC-Type: ", b"WARC-Block-Digest: sha1:AAAA\r\n", b" " * 70_000, b"http://a.example/ 1.1.1.1 20080101000000 text/html 99999999\n",
)  # fmt: skip
_HTML = (b"<div>" * 3500, b"<", b">", b"<!--", b"-->", b"<script>", b"</script>", b"&#x110000;", b"&amp", b'<meta charset="utf-16">', b"\x00",
         b'<meta charset="x-user-defined">', b"<b><p>" * 300, b"<a " + b"x=1 " * 12_000, b"</html>", b"\xff", b"<textarea>", b"<svg><math>")  # fmt: skip
_XML = (b"<page>", b"</page>", b"&unknown;", b"<![CDATA[", b"]]>", b"<!--", b'<!DOCTYPE m [<!ENTITY a "aaaa">]>', b"&#0;", b"\x00", b"{{" * 500,
        b"[[" * 500, b"{|" * 300, b"<text>", b"</text>", b"<a>" * 100, b"\xff", b'<?xml version="1.0" encoding="utf-16"?>', b"</mediawiki>")  # fmt: skip
_BINARY = (b"\x00" * 8, b"\xff" * 4, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x80" * 10, b"PAR1", b"ARROW1", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x19\xfc", b"\x15\x00")  # fmt: skip
_TEXT = (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xfe\xff", b"\x1b$B", b"~{", b"\xc3", b"\xed\xa0\x80", b"\x00\x00\xfe\xff", b"\x1a", b"\xe2\x80\xa8", b"+/v8-")  # fmt: skip

FORMATS: dict[str, Format] = {
    "jsonl": Format("jsonl", jsonl, _JSON, "line"),
    "json": Format("json", json_values, _JSON),
    "csv": Format("csv", table_rows(","), _CSV, "row"),
    "tsv": Format("tsv", table_rows("\t"), _CSV, "row"),
    "parquet": Format("parquet", parquet, _BINARY, "table", compressed=False),
    "arrow": Format("arrow", arrow, _BINARY, "table"),
    "text": Format("txt", plain_text, _TEXT, "file"),
    "markdown": Format("md", markdown, _TEXT, "file"),
    "html": Format("html", html, _HTML, "file"),
    "warc": Format("warc", warc, _WARC, "record"),
    "arc": Format("arc", arc, _WARC, "record"),
    "wet": Format("wet", wet, _WARC, "record"),
    "mediawiki": Format("xml", mediawiki, _XML),
    "pdf": Format("pdf", PAPERS["pdf"], PDF_WORDS),
    "epub": Format("epub", PAPERS["epub"], ZIP_WORDS),
    "docx": Format("docx", PAPERS["docx"], ZIP_WORDS),
    "tar": Format("tar", archive(_fuzz_archives.tar), _fuzz_archives.TAR_WORDS, "record"),
    "zip": Format(
        "zip", archive(_fuzz_archives.zip_file), _fuzz_archives.ZIP_WORDS, "record", compressed=False
    ),
}
