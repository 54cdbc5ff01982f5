"""Everything that can be wrong with a file ends in rows with the problem and its place, never in an exception."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from tests.pipeline.ingest.helpers import ingest

LINES = [json.dumps({"text": f"document number {i} " + "abc def " * 20}) + "\n" for i in range(500)]
PLAIN = "".join(LINES).encode()


def noise(size: int) -> bytes:
    return random.Random(5).randbytes(size)


def compress(name: str, data: bytes) -> bytes:
    if name == "zst":
        return zstandard.ZstdCompressor().compress(data)
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[name](data)


@pytest.mark.parametrize(
    "name", ["a.txt", "a.jsonl", "a.parquet", "a.warc", "a.wet", "a.html", "a.xml", "a.md", "a.csv"]
)
def test_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    result = ingest(tmp_path)
    assert result.rules == ["ingest.empty_file"] and not result.docs
    assert result.decisions[0]["locator"] == f"{name}#0"


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_compressed_by_name_or_by_first_bytes(tmp_path: Path, suffix: str) -> None:
    data = compress(suffix, PLAIN)
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(data)
    (tmp_path / "b.jsonl").write_bytes(data)
    (tmp_path / f"c.jsonl.{suffix}").write_bytes(PLAIN)  # named as compressed, and is not
    (tmp_path / f"d.jsonl.{suffix}").write_bytes(data + data[:0] + compress(suffix, PLAIN))  # two members
    result = ingest(tmp_path)
    assert len(result.docs) == 5 * 500 and not result.decisions


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    members = [compress(suffix, "".join(LINES[i : i + 50]).encode()) for i in range(0, 500, 50)]
    cut = len(b"".join(members[:7])) + len(members[7]) - 9
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(b"".join(members)[:cut])
    result = ingest(tmp_path)
    # Of the eighth member, gzip gives every line that is whole; the others decode by blocks.
    assert len(result.docs) >= (399 if suffix == "gz" else 350)
    assert [doc["text"] for doc in result.docs] == [
        json.loads(line)["text"] for line in LINES[: len(result.docs)]
    ]
    (row,) = result.decisions
    assert row["rule"] == "ingest.truncated" and row["value"] == cut
    assert row["locator"] == f"a.jsonl.{suffix}#{len(result.docs)}"
    assert f"record {len(result.docs)}:" in row["detail"] and f"byte {cut}" in row["detail"]


def test_every_cut_of_a_gzip_keeps_the_records_before_it(tmp_path: Path) -> None:
    data = compress("gz", "".join(LINES[:20]).encode())
    for cut in range(12, len(data), 7):
        decoder = zlib.decompressobj(wbits=31)
        whole = decoder.decompress(data[:cut]).count(b"\n")
        (tmp_path / "a.jsonl.gz").write_bytes(data[:cut])
        result = ingest(tmp_path)
        assert len(result.docs) == whole and result.rules == ["ingest.truncated"]


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_flipped_byte(tmp_path: Path, suffix: str) -> None:
    data = bytearray(compress(suffix, PLAIN) + compress(suffix, PLAIN))
    data[len(data) * 3 // 4] ^= 0xFF
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(data)
    result = ingest(tmp_path)
    assert len(result.docs) >= 500
    assert set(result.rules) & {"ingest.damaged", "ingest.truncated"}
    assert result.counters["records"] == len(result.docs) + len(result.decisions)


def test_bytes_after_the_compressed_data_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(compress("gz", PLAIN) + b"\x00" * 512)  # padding is fine
    (tmp_path / "b.jsonl.gz").write_bytes(compress("gz", PLAIN) + b"and more")
    result = ingest(tmp_path)
    assert len(result.docs) == 1000
    assert [(row["rule"], row["locator"]) for row in result.decisions] == [
        ("ingest.damaged", "b.jsonl.gz#500")
    ]


def test_named_gz_and_is_noise(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"\x01\x02" + noise(5000))
    result = ingest(tmp_path)
    assert result.rules == ["ingest.damaged"] and "named as gzip" in result.decisions[0]["detail"]


def test_binary_garbage_named_jsonl_is_capped(tmp_path: Path) -> None:
    data = noise(4 << 20)
    (tmp_path / "a.jsonl").write_bytes(data)
    result = ingest(tmp_path)
    assert not result.docs
    assert len(result.decisions) == 101 and result.rules[-1] == "ingest.not_jsonl"
    assert "stored bytes" in result.decisions[-1]["detail"] and result.decisions[-1]["value"] > 1 << 20


def test_hundred_bad_lines_with_a_good_one_between_do_not_end_the_file(tmp_path: Path) -> None:
    bad = ["not json\n"] * 60
    (tmp_path / "a.jsonl").write_text("".join([*bad, LINES[0], *bad, LINES[1], *bad]))
    result = ingest(tmp_path)
    assert len(result.docs) == 2 and result.rules == ["ingest.malformed_json"] * 180


def test_lines_that_are_no_records(tmp_path: Path) -> None:
    lines = [
        b'{"text": "fine"}',
        b"[1, 2]",
        b'"a string"',
        b"17",
        b'{"text": "broken',
        b'{"body": "x", "txt": "y", "id": "mine", "url": "http://x"}',
        b'{"text": 12}',
        b'{"text": null}',
        b'{"text": " \\n\\t "}',
        b"",
        b'{"text": "\xff\xfe\xfd\x81\x8d secret words"}',
        b'{"text": "last"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    result = ingest(tmp_path)
    assert [(doc["locator"], doc["text"]) for doc in result.docs] == [
        ("a.jsonl#0", "fine"),
        ("a.jsonl#10", "last"),
    ]
    rows = {row["locator"]: row for row in result.decisions}
    assert {name: row["rule"] for name, row in rows.items()} == {
        "a.jsonl#1": "ingest.not_an_object",
        "a.jsonl#2": "ingest.not_an_object",
        "a.jsonl#3": "ingest.not_an_object",
        "a.jsonl#4": "ingest.malformed_json",
        "a.jsonl#5": "ingest.no_text",
        "a.jsonl#6": "ingest.text_type",
        "a.jsonl#7": "ingest.text_type",
        "a.jsonl#8": "ingest.empty_text",
        "a.jsonl#9": "ingest.undecodable",
    }
    assert "did you mean 'txt'" in rows["a.jsonl#5"]["detail"]
    assert (rows["a.jsonl#5"]["source_id"], rows["a.jsonl#5"]["url"]) == ("mine", "http://x")
    position = b"\n".join(lines).index(b'{"text": "\xff')
    assert rows["a.jsonl#9"]["value"] == position and "byte 10" in rows["a.jsonl#9"]["detail"]
    for row in result.decisions:
        assert row["outcome"] == "quarantined" and row["stage"] == "ingest"
        assert row["failed"][0]["rule"] == row["rule"]
        assert "secret" not in row["detail"] and "broken" not in row["detail"]


def test_json_that_is_made_to_hurt(tmp_path: Path) -> None:
    lines = [
        "[" * 100_000 + "]" * 100_000,
        '{"text": "a \\ud800 b", "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"text": "deep", "x": ' + "[" * 900 + "]" * 900 + "}",
        '{"text": "long number NaN", "x": ' + "9" * 100_000 + "}",
        '{"text": "lone \\ud83d surrogate", "y\\udc00": "\\udfff"}',
        '{"text": "pair \\ud83d\\ude00"}',
        '{"text": "not a number", "x": NaN, "y": Infinity}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    result = ingest(tmp_path)
    texts = set(result.texts)
    assert {"lone � surrogate", "pair 😀", "not a number"} <= texts
    assert result.counters["records"] == 7 and "ingest.unreadable" not in result.rules
    assert result.counters["surrogates_replaced"] == 1


def test_a_very_long_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(LINES[0].encode())
        file.write(b'{"text": "')
        for _ in range(50):
            file.write(b"x" * 2**20)
        file.write(b'"}\n')
        file.write(LINES[1].encode())
    tracemalloc.start()
    result = ingest(tmp_path, params={"max_record_mb": 2})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(result.docs) == 2 and [doc["locator"] for doc in result.docs] == ["a.jsonl#0", "a.jsonl#2"]
    (row,) = result.decisions
    assert row["rule"] == "ingest.record_too_large" and row["value"] == 50 * 2**20 + 12
    assert row["threshold"] == 2 * 2**20
    assert peak < 16 * 2**20


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_a_bomb_expands_in_bounded_memory(tmp_path: Path, suffix: str) -> None:
    size = 100 << 20
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(
        compress(suffix, b'{"text": "' + b"x" * size + b'"}\n' + PLAIN)
    )
    tracemalloc.start()
    result = ingest(tmp_path, params={"max_record_mb": 1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.rules == ["ingest.record_too_large"] and len(result.docs) == 500
    assert result.decisions[0]["value"] == size + 12
    assert peak < 48 * 2**20


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.txt.gz"])
def test_a_file_longer_than_a_record_may_be(tmp_path: Path, name: str) -> None:
    data = b"word " * 500_000
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    result = ingest(tmp_path, params={"max_record_mb": 1})
    assert result.rules == ["ingest.record_too_large"] and not result.docs


def test_unsupported_files_in_a_folder_are_accounted_for(tmp_path: Path) -> None:
    (tmp_path / "data.xls").write_text("a,b\n1,2\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" + noise(100))
    (tmp_path / "export").write_text('{"text": "JSON lines without a suffix"}\n')
    (tmp_path / "page").write_text("<!DOCTYPE html><html><body><p>A page without a suffix.</p></body></html>")
    (tmp_path / "a.txt").write_text("text")
    result = ingest(tmp_path)
    assert {row["locator"]: row["rule"] for row in result.decisions} == {
        "data.xls#0": "ingest.unsupported_format",
        "picture.png#0": "ingest.unsupported_format",
    }
    assert sorted(doc["locator"] for doc in result.docs) == ["a.txt#0", "export#0", "page#0"]


def test_a_store_that_fails_is_no_bad_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(PLAIN)
    (tmp_path / "a.warc").write_bytes(b"WARC/1.0\r\n" + PLAIN)

    class Failing:
        closed = False

        def read(self, size: int) -> bytes:
            raise OSError("input/output error")

        def close(self) -> None: ...

    monkeypatch.setattr(Folder, "open", lambda self, **_: Failing())
    for name in ("a.jsonl", "a.warc"):
        with pytest.raises(WorkError, match="input/output error"):
            ingest(tmp_path / name)
