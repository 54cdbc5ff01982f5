"""What each structured format gives: fields, identity, wrong schemas, damaged parts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.ingest.helpers import ingest

ROWS: list[dict[str, Any]] = [
    {
        "id": "one",
        "text": "first text",
        "url": "http://a/1",
        "date": "2020-01-02",
        "score": 3,
        "tags": ["x", "ü"],
    },
    {"id": 2, "text": "second\r\ntext\x00 of\u2028three lines", "url": None, "n": {"deep": [1.5]}},
    {"text": "third text"},
]


def test_jsonl_fields(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\n\n".join(json.dumps(row) for row in ROWS) + "\r\n")
    result = ingest(tmp_path)
    one, two, three = result.docs
    assert (one["source_id"], one["url"], one["date"]) == ("one", "http://a/1", "2020-01-02")
    assert json.loads(one["metadata"]) == {"score": 3, "tags": ["x", "ü"]}
    assert (two["source_id"], two["text"]) == ("2", "second\ntext of\nthree lines")
    assert json.loads(two["metadata"]) == {"url": None, "n": {"deep": [1.5]}}
    assert (three["source_id"], three["metadata"], three["locator"]) == (None, None, "a.jsonl#2")
    assert result.counters["control_characters_stripped"] == 1
    assert result.counters["files/jsonl"] == 1 and result.counters["source/s/documents"] == 3


def test_jsonl_columns_by_name(tmp_path: Path) -> None:
    row = {"body": "the text", "key": "k", "link": "http://b", "when": "2001", "id": 7, "text": "a title"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    settings = {"text_column": "body", "id_column": "key", "url_column": "link", "date_column": "when"}
    (doc,) = ingest(tmp_path, **settings).docs
    assert [doc[name] for name in ("text", "source_id", "url", "date")] == [
        "the text",
        "k",
        "http://b",
        "2001",
    ]
    assert json.loads(doc["metadata"]) == {"id": 7, "text": "a title"}


def test_large_metadata_is_dropped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "t", "html": "x" * 20_000}))
    result = ingest(tmp_path)
    assert result.docs[0]["metadata"] is None and result.counters["metadata_dropped"] == 1


def test_jsonl_in_other_encodings(tmp_path: Path) -> None:
    text = "Übergröße für Bücher – schöne Grüße"
    line = json.dumps({"text": text}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_bytes(line.encode("cp1252"))
    (tmp_path / "b.jsonl").write_bytes(line.encode("utf-16"))
    result = ingest(tmp_path)
    assert result.texts == [text, text]
    assert result.counters["encoding_repaired/cp1252"] == 1


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
)
def test_parquet_text_types(tmp_path: Path, kind: pa.DataType) -> None:
    values = ["one", "two", None, "grün"]
    data = pa.array(values, pa.string())
    data = data.dictionary_encode() if pa.types.is_dictionary(kind) else data.cast(pa.binary()).cast(kind)
    pq.write_table(pa.table({"text": data, "id": [1, 2, 3, 4]}), tmp_path / "a.parquet", row_group_size=2)
    result = ingest(tmp_path)
    assert [(doc["text"], doc["source_id"], doc["locator"]) for doc in result.docs] == [
        ("one", "1", "a.parquet#0"),
        ("two", "2", "a.parquet#1"),
        ("grün", "4", "a.parquet#3"),
    ]
    (row,) = result.decisions
    assert (row["rule"], row["locator"], row["source_id"]) == ("ingest.no_text", "a.parquet#2", "3")


def test_parquet_fields(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": ["a", None],
            "text": ["x", "y"],
            "url": ["http://x", None],
            "blob": [b"\xff", b"\x00"],
            "date": [datetime.date(2020, 1, 2), None],
            "meta": [{"k": 1}, {"k": None}],
            "n": [1.5, None],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    one, two = ingest(tmp_path).docs
    assert (one["source_id"], one["url"], one["date"]) == ("a", "http://x", "2020-01-02")
    assert json.loads(one["metadata"]) == {"meta": {"k": 1}, "n": 1.5}
    assert (two["source_id"], two["date"], json.loads(two["metadata"])) == (None, None, {"meta": {"k": None}})


def test_parquet_without_the_column_is_one_row_for_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"txt": ["a"] * 50, "n": [1] * 50}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "c.parquet")
    (tmp_path / "d.parquet").write_bytes(b"this is no parquet file at all")
    result = ingest(tmp_path)
    rows = {row["locator"]: (row["rule"], row["detail"]) for row in result.decisions}
    assert {name: rule for name, (rule, _) in rows.items()} == {
        "a.parquet#0": "ingest.no_text",
        "b.parquet#0": "ingest.text_type",
        "c.parquet#0": "ingest.empty_file",
        "d.parquet#0": "ingest.not_parquet",
    }
    detail = rows["a.parquet#0"][1]
    assert "txt (string)" in detail and "did you mean 'txt'" in detail and "50 rows" in detail
    result = ingest(tmp_path / "a.parquet", format="documents")
    assert result.rules == ["ingest.wrong_schema"]


def test_parquet_with_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    texts = [
        "fine",
        "schöne Grüße".encode("cp1252"),
        b"\xc3\xa9t\xc3\xa9 \xff\xff \xc3\xa0\xc3\xa0",
        "also fine",
    ]
    raw = pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    pq.write_table(pa.table({"text": broken}), tmp_path / "a.parquet")
    result = ingest(tmp_path)
    assert result.texts == ["fine", "schöne Grüße", "also fine"]
    assert result.rules == ["ingest.undecodable"] and result.decisions[0]["locator"] == "a.parquet#2"


def test_a_damaged_row_group_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    texts = [f"text {i} " + "abcdefgh" * (i % 97) for i in range(3000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1000, compression="zstd")
    column = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    (tmp_path / "a.parquet").write_bytes(data)
    result = ingest(tmp_path)
    assert result.texts == texts[:1000] + texts[2000:]
    assert result.rules == ["ingest.damaged"] and result.decisions[0]["value"] == 1000
    assert result.locators()[-1] == "a.parquet#2999"


def test_parquet_is_read_in_bounded_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * 100_000 + str(i) for i in range(200)]  # one row group of 20 MB
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False)
    largest = 0
    original = pq.ParquetFile.iter_batches

    def watched(self: Any, **settings: Any) -> Any:
        nonlocal largest
        for batch in original(self, **settings):
            largest = max(largest, batch.nbytes)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    assert ingest(tmp_path).texts == texts
    assert largest < 6 << 20
    result = ingest(tmp_path, params={"max_record_mb": 0.09})
    assert set(result.rules) == {"ingest.record_too_large"} and len(result.rules) == 200


def test_text_and_markdown_trees(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "a.txt").write_bytes("Smörgås\r\nnästa\rrad".encode("latin-1"))
    (tmp_path / "d/b.md").write_bytes("\ufeff# Title\n\ntext".encode())
    (tmp_path / "d/c.txt").write_bytes(b"\x00\x01\x02\x03" * 50)
    (tmp_path / "d/e.txt").write_text("  \n")
    result = ingest(tmp_path)
    assert {doc["locator"]: doc["text"] for doc in result.docs} == {
        "a.txt#0": "Smörgås\nnästa\nrad",
        "d/b.md#0": "# Title\n\ntext",
    }
    assert {row["locator"]: row["rule"] for row in result.decisions} == {
        "d/c.txt#0": "ingest.undecodable",
        "d/e.txt#0": "ingest.empty_text",
    }


def test_declared_encoding_of_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Год 2020".encode("koi8-r"))
    assert ingest(tmp_path, encoding="koi8-r").texts == ["Год 2020"]
    (tmp_path / "a.txt").write_bytes("Год 2020".encode())
    result = ingest(tmp_path, encoding="koi8-r")  # a wrong declaration
    assert result.texts == ["Год 2020"] and result.counters["encoding_repaired/utf-8"] == 1


def test_min_chars(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "é" * n}) + "\n" for n in (9, 10, 11)))
    result = ingest(tmp_path, params={"min_chars": 10})
    assert [len(text) for text in result.texts] == [10, 11]
    (row,) = result.decisions
    assert (row["rule"], row["value"], row["threshold"]) == ("ingest.empty_text", 9.0, 10.0)
