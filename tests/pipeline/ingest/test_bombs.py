"""Small files that would take any memory: each ends in rows of the ledger, within a gigabyte above what the process had."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.pipeline.ingest.helpers import ingest
from tests.pipeline.ingest.memory import peak

MIB = 1 << 20


def held(path: Path, most: int = 800) -> tuple[int, list[str]]:
    """(documents, rules) of a file, read in a process of its own that grew by less than `most` MiB."""
    documents, rejected, mib = peak(path)
    assert mib < most, f"{path.name} took {mib} MiB"
    return documents, [rule for rule, _ in rejected]


def ipc(path: Path, table: pa.Table, codec: str | None = None, stream: bool = False) -> None:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_bodies_that_expand(tmp_path: Path, codec: str) -> None:
    schema = pa.schema([("text", pa.large_string())])
    path = tmp_path / "a.arrow"
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(str(path), schema, options=options) as writer:
        for texts in (["before"], ["x" * (600 * MIB)], ["after"]):
            writer.write_batch(pa.record_batch([pa.array(texts, pa.large_string())], schema=schema))
    documents, rules = held(path, 300)
    assert documents == 2 and rules == ["ingest.record_too_large"]


@pytest.mark.parametrize("claimed", [1 << 31, 1 << 40, (1 << 63) - 1, -2])
@pytest.mark.parametrize("codec", [None, "zstd"])
def test_arrow_sizes_that_are_lies(tmp_path: Path, claimed: int, codec: str | None) -> None:
    """Of the body of a message, of a buffer, and of a buffer once decompressed: each number of 8 bytes is replaced in turn."""
    table = pa.table({"text": ["a text of some length " * 30] * 3})
    ipc(tmp_path / "a.arrow", table, codec)
    data = (tmp_path / "a.arrow").read_bytes()
    for at in range(0, len(data) - 8, 8):
        changed = bytearray(data)
        struct.pack_into("<q", changed, at, claimed)
        (tmp_path / "a.arrow").write_bytes(changed)
        result = ingest(tmp_path / "a.arrow")
        assert len(result.docs) == 3 or result.decisions
        assert "ingest.unreadable" not in result.rules


@pytest.mark.parametrize("shape", ["dictionary", "view"])
def test_arrow_rows_that_share_a_value(tmp_path: Path, shape: str) -> None:
    """500 rows of 8 MiB each, out of one value."""
    long = "x" * (8 * MIB)
    if shape == "dictionary":
        dictionary = pa.array([long], pa.large_string())
        text = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), dictionary)
    else:
        view = struct.pack("<i4sii", len(long), long[:4].encode(), 0, 0)
        buffers = [None, pa.py_buffer(view * 500), pa.py_buffer(long.encode())]
        text = pa.Array.from_buffers(pa.string_view(), 500, buffers)
    ipc(tmp_path / "a.arrow", pa.table({"meta": text, "text": [f"text {n}" for n in range(500)]}), "zstd")
    assert held(tmp_path / "a.arrow") == (500, [])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_parquet_rows_that_share_a_value(tmp_path: Path, encoding: str) -> None:
    column = pa.array(["x" * (12 * MIB)] * 150, pa.large_string())
    options: dict[str, object] = (
        {"dictionary_pagesize_limit": 64 * MIB}
        if encoding == "dictionary"
        else {"use_dictionary": False, "column_encoding": {"meta": encoding}, "write_statistics": False}
    )
    table = pa.table({"meta": column, "text": [f"text {n}" for n in range(150)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", **options)
    assert (tmp_path / "a.parquet").stat().st_size < MIB
    del table, column
    assert held(tmp_path / "a.parquet") == (150, [])


def zeros(write: Callable[[bytes], object], mib: int) -> None:
    block = bytes(MIB)
    for _ in range(mib):
        write(block)


def gzipped(mib: int, head: bytes = b"") -> bytes:
    """`head` and so many MiB of zeros as one gzip member: the blocks of one MiB, which refer to none before, repeated."""
    compress = zlib.compressobj(6, wbits=-15)
    first = compress.compress(head) + compress.flush(zlib.Z_FULL_FLUSH)
    block = compress.compress(bytes(MIB)) + compress.flush(zlib.Z_FULL_FLUSH)
    crc = zlib.crc32(head)
    for _ in range(mib):
        crc = zlib.crc32(bytes(MIB), crc)
    trailer = struct.pack("<II", crc, len(head) + mib * MIB & 0xFFFFFFFF)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + first + block * mib + compress.flush() + trailer


def stored(codec: str, mib: int, head: bytes = b"") -> bytes:
    """`head` and so many MiB of zeros."""
    if codec == "gz":
        return gzipped(mib, head)
    out = pa.BufferOutputStream()
    if codec == "lz4":
        with pa.CompressedOutputStream(out, "lz4") as stream:
            stream.write(head)
            zeros(stream.write, mib)
        return bytes(out.getvalue())
    compress = {
        "bz2": bz2.BZ2Compressor, "xz": lambda: lzma.LZMACompressor(preset=0),
        "zst": lambda: zstandard.ZstdCompressor().compressobj(),
    }[codec]()  # fmt: skip
    parts = [compress.compress(head)]
    zeros(lambda block: parts.append(compress.compress(block)), mib)
    return b"".join([*parts, compress.flush()])


@pytest.mark.parametrize("name", ["jsonl", "json", "csv", "txt", "html", "warc", "xml", "arrow"])
@pytest.mark.parametrize("codec", [pytest.param("gz", marks=pytest.mark.slow), "zst"])
def test_a_gigabyte_of_zeros_in_any_format(tmp_path: Path, name: str, codec: str) -> None:
    head = {"json": b'[{"text": "', "csv": b"id,text\n1,", "xml": b"<mediawiki><page><text>"}.get(name, b"")
    path = tmp_path / f"a.{name}.{codec}"
    path.write_bytes(stored(codec, 1024, head))
    documents, rules = held(path, 400)
    assert not documents and rules


@pytest.mark.parametrize("codec", ["gz", "zst", "bz2", "xz", "lz4"])
def test_a_long_line_in_any_compression(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.jsonl.{codec}"
    path.write_bytes(stored(codec, 200, b'{"text": "before"}\n'))
    assert held(path, 400) == (1, ["ingest.record_too_large"])


@pytest.mark.slow
def test_ten_gigabytes_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    member = stored("gz", 1024)
    path.write_bytes(member * 10 + gzip.compress(b'\n{"text": "after"}\n'))
    start = time.monotonic()
    assert held(path, 300) == (1, ["ingest.record_too_large"])
    assert time.monotonic() - start < 300


def test_a_line_of_two_gibibytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "before"}\n')
        file.seek(2 << 30)
        file.write(b'\n{"text": "after"}\n')
    assert held(path, 300) == (2, ["ingest.record_too_large"])


def test_zstandard_with_a_huge_window(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
    data = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(data.compress(b'{"text": "a text"}\n') + data.flush())
    documents, rules = held(path, 400)
    assert rules == ["ingest.damaged"] or (documents, rules) == (1, [])


def test_xz_with_a_huge_dictionary(tmp_path: Path) -> None:
    """Its header claims one of 4 GiB; the decoder would allocate it."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}]
    data = bytearray(lzma.compress(b'{"text": "a text"}\n', lzma.FORMAT_XZ, filters=filters))
    size = (data[12] + 1) * 4  # of the block header, which ends with its CRC32
    place = data.index(b"\x21\x01", 12, 12 + size) + 2
    data[place] = 40
    struct.pack_into("<I", data, 12 + size - 4, zlib.crc32(bytes(data[12 : 12 + size - 4])))
    (tmp_path / "a.jsonl.xz").write_bytes(data)
    documents, rules = held(tmp_path / "a.jsonl.xz", 400)
    assert not documents and rules == ["ingest.damaged"]


@pytest.mark.parametrize("open_", [b"[", b'{"a":'])
@pytest.mark.parametrize("name", ["jsonl", "json"])
def test_values_that_nest_a_million_deep(tmp_path: Path, name: str, open_: bytes) -> None:
    path = tmp_path / f"a.{name}"
    path.write_bytes(b'{"text": "before"}\n' + open_ * 1_000_000 + b'\n{"text": "after"}\n')
    documents, rules = held(path)
    assert documents == 2 and set(rules) == {"ingest.malformed_json"}


def test_a_text_beside_a_deep_field(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a text", "deep": ' + deep + b"}\n")
    documents, rules = held(tmp_path / "a.jsonl")
    assert (documents, rules) in ((1, []), (0, ["ingest.malformed_json"]))


def test_a_million_columns_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"c{n}" for n in range(1_000_000)) + "\n" + "," * 999_999 + "\n")
    assert held(path) == (0, ["ingest.csv_header"])


@pytest.mark.slow
def test_a_million_columns_of_arrow(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string()), *((f"c{n}", pa.int8()) for n in range(1_000_000))])
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), schema):
        pass
    documents, rules = held(tmp_path / "a.arrow", 1024)
    assert not documents and (rules == ["ingest.not_arrow"] or not rules)


@pytest.mark.parametrize(
    "bomb",
    [
        b'<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa">' + b"".join(
            b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(20)
        ) + b"]><mediawiki><page><text>&u;</text></page></mediawiki>",
        b'<!DOCTYPE m [<!ENTITY a SYSTEM "file:///etc/passwd">]><mediawiki><page><text>&a;</text></page></mediawiki>',
        b"<mediawiki>" + b"<a>" * 1_000_000,
        b"<mediawiki><page><text " + b" ".join(b'a%d="1"' % n for n in range(300_000)) + b">x</text></page>",
    ],
    ids=["entities", "file", "deep", "attributes"],
)  # fmt: skip
def test_xml(tmp_path: Path, bomb: bytes) -> None:
    (tmp_path / "a.xml").write_bytes(bomb)
    documents, rules = held(tmp_path / "a.xml")
    assert documents + len(rules) and set(rules) <= {"ingest.malformed_xml", "ingest.truncated"}
    assert not documents or b"ENTITY" not in bomb


@pytest.mark.parametrize(
    "page",
    [b"<div>" * 1_000_000, b"<b><p>" * 200_000, b"<a " + b"x=1 " * 2_000_000, b"<select>" + b"<option>" * 1_000_000],
    ids=["deep", "unclosed", "attributes", "options"],
)  # fmt: skip
def test_html(tmp_path: Path, page: bytes) -> None:
    (tmp_path / "a.html").write_bytes(b"<html><body><p>some text</p>" + page)
    assert held(tmp_path / "a.html") == (0, ["ingest.html_too_complex"])
