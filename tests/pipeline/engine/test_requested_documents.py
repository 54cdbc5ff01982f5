"""Files that name documents, in every form that is taken."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.ids import doc_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.requested_documents import COLUMNS, is_id, matches, read_names


def test_lines(tmp_path: Path) -> None:
    root = Folder(tmp_path)
    (root / "list").write(b"# a comment\n\nabc\n  http://x.org/a \nabc\n")
    assert read_names(root / "list") == ("abc", "http://x.org/a")
    with pytest.raises(UserError, match="0 documents named"):
        (root / "empty").write(b"# nothing\n")
        read_names(root / "empty")
    with pytest.raises(UserError, match="not found"):
        read_names(root / "missing")


def test_objects_and_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"url": "u", "reason": "x"}\n"plain"\n\n{"id": 7}\n{"doc_id": "", "locator": "l"}\n'
    )
    assert read_names(Folder(tmp_path / "a.jsonl")) == ("u", "plain", "7", "l")
    (tmp_path / "blank.jsonl").write_text('{"doc_id": " ", "url": " u "}\n')
    assert read_names(Folder(tmp_path / "blank.jsonl")) == ("u",)
    (tmp_path / "a.csv").write_text('\ufeffreason,url,source_id\n"a, b",,s\nx,u,\n')
    assert read_names(Folder(tmp_path / "a.csv")) == ("s", "u")
    (tmp_path / "a.tsv").write_text("doc_id\twhy\nabc\tx\n")
    assert read_names(Folder(tmp_path / "a.tsv")) == ("abc",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '"x"\n{"reason": "y"}\n', "line 2: names no document"),
        ("a.jsonl", "[1]\n", "line 1: names no document"),
        ("a.jsonl", '"x"\n"  "\n', "line 2: names no document"),
        ("a.jsonl", '{"url": ["x"]}\n', "line 1: names no document"),
        ("a.jsonl", '"x"\n{"url"\n', "line 2: not JSON"),
        ("a.csv", "why,who\na,b\n", "line 1: no header"),
        ("a.csv", "url\nu\n,\n", "line 3: names no document"),
        ("a.csv", "url,why\nu,\n ,x\n", "line 3: names no document"),
        ("a.csv", "", "line 1: no header"),
    ],
)
def test_a_record_that_names_nothing_is_reported(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read_names(Folder(tmp_path / name))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NAMES = st.lists(TEXT.map(str.strip).filter(bool), min_size=1, max_size=8)


@given(NAMES)
def test_any_names_come_back_from_objects_and_rows(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("names")
    wanted = tuple(dict.fromkeys(names))
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"url": name}, ensure_ascii=False) + "\n" for name in names)
    )
    assert read_names(Folder(folder / "a.jsonl")) == wanted
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["url"], *([name] for name in names)])
    assert read_names(Folder(folder / "a.csv")) == wanted


@given(st.binary(max_size=300), st.sampled_from(["x", "x.jsonl", "x.csv", "x.tsv"]))
def test_any_bytes_name_documents_or_are_reported(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    file = Folder(tmp_path_factory.mktemp("bytes")) / name
    file.write(data)
    try:
        found = read_names(file)
    except UserError as error:
        assert str(error).startswith(str(file)) and "\n" not in str(error)
    else:
        assert found and all(found)


def test_rows_are_matched_by_any_of_their_names() -> None:
    ids = [doc_id("web", str(i)) for i in range(5)]
    table = pa.table(
        {
            "doc_id": pa.array(ids, pa.binary(16)), "source_id": ["own", None, None, None, None],
            "locator": ["a#0", "a#1", "a#2", "a#3", "a#4"], "url": [None, None, "http://x.org/", None, None],
        }
    )  # fmt: skip
    assert set(table.column_names) == set(COLUMNS)
    found = matches(table, ["own", ids[1].hex(), "http://x.org/", "a#3", "nobody"])
    assert found.to_pylist() == [True, True, True, True, False]
    assert is_id(ids[0].hex()) and not is_id("x" * 32) and not is_id(ids[0].hex().upper())
