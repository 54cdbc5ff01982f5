"""Evaluation files as they are distributed, and the errors for those that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.decontaminate.evalsets import find_files, records
from corpusmill.pipeline.decontaminate.items import read_items

ROWS = [{"question": "What?", "answer": "That"}, {"question": "Qui, lui?", "answer": 'il "y" a'}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
FILES: dict[str, bytes] = {
    "a.jsonl": LINES,
    "a.ndjson": b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n\n"),
    "a.jsonl.gz": gzip.compress(LINES[:40]) + gzip.compress(LINES[40:]),
    "a.jsonl.bz2": bz2.compress(LINES),
    "a.jsonl.xz": lzma.compress(LINES),
    "a.JSONL.zst": zstandard.compress(LINES),
    "b.jsonl.zst": zstandard.compress(LINES[:40])
    + b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    + zstandard.compress(LINES[40:]),
    "a.json": json.dumps({"data": ROWS}).encode(),
    "b.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "a.csv": b'question,answer\nWhat?,That\n"Qui, lui?","il ""y"" a"\n',
    "a.tsv": b'question\tanswer\nWhat?\tThat\nQui, lui?\t"il ""y"" a"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_every_form_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    (source,) = find_files([str(tmp_path)])
    assert records(source) == ROWS
    assert source.stem == name[0]


def test_parquet_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "set.parquet")
    assert records(find_files([str(tmp_path / "set.parquet")])[0]) == ROWS


@pytest.mark.parametrize(
    ("text", "items"),
    [("one\ntwo\n\n  \nthree", ["one\ntwo", "three"]), ("one\ntwo\n", ["one", "two"]), ("one", ["one"])],
)
def test_text_is_cut_at_blank_lines_or_else_at_lines(tmp_path: Path, text: str, items: list[str]) -> None:
    (tmp_path / "set.txt").write_text(text)
    assert [row["text"] for row in records(find_files([str(tmp_path / "set.txt")])[0])] == items


def test_folders_and_globs(tmp_path: Path) -> None:
    for name in ("x/a.jsonl", "x/y/b.csv", "x/README.md", "x/SOURCE.txt", "z.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(LINES)

    (tmp_path / "x/empty.jsonl").touch()  # beside others: a task of which no item was scored

    def names(*against: str) -> list[str]:
        return [source.file.name for source in find_files([str(tmp_path / place) for place in against])]

    assert names("x") == ["a.jsonl", "b.csv"]
    assert names("*.jsonl", "z.jsonl", "x/SOURCE.txt") == ["SOURCE.txt", "z.jsonl"]
    assert names("**/*.csv") == ["b.csv"]


MISTAKES: dict[str, tuple[bytes, str]] = {
    "empty.jsonl": (b"", "holds no evaluation items"),
    "blank.txt": (b"\n \n", "holds no evaluation items"),
    "head.csv": (b"question,answer\n", "holds no evaluation items"),
    "half.jsonl": (b'{"question": "a"}\n{"question": ', r"half\.jsonl:2: not JSON"),
    "list.jsonl": (b"[1]\n", r"list\.jsonl:1: must be a JSON object, is list"),
    "value.json": (b"[1, 2]", "must be a JSON array of objects"),
    "cut.jsonl.gz": (gzip.compress(LINES)[:-9], "damaged"),
    "no.jsonl.gz": (LINES, "damaged"),
    "no.jsonl.zst": (LINES, "damaged"),
    "cut.jsonl.zst": (zstandard.compress(LINES)[:-5], "damaged"),
    "cut.jsonl.bz2": (bz2.compress(LINES)[:-5], "damaged"),
    "cut.jsonl.xz": (lzma.compress(LINES)[:-5], "damaged"),
    "no.jsonl.xz": (LINES, "damaged"),
    "no.jsonl.bz2": (LINES, "damaged"),
    "no.parquet": (LINES, "not Parquet"),
    "latin.jsonl": ('{"question": "é"}'.encode("latin-1"), "not UTF-8 at byte 14"),
    "quote.csv": (b'question\n"a\n', "not CSV"),
    "fields.jsonl": (b'{"prmpt": "a"}', r"none of its fields \(prmpt\) is known.*--fields question=FIELD"),
    "null.jsonl": (b'{"question": null}', "its fields hold no text"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_file_that_cannot_be_used_is_reported_in_a_line(tmp_path: Path, name: str) -> None:
    data, message = MISTAKES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        read_items(find_files([str(tmp_path / name)]), [])
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_changes_meanwhile_is_reported(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_bytes(LINES)
    (source,) = find_files([str(tmp_path / "set.jsonl")])
    (tmp_path / "set.jsonl").write_bytes(LINES + LINES)
    with pytest.raises(UserError, match="changed while it was read"):
        records(source)
    (tmp_path / "set.jsonl").unlink()
    with pytest.raises(UserError, match="removed before it could be read"):
        records(source)


def test_what_is_not_there_is_reported(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    for place, message in (
        ("nothing.jsonl", "no such file"),
        ("*.gz", "no such file"),
        ("", "no such file"),
        ("model.bin", "unknown file type"),
    ):
        with pytest.raises(UserError, match=message):
            find_files([str(tmp_path / place)])


@given(st.binary(max_size=60), st.sampled_from([*FILES, "a.txt", "a.parquet", "a.md.xz"]))
def test_any_bytes_are_items_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    place = tmp_path_factory.getbasetemp() / name
    place.write_bytes(data)
    try:
        assert read_items(find_files([str(place)]), [])
    except UserError as error:
        assert "\n" not in str(error)
