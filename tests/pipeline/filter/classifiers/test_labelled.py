"""Labelled files of the user's own: what is read, and what is a mistake, with its place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers.labelled import read_identity, read_labelled


def broken_gzip() -> bytes:
    data = bytearray(gzip.compress(b'{"text": "a b c", "label": "y"}\n' * 500))
    data[30] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x", "lable": "y"}\n', "record 1 has no 'label'; did you mean 'lable'?"),
        ("a.jsonl", b"[1]\n", "record 1 has no 'text'"),
        ("a.jsonl", b"{broken\n", "cannot be read"),
        (
            "a.jsonl",
            b'{"text": ["x"], "label": "y"}\n',
            "record 1: its 'text' is not a text but of type list",
        ),
        ("a.jsonl", b'{"text": NaN, "label": "y"}\n', "record 1: its 'text' is not a text but of type float"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("a.jsonl.gz", broken_gzip(), "cannot be read"),
        ("a.csv", b"\xff\xfe", "cannot be read"),
        ("a.csv", b"text,label\nonly one\n", "record 1 has no 'label'"),
        ("a.csv", b"text,label\nfree, buy now,y\n", "record 1 has more fields than the first line"),
        ("a.csv", b"", "holds no records"),
        ("a.jsonl", b"", "holds no records"),
    ],
)
def test_bad_labelled_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        read_labelled(tmp_path / name, "text", "label", ["y"])
    assert message in str(error.value) and name in str(error.value)
    assert "did you mean 'label'" not in str(error.value)  # the one that it has not
    with pytest.raises(UserError, match="no such file"):
        read_labelled(tmp_path / "absent.csv", "text", "label", ["y"])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_each_kind_of_file(ending: str, tmp_path: Path) -> None:
    mark = "\t" if "tsv" in ending else ","
    table = f'\ufefftext{mark}label\r\n"a{mark} b\nc"{mark}1\r\nd{mark}0\r\n'
    lines = '{"text": "a' + mark + ' b\\nc", "label": 1}\n\n{"text": "d", "label": 0, "score": NaN}\n'
    content = (lines if "jsonl" in ending else table).encode()
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    found = read_labelled(path, "text", "label", ["1"], "CC0")
    assert found.texts == [f"a{mark} b\nc", "d"] and found.positive == [True, False]
    assert found.licence == "CC0" and found.name == path.name.removesuffix(".gz")


def test_phrases_are_the_template_set_or_a_file_like_the_others(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("toxicity,phrase,text,label\ntoxic,a,c,n\nnontoxic,b,d,y\n")
    (tmp_path / "own.csv").write_text("text,label\nc,n\nd,y\n")
    for name, texts, positive in (("set", ["a", "b"], [True, False]), ("own", ["c", "d"], [False, True])):
        found = read_identity(tmp_path / f"{name}.csv", "text", "label", ["y"])
        assert (found.texts, found.positive) == (texts, positive)


def test_half_a_surrogate_pair_becomes_what_ingest_makes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a \\ud83d b \\ud83d\\ude00", "label": "y"}\n')
    assert read_labelled(path, "text", "label", ["y"]).texts == ["a \ufffd b \U0001f600"]
