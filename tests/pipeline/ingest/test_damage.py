"""Damage inside a file costs the records that it hits: whatever is intact behind it is read, what is passed over is named."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import re
import zlib
from base64 import b32encode
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.ingest.helpers import ingest
from tests.pipeline.ingest.test_archives import BODY, record

RECORDS = [record(n) for n in range(70)]
WANTED = [f"id-{n}" for n in range(70)]


def names(folder: Path, data: bytes, name: str = "a.warc") -> tuple[list[str], list[tuple[str, str]]]:
    """(names of the documents, (rule, detail) of what was not taken)."""
    file = folder / name
    file.write_bytes(data)
    result = ingest(file)
    locators = [locator.partition("#")[2] for locator in result.locators()]
    return locators, [(row["rule"], row["detail"]) for row in result.decisions]


def but(*numbers: int) -> list[str]:
    return [f"id-{n}" for n in range(70) if n not in numbers]


def with_record(number: int, change: Callable[[bytes], bytes], records: list[bytes] = RECORDS) -> bytes:
    changed = change(records[number])
    assert changed != records[number]
    return b"".join([*records[:number], changed, *records[number + 1 :]])


def length(add: int) -> Callable[[bytes], bytes]:
    """A record whose header gives another length."""
    return lambda data: re.sub(
        rb"Content-Length: (\d+)", lambda found: b"Content-Length: %d" % (int(found[1]) + add), data, count=1
    )


@pytest.mark.parametrize("number", [0, 40, 69])
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (length(-5), "ingest.wrong_length"),
        (length(+5), "ingest.wrong_length"),
        (length(+1500), "ingest.wrong_length"),  # into the next records
        (length(+60_000), "ingest.wrong_length"),
        (length(+(10**11)), "ingest.wrong_length"),  # beyond what a record may have: read twice
        (lambda data: data.replace(b"Content-Length: ", b"Content-Length: x", 1), "ingest.wrong_length"),
        (lambda data: data.replace(b"Content-Length: ", b"Content-Len: ", 1), "ingest.wrong_length"),
        (lambda data: data[: len(data) // 2], "ingest.wrong_length"),  # its second half is lost
        (lambda data: data.replace(b"WARC/1.0", b"\0\0RC/1.0", 1), "ingest.damaged"),
        (lambda data: data.replace(b"WARC-Type: response", b"WARC-Type: respXnse", 1), "ingest.record_type"),
        (lambda data: data.replace(b"WARC-Type: response\r\n", b"", 1), "ingest.record_type"),
    ],
)
def test_one_record_is_lost(tmp_path: Path, number: int, change: Callable[[bytes], bytes], rule: str) -> None:
    documents, rejected = names(tmp_path, with_record(number, change))
    assert documents == but(number)
    expected = [rule]
    if number == 69 and rule == "ingest.wrong_length" and "cut short" in rejected[0][1]:
        expected = ["ingest.truncated"]  # nothing follows: it may as well be the end that is missing
    assert [found for found, _ in rejected] == expected


def test_bytes_between_records_are_named_with_their_place(tmp_path: Path) -> None:
    data = b"".join([*RECORDS[:30], b"x" * 1000 + b"\n\n" + bytes(range(256)), *RECORDS[30:]])
    documents, ((rule, detail),) = names(tmp_path, data)
    begin = len(b"".join(RECORDS[:30]))
    assert documents == WANTED and rule == "ingest.damaged"
    assert detail == f"no record begins in 1258 bytes from byte {begin} on; they are passed over"


def test_a_page_that_quotes_an_archive_is_one_record(tmp_path: Path) -> None:
    quoted = record(1, body=b"<p>Some text here.</p>\n<pre>\n" + record(8) + b"</pre><p>And more.</p>")
    documents, rejected = names(tmp_path, record(0) + quoted + record(2))
    assert documents == ["id-0", "id-1", "id-2"] and not rejected


@pytest.mark.parametrize("number", [0, 24, 69])
@pytest.mark.parametrize("place", [0, 5, 40, -6])
def test_a_damaged_member_of_a_compressed_archive(tmp_path: Path, number: int, place: int) -> None:
    members = [gzip.compress(one) for one in RECORDS]
    damaged = bytearray(members[number])
    damaged[place] ^= 0xFF
    if place == 5:
        damaged[3] = 0xFF  # flags that no gzip has
    before = len(b"".join(members[:number]))
    documents, rejected = names(
        tmp_path, b"".join([*members[:number], damaged, *members[number + 1 :]]), "a.warc.gz"
    )
    assert documents == but(number)
    (rule, detail), = rejected  # fmt: skip
    assert rule in ("ingest.damaged", "ingest.truncated")
    if number < 69:
        assert f"{len(damaged)} stored bytes from byte {before} on are passed over" in detail


def test_half_a_member_in_the_middle(tmp_path: Path) -> None:
    members = [gzip.compress(one) for one in RECORDS]
    members[33] = members[33][: len(members[33]) // 2]
    documents, rejected = names(tmp_path, b"".join(members), "a.warc.gz")
    # What its beginning decompresses to is no whole header: named, too.
    assert documents == but(33) and {rule for rule, _ in rejected} == {"ingest.damaged"}


LINES = [
    json.dumps({"id": f"id-{n}", "text": f"text number {n} " + "and more " * (n % 7)}).encode() + b"\n"
    for n in range(70)
]


def compressed(codec: str, lines: list[bytes]) -> list[bytes]:
    """Members of ten lines each."""
    return [COMPRESS[codec](b"".join(lines[at : at + 10])) for at in range(0, len(lines), 10)]


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress, "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, check=lzma.CHECK_CRC64),
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True, block_checksum=True),
}  # fmt: skip


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("place", [0, 30, -5])
def test_a_damaged_member_of_json_lines(tmp_path: Path, codec: str, place: int) -> None:
    members = compressed(codec, LINES)
    damaged = bytearray(members[3])
    damaged[place] ^= 0xFF
    (tmp_path / f"a.jsonl.{codec}").write_bytes(b"".join([*members[:3], damaged, *members[4:]]))
    result = ingest(tmp_path)
    ids = [doc["source_id"] for doc in result.docs]
    # A member whose checksum alone is wrong gives its lines before that is noticed.
    kept = [f"id-{n}" for n in range(70) if not 30 <= n < 40]
    assert [name for name in ids if name not in {f"id-{n}" for n in range(30, 40)}] == kept
    assert result.rules == ["ingest.damaged"]
    begin, size = len(b"".join(members[:3])), len(damaged)
    assert f"{size} stored bytes from byte {begin} on are passed over" in result.decisions[0]["detail"]


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_beginning_of_spaces_is_no_text(tmp_path: Path, codec: str) -> None:
    members = compressed(codec, LINES)
    (tmp_path / f"a.jsonl.{codec}").write_bytes(b" " * 5000 + b"".join(members[1:]))
    result = ingest(tmp_path)
    assert [doc["source_id"] for doc in result.docs] == [f"id-{n}" for n in range(10, 70)]
    assert result.rules == ["ingest.damaged"] and "5000 stored bytes" in result.decisions[0]["detail"]


@pytest.mark.parametrize("codec", ["gz", "xz", "lz4"])
def test_lines_before_the_damage_in_the_same_member(tmp_path: Path, codec: str) -> None:
    """A decoder that meets an error loses what it made in the same call, which is all of a small file."""
    lines = [b'{"id": "id-%d", "text": "%s"}\n' % (n, digits(n)) for n in range(2500)]
    if codec == "gz":
        compressor = zlib.compressobj(wbits=31)
        parts = [compressor.compress(b"".join(lines[:2000])) + compressor.flush(zlib.Z_FULL_FLUSH)]
        parts.append(compressor.compress(b"".join(lines[2000:])) + compressor.flush())
        data, place = bytearray(b"".join(parts)), len(parts[0])  # the header of a block
    else:
        data = bytearray(COMPRESS[codec](b"".join(lines)))
        place = len(data) * 7 // 8
    data[place : place + 4] = b"\xff" * 4
    (tmp_path / f"a.jsonl.{codec}").write_bytes(data)
    result = ingest(tmp_path)
    kept = len(result.docs)
    least = {"gz": 1990, "lz4": 1500, "xz": 1990}[codec]  # LZ4 has blocks of 65,536 bytes
    assert least <= kept < 2400
    assert [doc["source_id"] for doc in result.docs] == [f"id-{n}" for n in range(kept)]
    assert "ingest.damaged" in result.rules


def digits(n: int) -> bytes:
    return hashlib.sha256(b"%d" % n).hexdigest().encode()


def test_members_that_end_within_lines(tmp_path: Path) -> None:
    """As blocked compressors write them: the line that was begun in the damaged one is named, and no record."""
    data = b"".join(LINES)
    members = [gzip.compress(data[at : at + 1000]) for at in range(0, len(data), 1000)]
    members[1] = members[1][:20] + b"\xff" + members[1][21:]
    (tmp_path / "a.jsonl.gz").write_bytes(b"".join(members))
    result = ingest(tmp_path)
    ids = {doc["source_id"] for doc in result.docs}
    whole = {
        f"id-{n}"
        for n in range(70)
        if data.find(LINES[n]) >= 2000 or data.find(LINES[n]) + len(LINES[n]) <= 1000
    }
    assert whole <= ids and result.rules == ["ingest.damaged", "ingest.damaged"]
    assert "the end of a line that began in the damaged part" in result.decisions[1]["detail"]


def digested(n: int, block: bool = True, payload: bool = True) -> bytes:
    data = record(n)
    head, _, content = data.partition(b"\r\n\r\n")
    body = content.partition(b"\r\n\r\n")[2][:-4]
    added = b""
    for wanted, name, value in ((block, b"Block", content[:-4]), (payload, b"Payload", body)):
        if wanted:
            added += b"\r\nWARC-%s-Digest: sha1:" % name + b32encode(hashlib.sha1(value).digest())
    return head + added + b"\r\n\r\n" + content


@pytest.mark.parametrize(("block", "payload"), [(True, True), (True, False), (False, True)])
def test_content_that_does_not_have_its_digest(tmp_path: Path, block: bool, payload: bool) -> None:
    records = [digested(n, block, payload) for n in range(70)]
    documents, rejected = names(tmp_path, b"".join(records))
    assert documents == WANTED and not rejected
    changed = with_record(12, lambda data: data.replace(b"long enough", b"long Enough", 1), records)
    documents, ((rule, detail),) = names(tmp_path, changed, "b.warc")
    assert documents == but(12) and rule == "ingest.digest"
    assert ("Block" if block else "Payload") in detail


def test_a_record_that_ends_by_chance_within_another(tmp_path: Path) -> None:
    """Cut short, it has the beginning of the next one in its length, and a blank line behind it there."""
    head, _, content = digested(4).partition(b"\r\n\r\n")
    following = record(5)
    in_it = following.index(b"\r\n\r\n", following.index(b"\r\n\r\n") + 1)  # behind the HTTP headers
    cut = head + b"\r\n\r\n" + content[: len(content) - 4 - in_it]
    documents, ((rule, detail),) = names(tmp_path, b"".join([*RECORDS[:4], cut, *RECORDS[5:]]))
    assert documents == but(4) and rule == "ingest.wrong_length"
    assert "the content does not have its WARC-Block-Digest, and the next record begins after" in detail


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
@pytest.mark.parametrize("form", ["hex", "base32"])
def test_forms_of_digests(tmp_path: Path, algorithm: str, form: str) -> None:
    head, _, content = record(0).partition(b"\r\n\r\n")
    digest = hashlib.new(algorithm, content[:-4]).digest()
    for right in (True, False):
        value = digest if right else bytes([digest[0] ^ 1]) + digest[1:]
        text = value.hex() if form == "hex" else b32encode(value).decode()
        data = head + f"\r\nWARC-Block-Digest: {algorithm}:{text}".encode() + b"\r\n\r\n" + content
        documents, rejected = names(tmp_path, data, f"{right}.warc")
        assert (
            documents == (["id-0"] if right else [])
            and [rule for rule, _ in rejected] == ["ingest.digest"][right:]
        )


def test_a_digest_of_an_unknown_kind_proves_nothing(tmp_path: Path) -> None:
    data = record(0).replace(b"WARC-Type", b"WARC-Block-Digest: blake9:abc\r\nWARC-Type", 1)
    assert names(tmp_path, data) == (["id-0"], [])


ARC = b"filedesc://a.arc 0.0.0.0 20080430204825 text/plain 76\n1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n\n\n"


def arc_record(n: int, more: bytes = b"") -> bytes:
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + BODY.format(n).encode()
    fields = b" 200 - - %d a.arc" % n if more else b""
    return b"http://x/a b/%d 10.0.0.1 20080430204825 text/html%s %d\n" % (n, fields, len(http)) + http + b"\n"


@pytest.mark.parametrize("more", [b"", b"1.1"])
@pytest.mark.parametrize("packed", [False, True])
def test_arc(tmp_path: Path, more: bytes, packed: bool) -> None:
    records = [ARC, *(arc_record(n, more) for n in range(5))]
    records[3] = records[3].replace(b"text/html", b"text/html", 1)
    pieces = [gzip.compress(one) for one in records] if packed else records
    (tmp_path / ("a.arc.gz" if packed else "a.arc")).write_bytes(b"".join(pieces))
    result = ingest(tmp_path)
    assert [doc["url"] for doc in result.docs] == [f"http://x/a b/{n}" for n in range(5)]
    assert result.docs[0]["date"] == "2008-04-30T20:48:25Z" and result.docs[2]["text"].startswith(
        "This is the text of page 2"
    )
    assert result.locators()[0].endswith("#0") and not result.decisions


def test_damage_in_an_arc(tmp_path: Path) -> None:
    records = [ARC, *(arc_record(n).replace(b"/a b/", b"/ab/") for n in range(9))]
    records[3] = re.sub(rb" (\d+)\n", b" 99999999\n", records[3], count=1)
    records[6] = records[6][:400]
    (tmp_path / "a.arc").write_bytes(b"".join(records))
    result = ingest(tmp_path)
    assert [int(doc["url"].rpartition("/")[2]) for doc in result.docs] == [0, 1, 3, 4, 6, 7, 8]
    assert result.rules == ["ingest.wrong_length"] * 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flip_anywhere_costs_few_records(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of an archive with a digest a record: one flipped byte, one record and no other text."""
    folder = tmp_path_factory.mktemp("flip")
    records = [digested(n) for n in range(12)]
    packed = data.draw(st.booleans())
    pieces = [gzip.compress(one) for one in records] if packed else records
    whole = bytearray(b"".join(pieces))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    name = "a.warc.gz" if packed else "a.warc"
    (folder / name).write_bytes(whole)
    result = ingest(folder / name)
    texts = {f"This is the text of page {n}, " + ("long enough. " * 40).strip() for n in range(12)}
    assert set(result.texts) <= texts
    assert len(result.docs) >= 11


@pytest.mark.parametrize(
    "text", [b"http:" * 300_000, b"http: f f 12345678 " * 80_000, b"WARC/1.0\r\nA" * 150_000]
)
def test_garbage_that_looks_like_records_is_passed_over_in_linear_time(tmp_path: Path, text: bytes) -> None:
    """Seconds for a megabyte at worst; a search that takes the square of it would not end."""
    documents, ((rule, _),) = names(tmp_path, RECORDS[0] + text + b"\n" + RECORDS[1])
    assert documents == ["id-0", "id-1"] and rule == "ingest.damaged"


def test_a_header_that_is_cut_into_the_next_record(tmp_path: Path) -> None:
    """Its second half is lost with the content: read on, the next record's header would be more lines of this one."""

    def cut(data: bytes) -> bytes:
        return data[: data.index(b"WARC-Type: response") + 30]

    for number in (0, 40, 68):
        documents, rejected = names(tmp_path, with_record(number, cut))
        assert documents == but(number)
        assert [rule for rule, _ in rejected] == ["ingest.damaged"]


def test_a_text_in_the_place_of_a_header_is_not_quoted(tmp_path: Path) -> None:
    secret = "a text of some length that nobody may read in the ledger"
    (tmp_path / "a.csv").write_text(f"1,{secret},x\n2,other,y\n")
    (tmp_path / "b.csv").write_bytes(b"1,\xff\xfe \xfd,x\n2,other,y\n")
    (tmp_path / "c.jsonl").write_text(json.dumps({secret: "x"}) + "\n")
    (tmp_path / "d.csv").write_text(f"{secret},{secret}\n2,other\n")
    result = ingest(tmp_path)
    assert not result.docs and set(result.rules) == {"ingest.no_text", "ingest.csv_header"}
    assert not [row["detail"] for row in result.decisions if "nobody may read" in row["detail"]]
    assert any(f"<{len(secret)} characters>" in row["detail"] for row in result.decisions)
