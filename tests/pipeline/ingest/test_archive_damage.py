"""Damaged, truncated and hostile archives: what is intact is read, the rest has its rows, and memory stays small."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest import spool
from corpusmill.pipeline.ingest.raw_file import Damaged
from corpusmill.pipeline.ingest.readers import zip_members
from corpusmill.pipeline.ingest.spool import Spool
from tests.pipeline.ingest.test_archive_members import Pipe, parquet, read, tar_of, texts_of, zip_of
from tests.pipeline.ingest.test_bombs import MIB, held, stored

TEXTS = {f"m{n}.txt": f"text number {n} ".encode() * (40 + 7 * n) for n in range(8)}
WANTED = {f"{name}#0": data.decode().strip() for name, data in TEXTS.items()}


def found(folder: Path, name: str, data: bytes) -> tuple[dict[str, str], list[str]]:
    """(texts by locator, rules of the rows) of an archive; every record has its account."""
    result = read(folder, name, data)
    assert len(result.docs) + len(result.decisions) == result.counters["records"]
    assert "ingest.unreadable" not in result.rules
    assert len({doc["doc_id"] for doc in [*result.docs, *result.decisions]}) == result.counters["records"]
    return {place: text.strip() for place, text in texts_of(result).items()}, result.rules


def spans(data: bytes) -> dict[str, tuple[int, int]]:
    """Where each member's header begins and its content ends, as tarfile or zipfile has it."""
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {
                one.filename: (
                    one.header_offset,
                    one.header_offset + 30 + len(one.filename) + one.compress_size,
                )
                for one in archive.infolist()
            }
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: (one.offset, one.offset_data + one.size) for one in tar.getmembers()}


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 7), st.sampled_from(["x.tar", "x.zip"]))
def test_a_flipped_bit_costs_the_member_that_it_hits(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, name: str
) -> None:
    data = bytearray(tar_of(TEXTS, tarfile.USTAR_FORMAT) if name == "x.tar" else zip_of(TEXTS))
    place %= len(data)
    touched = [one for one, (begin, end) in spans(bytes(data)).items() if begin <= place < end]
    directory = name == "x.zip" and place >= bytes(data).index(b"PK\1\2")
    data[place] ^= 1 << bit
    texts, rules = found(tmp_path_factory.getbasetemp(), name, bytes(data))
    for one in TEXTS:
        if one in touched:
            # Of a tar only headers have a checksum: a bit of the content changes the text.
            assert (
                WANTED[f"{one}#0"] == texts.get(f"{one}#0")
                or rules
                or (name == "x.tar" and f"{one}#0" in texts)
            )
        elif not directory:
            assert texts[f"{one}#0"] == WANTED[f"{one}#0"]
    if directory:  # each member has a header of its own, too
        assert texts == WANTED or rules == ["ingest.unreadable_file"]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10**6), st.sampled_from(["x.tar", "x.zip", "stored.zip"]))
def test_everything_before_a_cut_is_kept(
    tmp_path_factory: pytest.TempPathFactory, place: int, name: str
) -> None:
    method = zipfile.ZIP_STORED if name == "stored.zip" else zipfile.ZIP_DEFLATED
    data = tar_of(TEXTS) if name == "x.tar" else zip_of(TEXTS, method)
    cut = 1 + place % (len(data) - 1)
    texts, rules = found(tmp_path_factory.getbasetemp(), name, data[:cut])
    for one, (_, end) in spans(data).items():
        if end <= cut:
            assert texts[f"{one}#0"] == WANTED[f"{one}#0"]
    assert rules or (name == "x.tar" and not any(data[cut:]))


def test_a_lost_header_of_a_tar_is_named_with_its_bytes(tmp_path: Path) -> None:
    data = bytearray(tar_of(TEXTS, tarfile.USTAR_FORMAT))
    begin = spans(bytes(data))["m3.txt"][0]
    after = spans(bytes(data))["m4.txt"][0]
    data[begin : begin + 512] = b"\xff" * 512
    result = read(tmp_path, "x.tar", bytes(data))
    assert texts_of(result).keys() == WANTED.keys() - {"m3.txt#0"}
    (row,) = result.decisions
    assert row["rule"] == "ingest.damaged" and row["locator"] == "x.tar#0"
    assert row["value"] == after - begin
    assert f"{after - begin} bytes from byte {begin}" in row["detail"]
    moved = bytes(data[:begin]) + b"inserted" + bytes(data[begin + 512 :])  # headers off their places
    assert found(tmp_path, "x.tar", moved)[0].keys() == WANTED.keys() - {"m3.txt#0"}


@pytest.mark.parametrize("codec", ["gz", "bz2"])
def test_a_damaged_member_of_the_compression_under_a_tar(tmp_path: Path, codec: str) -> None:
    plain = tar_of({name: data * 40 for name, data in TEXTS.items()})
    compress = gzip.compress if codec == "gz" else bz2.compress
    parts = [compress(plain[at : at + 8192]) for at in range(0, len(plain), 8192)]
    half = len(parts) // 2
    parts[half] = parts[half][:20] + bytes(20) + parts[half][40:]
    texts, rules = found(tmp_path, f"x.tar.{codec}", b"".join(parts))
    hit = [n for n, (a, b) in spans(plain).items() if a < (half + 1) * 8192 and b > half * 8192]
    # What precedes the damage within its member is a document of its own right; what follows it is read on.
    assert texts.keys() >= WANTED.keys() - {f"{name}#0" for name in hit}
    assert rules


def test_a_damaged_member_of_a_zip_costs_that_member(tmp_path: Path) -> None:
    data = bytearray(zip_of({**TEXTS, "p.parquet": parquet("seven")}, zipfile.ZIP_STORED))
    begin, end = spans(bytes(data))["m3.txt"]
    data[end - 3] ^= 1
    result = read(tmp_path, "x.zip", bytes(data))
    assert [(row["locator"], row["rule"]) for row in result.decisions] == [
        ("x.zip!m3.txt#0", "ingest.damaged")
    ]
    assert "CRC-32" in result.decisions[0]["detail"]
    assert texts_of(result).keys() == WANTED.keys() - {"m3.txt#0"} | {"p.parquet#0"}
    data[begin : begin + 4] = bytes(4)
    (row,) = read(tmp_path, "x.zip", bytes(data)).decisions
    assert "'m3.txt'" in row["detail"] and "header" in row["detail"] and row["rule"] == "ingest.damaged"


def test_members_that_the_directory_misplaces_are_read_by_their_own_headers(tmp_path: Path) -> None:
    data = zip_of(TEXTS)
    begin, _ = spans(data)["m3.txt"]
    texts, rules = found(tmp_path, "x.zip", data[:begin] + b"inserted" + data[begin:])
    assert texts == WANTED and rules == ["ingest.damaged"] * 5
    wrong = bytearray(data)
    at = data.index(b"m3.txt", data.index(b"PK\1\2"))
    wrong[at - 46 + 20 : at - 46 + 24] = b"\xff\xff\xff\0"  # its stored length
    texts, rules = found(tmp_path, "x.zip", bytes(wrong))
    assert texts == WANTED and rules == ["ingest.damaged"]


def test_a_zip_without_its_directory(tmp_path: Path) -> None:
    data = zip_of(TEXTS)
    texts, rules = found(tmp_path, "x.zip", data[: data.index(b"PK\1\2")])
    assert texts == WANTED and rules == ["ingest.damaged"]
    assert found(tmp_path, "x.zip", b"nothing of a zip file") == ({}, ["ingest.not_zip"])


def test_encrypted_and_unknown_members_are_rows(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.txt": b"plain", "b.txt": b"secret", "c.txt": b"packed"}))
    for sign, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        second = data.index(sign, data.index(sign) + 1)
        data[second + flags] |= 1
        third = data.index(sign, second + 1)
        data[third + flags + 2] = 97  # WavPack
    result = read(tmp_path, "x.zip", bytes(data))
    assert result.texts == ["plain"]
    details = [row["detail"] for row in result.decisions]
    assert result.rules == ["ingest.unreadable_file"] * 2
    assert "encrypted" in details[0] and "method 97" in details[1]


def overlapping(members: int, mib: int) -> bytes:
    """Directory entries that all lead to one member, which expands to so many MiB."""
    packed = zlib.compressobj(9, wbits=-15)
    block = bytes(MIB)
    content = b"".join([*(packed.compress(block) for _ in range(mib)), packed.flush()])
    crc = 0
    for _ in range(mib):
        crc = zlib.crc32(block, crc)
    sizes = (crc, len(content), mib * MIB)
    out = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 0, *sizes, 5, 0) + b"a.txt" + content
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 0, *sizes, 5, 0, 0, 0, 0, 0, 0) + b"a.txt"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, members, members, members * len(entry), len(out), 0)
    return out + entry * members + end


def test_of_entries_for_one_member_the_first_is_read(tmp_path: Path) -> None:
    texts, rules = found(tmp_path, "x.zip", overlapping(50, 1))
    # Its text is a MiB of zeros.
    assert not texts and rules == ["ingest.undecodable"] + ["ingest.unreadable_file"] * 49


def test_members_that_share_their_bytes_are_rows(tmp_path: Path) -> None:
    """The content of the first goes on behind the header of the second (D. Fifield's quoted overlap)."""
    data = bytearray(zip_of({"a.txt": b"first", "b.txt": b"second", "c.txt": b"third"}, zipfile.ZIP_STORED))
    begin = data.index(b"PK\3\4", 1)
    length = data.index(b"PK\3\4", begin + 1) - data.index(b"first")
    for sign, at in ((b"PK\3\4", 18), (b"PK\1\2", 20)):
        place = data.index(sign) + at
        data[place : place + 8] = struct.pack("<2L", length, length)
    texts, rules = found(tmp_path, "x.zip", bytes(data))
    assert texts == {"c.txt#0": "third"} and rules == ["ingest.unreadable_file"] * 2


def test_the_number_of_members_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_members, "MAX_MEMBERS", 5)
    result = read(tmp_path, "x.zip", zip_of(TEXTS))
    assert len(result.docs) == 5 and result.rules == ["ingest.too_many_members"]
    assert "3 members" in result.decisions[0]["detail"]


def test_a_zip_that_is_compressed_once_more(tmp_path: Path) -> None:
    assert found(tmp_path, "x.zip.gz", gzip.compress(zip_of(TEXTS))) == (WANTED, [])
    _, rules = found(tmp_path, "x.zip.gz", gzip.compress(zip_of(TEXTS))[:-30])
    assert rules == ["ingest.truncated"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.parquet", "a.jsonl.gz", "a"])
def test_a_gigabyte_of_zeros_in_a_member(tmp_path: Path, name: str) -> None:
    """Also a file beside it, which is read."""
    block = bytes(MIB)
    for suffix in ("zip", "tar.gz"):
        path = tmp_path / f"x.{suffix}"
        if suffix == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                with archive.open(name, "w") as member:
                    for _ in range(512):
                        member.write(block)
                archive.writestr("b.txt", "beside")
        else:
            header = tarfile.TarInfo(name)
            header.size = 512 * MIB
            beside = tar_of({"b.txt": b"beside"})
            with gzip.open(path, "wb", compresslevel=1) as out:
                out.write(header.tobuf())
                for _ in range(512):
                    out.write(block)
                out.write(beside)
        documents, rules = held(path, 400)
        assert documents == 1 and len(rules) == 1


def test_bombs_inside_archives_inside_archives(tmp_path: Path) -> None:
    inner = zip_of({"a.jsonl.zst": stored("zst", 1024), "b.txt": b"beside"})
    (tmp_path / "x.tar").write_bytes(tar_of({"i.zip": inner, "i.tar": tar_of({"i.zip": inner})}))
    documents, rules = held(tmp_path / "x.tar", 400)
    assert documents == 1 and len(rules) == 2 and "ingest.nested_archive" in rules


def test_many_small_members_take_little_memory(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar, zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number in range(20_000):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
            archive.writestr(f"{number}.txt", "text")
    for name in ("x.tar", "x.zip"):
        assert held(tmp_path / name, 300) == (20_000, [])


def test_a_spool_beyond_its_limit_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "SPOOL_BYTES", 10)
    with Spool(iter([b"0123456789", b"abcdef", b"ghij"])) as kept:
        first = kept.open()
        assert first.read(-1) == b"0123456789abcdefghij"
        assert kept.open().read(10) == b"0123456789"
        with pytest.raises(Damaged, match="longer than 10 bytes"):
            kept.read_at(12, 1)
        with pytest.raises(Damaged, match="read from its end"):
            first.seek(0, io.SEEK_END)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("size", [0, 4096])
def test_a_full_disk_ends_the_run(size: int) -> None:
    with Spool(iter([b"x" * 64])) as kept:
        kept._kept = Path("/dev/full").open("r+b", buffering=size)  # noqa: SIM115 (a device that no byte fits on)
        with pytest.raises(WorkError, match="TMPDIR"):
            kept.read_at(0, 1)


def test_a_damaged_member_of_several_gzip_members_ends(tmp_path: Path) -> None:
    """What is wrong at its end is no reason to read its second part for ever."""
    line = b'{"text": "a text that is long enough"}\n'
    data = bytearray(zip_of({"a.jsonl.gz": gzip.compress(line) + gzip.compress(line)}, zipfile.ZIP_STORED))
    for sign, at in ((b"PK\3\4", 14), (b"PK\1\2", 16)):
        data[data.index(sign) + at] ^= 1  # the CRC-32
    result = read(tmp_path, "a.zip", bytes(data))
    assert len(result.docs) == 2 and result.rules == ["ingest.damaged"]


def test_a_directory_without_its_beginning_costs_no_member(tmp_path: Path) -> None:
    data = zip_of({f"{n}.txt": b"text %d" % n for n in range(8)}, zipfile.ZIP_STORED)
    begin = data.index(b"PK\1\2")
    result = read(tmp_path, "a.zip", data[:begin] + data[begin + 100 :])
    assert sorted(doc["text"] for doc in result.docs) == [f"text {n}" for n in range(8)]
    assert set(result.rules) == {"ingest.damaged"}


def test_an_empty_directory_behind_members_hides_none(tmp_path: Path) -> None:
    data = zip_of(TEXTS)
    texts, rules = found(tmp_path, "x.zip", data[: data.index(b"PK\1\2")] + zip_of({}))
    assert texts == WANTED and rules == ["ingest.damaged"]
    assert found(tmp_path, "y.zip", zip_of({})) == ({}, [])


def test_a_directory_with_entries_twice_costs_no_member(tmp_path: Path) -> None:
    data = zip_of(TEXTS)
    begin, end = data.index(b"PK\1\2"), data.rindex(b"PK\5\6")
    last = bytearray(data[end:])
    last[12:16] = struct.pack("<L", 2 * (end - begin))
    texts, rules = found(tmp_path, "x.zip", data[:end] + data[begin:end] + last)
    assert texts == WANTED and rules == ["ingest.unreadable_file"] * 8


def test_a_wrong_entry_costs_no_other_of_its_member(tmp_path: Path) -> None:
    data = zip_of(TEXTS)
    begin, end = data.index(b"PK\1\2"), data.rindex(b"PK\5\6")
    wrong = bytearray(data[begin : data.index(b"PK\1\2", begin + 1)])
    wrong[-2] ^= 1  # of its name
    last = bytearray(data[end:])
    last[12:16] = struct.pack("<L", end - begin + len(wrong))
    texts, rules = found(tmp_path, "x.zip", data[:begin] + wrong + data[begin:end] + last)
    assert texts == WANTED and rules == ["ingest.damaged"]


def test_a_directory_that_is_said_to_begin_too_early_costs_no_member(tmp_path: Path) -> None:
    data = bytearray(zip_of(TEXTS))
    begin, end = data.index(b"PK\1\2"), data.rindex(b"PK\5\6")
    data[end + 12 : end + 20] = struct.pack("<2L", end - begin + 200, begin - 200)
    texts, rules = found(tmp_path, "x.zip", bytes(data))
    assert texts == WANTED and rules == ["ingest.damaged"]


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_member_twice_or_cut_costs_no_other(tmp_path: Path, number: int) -> None:
    data = zip_of(TEXTS)
    begin, end = spans(data)[f"m{number}.txt"]
    texts, rules = found(tmp_path, "x.zip", data[:end] + data[begin:end] + data[end:])
    # Bytes before the first member or behind the last one, which the directory does not have, are no damage.
    assert set(texts.values()) == set(WANTED.values()) and bool(rules) == (number == 3)
    half = (begin + end) // 2
    texts, rules = found(tmp_path, "x.zip", data[:half] + data[end:])
    assert WANTED.items() - texts.items() <= {(f"m{number}.txt#0", WANTED[f"m{number}.txt#0"])} and rules


@pytest.mark.parametrize("field", [16, 20, 24])
def test_lengths_behind_a_member_are_held_against_the_directory(tmp_path: Path, field: int) -> None:
    """What stands in the entry is wrong, in the record behind the content right: the member is read as itself has it."""
    with zipfile.ZipFile(out := Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in TEXTS.items():
            archive.writestr(name, text)
    data = bytearray(out.getvalue())
    data[data.index(b"PK\1\2") + field] ^= 1
    texts, rules = found(tmp_path, "x.zip", bytes(data))
    assert texts == WANTED and rules == ["ingest.damaged"]
