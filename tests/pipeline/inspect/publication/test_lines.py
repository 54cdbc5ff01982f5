"""Rows as JSON lines, held against Python's own reader of JSON on any text."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.inspect.publication import lines
from corpusmill.pipeline.inspect.publication.lines import hex_ids, json_lines
from corpusmill.schemas.tables import ID

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ROWS = st.lists(st.fixed_dictionaries({"text": TEXT, "url": TEXT | st.none()}), max_size=20)
SCHEMA = pa.schema([("text", pa.large_string()), ("url", pa.string())])


@given(ROWS, st.integers(0, 5))
def test_lines_are_the_rows(rows: list[dict[str, str | None]], start: int) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA).slice(start)
    written = b"".join(bytes(piece) for piece in json_lines(table)).decode()
    assert written.count("\n") == len(table), "no line is broken by its text"
    assert [json.loads(line) for line in written.split("\n")[:-1]] == table.to_pylist()


def test_pieces_do_not_show() -> None:
    rows = [{"text": f'{n}\n"', "url": None if n % 3 else "é"} for n in range(lines.ROWS + 7)]
    one = pa.Table.from_pylist(rows, schema=SCHEMA)
    cut = pa.concat_tables([one.slice(0, 11), one.slice(11)])
    pieces = [bytes(piece) for piece in json_lines(one)]
    assert len(pieces) == 2 and b"".join(pieces) == b"".join(bytes(piece) for piece in json_lines(cut))


@given(st.lists(st.binary(min_size=16, max_size=16) | st.none(), max_size=20), st.integers(0, 5))
def test_ids_in_hex(ids: list[bytes | None], start: int) -> None:
    column = pa.chunked_array([pa.array(ids, ID), pa.array(ids[:1], ID)]).slice(start)
    wanted = [None if one is None else one.hex() for one in (*ids, *ids[:1])][start:]
    assert hex_ids(column).to_pylist() == wanted
