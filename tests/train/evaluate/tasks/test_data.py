"""Rows of files: every kind, damaged rows counted, arbitrary bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import sha256
from corpusmill.schemas.tasks import TaskData
from corpusmill.train.evaluate.tasks.data import files_of, json_lines, parsed, read_rows
from corpusmill.train.evaluate.tasks.read import find_task

ROWS = [{"q": "a, b", "a": "é"}, {"q": "c", "a": "d"}]
KINDS = {
    "r.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "r.json": json.dumps(ROWS),
    "r.csv": 'q,a\r\n"a, b",é\r\nc,d\r\n',
    "r.tsv": "q\ta\na, b\té\nc\td\n",
}


@pytest.mark.parametrize("name", [*KINDS, *(f"{name}.gz" for name in KINDS)])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_kind_gives_the_same_rows(tmp_path: Path, name: str, mark: str) -> None:
    data = (mark + KINDS[name.removesuffix(".gz")]).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_rows([str(tmp_path / name)])
    assert [row.columns for row in found.rows] == ROWS and not found.skipped
    assert [row.number for row in found.rows] == [0, 1]


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "r.parquet")
    assert [row.columns for row in read_rows([str(tmp_path / "r.parquet")]).rows] == ROWS


def test_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo \n")
    assert [row.columns for row in read_rows([str(tmp_path / "a.txt")]).rows] == [
        {"text": "one"},
        {"text": "two "},
    ]


def test_damaged_rows_are_counted_and_keep_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n[1]\n{"a": \n\n"x"\n{"a": "\xff"}\n{"a": 2}\n')
    (tmp_path / "b.csv").write_text("a,b\n1,2\n3\n4,5,6\n7,8\n")
    found = read_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "b.csv")])
    assert [(row.number, row.columns["a"]) for row in found.rows] == [(0, 1), (5, 2), (6, "1"), (9, "7")]
    assert found.skipped == {
        "not JSON": 2,
        "not a JSON object": 2,
        "not as many fields as the heading has": 2,
    }


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    first = read_rows([str(tmp_path / "a.jsonl")]).hash
    (tmp_path / "a.jsonl").write_text('{"a": 2}\n')
    assert read_rows([str(tmp_path / "a.jsonl")]).hash != first


@given(st.binary(max_size=300))
def test_any_bytes_give_rows_or_reasons(data: bytes) -> None:
    found = list(json_lines(data))
    assert len(found) == sum(1 for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip())
    assert all(isinstance(one, dict | str) for one in found)
    for name in ("a.json", "a.csv", "a.tsv", "a.txt", "a.jsonl.gz", "a.parquet", "a.bin"):
        try:
            assert all(isinstance(one, dict | str) for one in parsed(data, name))
        except (UserError, WorkError) as error:
            assert str(error).startswith("a.") and "\n" not in str(error)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 100)[:-9])
    (tmp_path / "a.csv").write_bytes(b"a\n\xff\n")
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for name, error, message in (
        ("gone.jsonl", UserError, "no such file"), ("a.jsonl.gz", WorkError, "damaged gzip"),
        ("a.csv", UserError, "not UTF-8 at byte 2"), ("a.json", UserError, "not a list of objects"),
        ("a.parquet", WorkError, "not a Parquet file"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            read_rows([str(tmp_path / name)])


def test_what_was_fetched_is_checked(tmp_path: Path) -> None:
    data = b'{"a": 1}\n'
    record = TaskData(
        task="t", file="t.jsonl", source="hf://x", files=[], rows=1, bytes=len(data), sha256=sha256(data), licence="",
        citation="",
    )  # fmt: skip
    (tmp_path / "t.source.json").write_bytes(record.to_json())
    (tmp_path / "t.jsonl").write_bytes(data)
    assert len(read_rows([str(tmp_path / "t.jsonl")]).rows) == 1
    (tmp_path / "t.jsonl").write_bytes(b'{"a": 2}\n')
    with pytest.raises(
        UserError, match=r"t\.jsonl: is not what was fetched .t\.source\.json has another checksum"
    ):
        read_rows([str(tmp_path / "t.jsonl")])


def test_where_files_are(tmp_path: Path) -> None:
    found = find_task("gsm8k")
    (tmp_path / "gsm8k.jsonl").touch()
    with pytest.raises(UserError, match="gsm8k: where are its rows.*--data gsm8k=FILE, or fetch them"):
        files_of(found, {}, [])
    with pytest.raises(
        UserError, match=r"where are its examples.*--data gsm8k\.fewshot=FILE.*--num-fewshot 0"
    ):
        files_of(found, {}, [str(tmp_path)])
    (tmp_path / "gsm8k.fewshot.csv.gz").touch()
    files = files_of(found, {}, [str(tmp_path)])
    assert files.rows == [str(tmp_path / "gsm8k.jsonl")]
    assert files.examples == [str(tmp_path / "gsm8k.fewshot.csv.gz")]
    given = {"gsm8k": ["x.jsonl"], "gsm8k.fewshot": ["y.jsonl"]}
    assert files_of(found, given, [str(tmp_path)]) == (["x.jsonl"], ["y.jsonl"])
