"""CSV, TSV, JSON of any shape, Arrow IPC, nested fields: what is intact comes out as other readers read it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.ingest.helpers import Result, ingest

ROWS = [
    {"id": f"r{n}", "text": text, "date": f"2020-01-{n + 1:02d}", "score": str(n / 2)}
    for n, text in enumerate(
        ["plain", 'with "quotes", and a comma', "two\nlines", "tab\tinside; and more", "é – 漢字", "x" * 5000]
    )
]
TEXTS = [row["text"] for row in ROWS]


def as_csv(rows: list[dict[str, str]] = ROWS, **dialect: Any) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write(folder: Path, name: str, text: str | bytes) -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def reasons(result: Result) -> list[tuple[str, str]]:
    return [(row["rule"], row["detail"]) for row in result.decisions]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_with_any_usual_delimiter(tmp_path: Path, delimiter: str, end: str) -> None:
    result = ingest(write(tmp_path, "a.csv", as_csv(delimiter=delimiter, lineterminator=end)))
    assert result.texts == TEXTS and not result.decisions
    assert [doc["source_id"] for doc in result.docs] == [row["id"] for row in ROWS]
    assert result.docs[1]["date"] == "2020-01-02" and json.loads(result.docs[1]["metadata"]) == {
        "score": "0.5"
    }
    assert result.locators()[3] == "a.csv#3"


def test_tsv_and_compressed_csv_and_byte_order_marks(tmp_path: Path) -> None:
    tsv = as_csv(delimiter="\t", lineterminator="\n")
    assert ingest(write(tmp_path, "a.tsv", tsv)).texts == TEXTS
    assert ingest(write(tmp_path, "a.csv.gz", gzip.compress(as_csv().encode()))).texts == TEXTS
    assert ingest(write(tmp_path, "b.csv", as_csv().encode("utf-8-sig"))).texts == TEXTS
    assert ingest(write(tmp_path, "c.csv", as_csv().encode("utf-16"))).texts == TEXTS


def test_dialects_of_the_recipe(tmp_path: Path) -> None:
    single = write(tmp_path, "a.csv", as_csv(quotechar="'", delimiter="^"))
    assert ingest(single, csv={"quote": "'", "delimiter": "^"}).texts == TEXTS
    escaped = write(tmp_path, "b.csv", as_csv(doublequote=False, escapechar="\\"))
    assert ingest(escaped, csv={"escape": "\\"}).texts == TEXTS
    bare = write(tmp_path, "c.csv", 'text,id\nhe said "so,1\n')
    assert ingest(bare, csv={"quote": None}).texts == ['he said "so']
    nameless = write(tmp_path, "d.csv", "one,first text\ntwo,second text\n")
    assert ingest(nameless, csv={"header": ["id", "text"]}).texts == ["first text", "second text"]
    assert ingest(nameless, csv={"header": False}, text_column="1").texts == ["first text", "second text"]


def test_rows_that_do_not_fit_name_their_lines(tmp_path: Path) -> None:
    text = 'id,text\n1,fine\n2,too,many\n3\n4,"two\nlines"\n\n5,"bad" quote\n6,fine too\n7,"never ends\n8,behind it\n9,also\n'
    result = ingest(write(tmp_path, "a.csv", text))
    assert result.texts == ["fine", "two\nlines", "fine too", "behind it", "also"]
    assert reasons(result) == [
        ("ingest.csv_fields", "line 3: 3 fields, the header has 2"),
        ("ingest.csv_fields", "line 4: 1 fields, the header has 2"),
        ("ingest.malformed_csv", "line 8: ',' expected after '\"'"),
        ("ingest.malformed_csv", "line 10: a quoted field does not end"),
    ]


def test_headers_that_cannot_be_meant(tmp_path: Path) -> None:
    missing = ingest(write(tmp_path, "a.csv", "id,content\n1,x\n2,y\n"), text_column="texts")
    ((rule, detail),) = reasons(missing)
    assert rule == "ingest.no_text" and detail.startswith("line 1, the header: no field 'texts'")
    assert "2 rows behind it" in detail and missing.decisions[0]["value"] == 2.0
    twice = ingest(write(tmp_path, "b.csv", "text,text\n1,x\n"))
    assert (
        reasons(twice)[0][0] == "ingest.csv_header"
        and "the column 'text' is there twice" in reasons(twice)[0][1]
    )


def test_a_csv_in_another_encoding(tmp_path: Path) -> None:
    text = "id,text\n1,Größere Möbel für kühle Räume – ungefähr\n"
    result = ingest(write(tmp_path, "a.csv", text.encode("cp1252")))
    assert (
        result.texts == ["Größere Möbel für kühle Räume – ungefähr"]
        and result.counters["encoding_repaired"] == 1
    )


def test_a_file_that_is_no_csv_ends_soon(tmp_path: Path) -> None:
    data = b"text,id\n" + b'"a" b,1\n' * 5000
    result = ingest(write(tmp_path, "a.csv", data))
    assert (
        len(result.decisions) == 101 and "100 rows in a row cannot be read" in result.decisions[-1]["detail"]
    )


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\0\ufeff")), st.text("ab,\"'\n;|")
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_csv_as_pythons_reader_reads_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "other"), *rows])
    file = write(tmp_path_factory.mktemp("csv"), "a.csv", out.getvalue())
    result = ingest(file, params={"repair_encoding": False}, csv={"delimiter": ","})
    assert len(result.docs) + len(result.decisions) == len(rows)
    assert {row["rule"] for row in result.decisions} <= {"ingest.empty_text"}
    others = [json.loads(doc["metadata"])["other"] if doc["metadata"] else "" for doc in result.docs]
    assert others == [
        other for text, other in rows if any(len(c.strip()) for c in [text]) and _has_text(text)
    ]


def _has_text(text: str) -> bool:
    """Whether ingest finds text in it: not controls and white space alone."""
    return bool("".join(c for c in text if not (c < " " or "\x7f" <= c <= "\x9f")).strip())


OBJECTS: list[dict[str, Any]] = [
    {"id": n, "text": f"text {n} {{[\"'", "more": {"a": [1, {"b": "}, {"}]}} for n in range(20)
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OBJECTS),
        json.dumps(OBJECTS, indent=2),
        "\n".join(json.dumps(one, indent=1) for one in OBJECTS),
        "".join(json.dumps(one) for one in OBJECTS),
        " , ".join(json.dumps(one) for one in OBJECTS),
        json.dumps(OBJECTS[:7]) + json.dumps(OBJECTS[7:]),
        "".join("\x1e" + json.dumps(one) + "\n" for one in OBJECTS),
        "[\n" + ",\n".join(json.dumps(one) for one in OBJECTS) + "\n]\n",
        "\n".join(json.dumps(one) for one in OBJECTS),
    ],
    ids=[
        "array",
        "indented array",
        "indented objects",
        "joined",
        "commas",
        "two arrays",
        "RFC 7464",
        "array of lines",
        "lines",
    ],
)
@pytest.mark.parametrize("name", ["a.json", "unnamed", "a.json.gz"])
def test_json_of_any_shape(tmp_path: Path, text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.ingest.streams.READ_BYTES", 100)  # values straddle blocks
    data = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    result = ingest(write(tmp_path, name, data))
    assert result.texts == [one["text"] for one in OBJECTS] and not result.decisions
    assert [doc["source_id"] for doc in result.docs] == [str(n) for n in range(20)]


def test_one_object_of_a_file(tmp_path: Path) -> None:
    assert ingest(write(tmp_path, "a.json", json.dumps(OBJECTS[0], indent=4))).texts == [OBJECTS[0]["text"]]
    assert ingest(write(tmp_path, "b.json", json.dumps(OBJECTS[0]))).texts == [OBJECTS[0]["text"]]


def test_values_that_cannot_be_read_cost_themselves(tmp_path: Path) -> None:
    text = '[{"text": "one"}, {"text": bad}, {"text": "two"}, 7, "eight", [1], {"text": "three"}, {"text": "cut sh'
    result = ingest(write(tmp_path, "a.json", text))
    assert result.texts == ["one", "two", "three"]
    rules = [rule for rule, _ in reasons(result)]
    assert rules == [
        "ingest.malformed_json",
        *["ingest.not_an_object"] * 3,
        "ingest.truncated",
        "ingest.truncated",
    ]
    assert "value 1: Expecting value" in reasons(result)[0][1]


def test_a_json_value_longer_than_a_record_may_be(tmp_path: Path) -> None:
    text = json.dumps([{"text": "one"}, {"text": "x" * 200_000}, {"text": "two"}])
    result = ingest(write(tmp_path, "a.json", text), params={"max_record_mb": 0.1})
    assert result.texts == ["one"] and result.rules == ["ingest.record_too_large"]
    assert "the rest of the file is not read" in result.decisions[0]["detail"]


@given(st.binary(max_size=120))
@settings(max_examples=150, deadline=None)
def test_any_bytes_named_json_and_csv(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, head in (("a.json", b"["), ("a.csv", b"text\n"), ("a.arrow", b"ARROW1\0\0"), ("b.json", b"")):
        ingest(write(folder, name, head + data))


TABLE = pa.table(
    {"id": [str(n) for n in range(500)], "text": [f"text {n}" for n in range(500)], "n": list(range(500))}
)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_arrow_files_and_streams(tmp_path: Path, compression: str) -> None:
    pyarrow.feather.write_feather(TABLE, tmp_path / "a.feather", compression=compression, chunksize=100)
    codec = None if compression == "uncompressed" else compression
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, 100)
    (tmp_path / "b.arrow.gz").write_bytes(gzip.compress((tmp_path / "a.arrow").read_bytes()))
    (tmp_path / "unnamed").write_bytes((tmp_path / "a.feather").read_bytes())
    for name in ("a.feather", "a.arrow", "b.arrow.gz", "unnamed"):
        result = ingest(tmp_path / name)
        assert result.texts == TABLE["text"].to_pylist() and not result.decisions, name
        assert result.docs[7]["metadata"] == '{"n":7}' and result.locators()[7] == f"{name}#7"


def test_an_arrow_file_cut_short_or_damaged(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(TABLE, tmp_path / "a.feather", compression="uncompressed", chunksize=100)
    data = bytearray((tmp_path / "a.feather").read_bytes())
    (tmp_path / "cut.feather").write_bytes(data[: len(data) * 6 // 10])
    result = ingest(tmp_path / "cut.feather")
    assert 200 <= len(result.docs) <= 400 and result.rules == ["ingest.truncated"]
    assert result.texts == TABLE["text"].to_pylist()[: len(result.docs)]
    dictionary = TABLE.set_column(1, "text", TABLE["text"].dictionary_encode())
    pyarrow.feather.write_feather(dictionary, tmp_path / "b.feather", compression="uncompressed")
    assert ingest(tmp_path / "b.feather").texts == TABLE["text"].to_pylist()
    wrong = ingest(tmp_path / "b.feather", text_column="content")
    assert wrong.rules == ["ingest.no_text"] and "did you mean" in wrong.decisions[0]["detail"]


def test_rows_behind_the_end_of_an_arrow_file_are_named(tmp_path: Path) -> None:
    """An end mark in place of a message, or nothing where one should begin, ends the stream for pyarrow without a word."""
    options = pa.ipc.IpcWriteOptions(compression=None)
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        path = tmp_path / "a.arrow"
        with new(str(path), TABLE.schema, options=options) as writer:
            writer.write_table(TABLE, 100)
        data = path.read_bytes()
        heads = [at for at in range(0, len(data), 8) if data[at : at + 4] == b"\xff\xff\xff\xff"]
        path.write_bytes(data[: heads[3] + 4] + b"\0\0\0\0" + data[heads[3] + 8 :])
        result = ingest(path)
        assert len(result.docs) == 200 and result.rules == ["ingest.damaged"]
        assert "behind record batch 1" in result.decisions[0]["detail"]
        path.write_bytes(data[: heads[3] + 3])
        result = ingest(path)
        assert len(result.docs) == 200 and result.rules == ["ingest.truncated"]
    with pa.ipc.new_file(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE, 100)
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\xff\xff\xff\xff\0\0\0\0")])
    assert ingest(path).rules == ["ingest.truncated"]


NESTED = [
    {
        "id": "1",
        "message": {"body": "one", "lang": "en"},
        "parts": [{"say": "a"}, {"say": "b"}, {}],
        "list": ["x", "y"],
    },
    {"id": "2", "message": {"body": "two", "lang": "de"}, "parts": [{"say": "c"}], "list": ["z"]},
    {"id": "3", "message": {"lang": "fr"}, "parts": [], "list": []},
]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "a.arrow"])
def test_nested_fields_by_their_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(NESTED), path)
    elif name.endswith("arrow"):
        table = pa.Table.from_pylist(NESTED)
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text("\n".join(map(json.dumps, NESTED)) if name == "a.jsonl" else json.dumps(NESTED))
    result = ingest(path, text_column="message.body")
    assert result.texts == ["one", "two"] and [doc["source_id"] for doc in result.docs] == ["1", "2"]
    assert json.loads(result.docs[0]["metadata"])["message"]["lang"] == "en"
    assert "body" not in json.loads(result.docs[0]["metadata"])["message"]
    assert len(result.decisions) == 1
    joined = ingest(path, text_column="parts.say", text_join=" | ")
    assert joined.texts == ["a | b", "c"]
    assert ingest(path, text_column="list", text_join="\n").texts == ["x\ny", "z"]
    unjoined = ingest(path, text_column="list")
    assert not unjoined.docs and set(unjoined.rules) == {"ingest.text_type"}


def test_a_field_whose_name_has_a_dot_goes_first(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", json.dumps({"a.b": "flat", "a": {"b": "deep"}}))
    assert ingest(path, text_column="a.b").texts == ["flat"]


def test_a_nested_text_is_suggested_by_its_path(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.jsonl", json.dumps({"id": "x", "message": {"body": "a long text of a message"}})
    )
    assert "did you mean 'message.body'?" in ingest(path).decisions[0]["detail"]
