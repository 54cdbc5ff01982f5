"""Samples as webdataset groups them; what is wrong with those that are no documents."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.train.data.texts.documents import MAX_TEXT, Sample, foreign, ours, sample, samples
from corpusmill.train.data.texts.tar import Member, TarReader
from tests.train.data.texts.helpers import tar_of


def found(members: list[tuple[str, bytes]], wanted=foreign) -> list[Sample]:
    data = tar_of(members, tarfile.PAX_FORMAT)
    return list(samples(TarReader(io.BytesIO(data), len(data), "x.tar").members(wanted)))


def test_text_comes_from_txt_then_json() -> None:
    assert found(
        [
            ("a.json", b'{"text": "no"}'), ("a.txt", "é\r\n".encode()), ("a.jpg", b"\xff"), ("b.json", b'{"text": "yes"}'),
            ("d/c.TXT", b""), ("README", b"x"), (".hidden.txt", b"x"), ("d/._c.txt", b"x"), ("e.cls.txt", b"x"),
        ]
    ) == [Sample("a", "é\r\n"), Sample("b", "yes"), Sample("d/c", ""),
          Sample("e", "", "no text: neither .txt nor .json")]  # fmt: skip
    key = "0" * 32
    assert found([(f"{key}.txt", b"t"), (f"{key}.json", b"not json")], ours) == [Sample(key, "t")]


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("a.txt", b"ab\xff", "not UTF-8: byte 2 of .txt"),
        ("a.txt", b"\xed\xa0\x80", "not UTF-8: byte 0 of .txt"),
        ("a.json", b'{"text": "\xff"}', "not UTF-8: byte 10 of .json"),
        ("a.json", b'{"text": 1}', "no text: no string 'text' in its .json"),
        ("a.json", b'["text"]', "no text: no string 'text' in its .json"),
        ("a.json", b'{"other": "x"}', "no text: no string 'text' in its .json"),
        ("a.json", b'{"text": "x"', "its .json cannot be read"),
        ("a.json", b"[" * 100_000, "its .json cannot be read"),
        ("a.json", b'{"text": "x", "n": ' + b"9" * 5000 + b"}", "its .json cannot be read"),
        ("a.json", rb'{"text": "ab\ud800"}', "not Unicode: half a surrogate pair at character 2"),
        ("a.jpg", b"\xff", "no text: neither .txt nor .json"),
    ],
)
def test_what_is_no_document_says_why(name: str, data: bytes, wrong: str) -> None:
    assert found([(name, data), ("b.txt", b"good")]) == [Sample("a", "", wrong), Sample("b", "good")]


def test_two_texts_of_a_key_are_no_document() -> None:
    assert found([("a.txt", b"1"), ("a.txt", b"2")]) == [Sample("a", "", "2 members .txt")]


def test_a_text_that_is_too_large_is_not_read() -> None:
    assert (
        not foreign("a.txt", MAX_TEXT + 1) and not ours("a.txt", MAX_TEXT + 1) and foreign("a.txt", MAX_TEXT)
    )
    assert sample("a", [Member("a.txt", MAX_TEXT + 1)]).wrong == (
        f".txt of {MAX_TEXT + 1} bytes, more than {MAX_TEXT}"
    )


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "x/a", "./a", "x.y/b", "README"]), st.sampled_from(["txt", "cls", "seg.png"])),
                max_size=12))  # fmt: skip
def test_keys_are_those_of_webdataset(parts: list[tuple[str, str]]) -> None:
    webdataset = pytest.importorskip("webdataset.tariterators")
    members = [(key if key == "README" else f"{key}.{extension}", b"t") for key, extension in parts]
    plain = [{"fname": name, "data": data} for name, data in members]
    seen: list[str] = []
    for name in (entry["fname"] for entry in plain):
        key, _ = webdataset.base_plus_ext(name)
        if key is not None and seen[-1:] != [key]:
            seen.append(key)
    assert [one.key for one in found(members)] == seen


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_through(text: str) -> None:
    members = [("a.txt", text.encode()), ("b.json", json.dumps({"text": text}).encode())]
    assert found(members) == [Sample("a", text), Sample("b", text)]
