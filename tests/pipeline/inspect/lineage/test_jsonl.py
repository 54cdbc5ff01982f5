"""Where characters lie in a line of JSON, on any object: each place parsed by itself gives its character."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.pipeline.inspect.lineage.raw import field_bytes

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\b\f\n\r\t\x00é漢😀\u2028'), max_size=30
)


@given(
    texts,
    st.dictionaries(st.text(max_size=4), values, max_size=4),
    st.booleans(),
    st.sampled_from(["", " ", "\t \r"]),
)
@example('\\"text":"x', {"a": {"text": "no"}, "b": ['"text"']}, True, " ")
def test_every_character_lies_where_it_should(
    text: str, others: dict[str, Any], ascii_only: bool, space: str
) -> None:
    others.pop("text", None)
    record = {**others, "text": text, "after": None}
    separators = (f"{space},{space}", f"{space}:{space}")
    line = f"{space}{json.dumps(record, ensure_ascii=ascii_only, separators=separators)}{space}"
    if any("\ud800" <= char <= "\udfff" for char in line):
        return
    data = line.encode()
    edges = field_bytes(data, "text")
    assert edges is not None and len(edges) == len(text) + 1
    for i, char in enumerate(text):
        part = data[edges[i] : edges[i + 1]]
        assert json.loads(b'"' + part + b'"') == char


def test_escapes_count_as_they_are_written() -> None:
    data = b'{"text": "a\\ud83d\\ude00\\/b", "id": 1}'
    edges = field_bytes(data, "text")
    assert edges is not None and edges.tolist() == [10, 11, 23, 25, 26]


def test_the_last_field_of_a_name_counts() -> None:
    edges = field_bytes(b'{"text": "one", "text": "second"}', "text")
    assert edges is not None and len(edges) == 7 and edges[0] == 25


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{", b'{"text": 1}', b'{"text": "a', b'{"text" "a"}', b'{"other": "a"}', b"\xff{}"]
)
def test_lines_without_it(line: bytes) -> None:
    assert field_bytes(line, "text") is None


PIECES = [b"a", b"\\n", b"\\u00e9", b"\xc3\xa9", b'"', b'","text":"', b"\\", b"\xff", b"\x00"]


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(PIECES), max_size=8).map(
        lambda pieces: b'{"text":"' + b"".join(pieces) + b'"}'
    )
)
@example(b'{"text":"a"}')
def test_any_bytes(line: bytes) -> None:
    edges = field_bytes(line, "text")
    assert edges is None or edges[-1] <= len(line)
