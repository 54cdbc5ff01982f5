"""JSON Lines by the kernel against the same lines one by one in Python: nothing that is published may differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.ingest import raw_file
from corpusmill.pipeline.ingest.lines import lines, pieces
from corpusmill.pipeline.ingest.readers import json_scan, jsonl
from corpusmill.pipeline.ingest.readers.json_lines import Columns
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.schemas.recipe import Recipe

PIECES = ["a", "b c", "é", "語", "😀", "\x00", "\t", "\x7f", "\u2028", "Ã¤", "\\n", "\\\\", '\\"', "\\/", "\\u00e9", "\\u0000", "\\ud83d\\ude00",
          "\\ud800", "\\udc00\\ud800", "\\uD83D", "\\x", "\\u12g4", "\\", " " * 9, "plain text of more than eight bytes "]  # fmt: skip
STRINGS = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda parts: f'"{"".join(parts)}"')
SCALARS = st.sampled_from(
    ["null", "true", "false", "0", "1", "-1", "-0", "01", "1.5", "1e400", "1E2", "9" * 18, "9" * 19, "9" * 40, "NaN", "-Infinity", "nul", "", '""',
     "1 2", '1"x"', "]", "}"],
)  # fmt: skip
VALUES = st.recursive(
    SCALARS | STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(STRINGS, inner), max_size=2).map(
            lambda items: "{" + ",".join(f"{key}:{value}" for key, value in items) + "}"
        )
        | inner.map(lambda value: f"[{value}}}")
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(["id", "url", "date", "m", "te\\u0078t", "x y", "texts", "tex", "é", ""])
MEMBERS = st.tuples(KEYS, VALUES) | st.tuples(st.just("text"), STRINGS) | st.tuples(KEYS, STRINGS)
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r", "\x0b"])


@st.composite
def objects(draw: st.DrawFn) -> str:
    members = draw(st.lists(MEMBERS, max_size=4))
    if draw(st.integers(0, 9)):
        members.insert(
            draw(st.integers(0, len(members))),
            ("text", '"' + draw(st.sampled_from(["the text", "", "ü", "x" * 300])) + '"'),
        )
    space = draw(SPACES)
    inside = f"{space},{space}".join(f'"{key}"{space}:{space}{value}' for key, value in members)
    return f"{draw(SPACES)}{{{inside}{draw(st.sampled_from([''] * 20 + [',', '}']))}}}{draw(SPACES)}"


LINES = objects() | st.sampled_from(
    ["", " ", "\r", "[]", "{}", "1", "x", "{", "\ufeff", "\ufeff{}", '{"text": "a"} {"text": "b"}']
)
MUTATIONS = st.lists(st.tuples(st.integers(0, 1 << 16), st.sampled_from([0, 9, 10, 34, 92, 123, 125, 0x80, 0xC3, 0xFF, 0xED])), max_size=2)  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> bytes:
    found = draw(st.lists(LINES, min_size=1, max_size=12)) * draw(st.sampled_from([1, 1, 1, 3, 30]))
    data = bytearray(draw(st.sampled_from(["\n", "\r\n"])).join(found).encode("utf-8", "surrogatepass"))
    data += draw(st.sampled_from([b"", b"\n"]))
    for place, byte in draw(MUTATIONS):
        if data:
            data[place % len(data)] = byte
    return bytes(data)


def outcomes(path: Path, source: dict[str, Any], params: dict[str, Any]) -> list[tuple[str, Outcome, int]]:
    recipe = {"name": "t", "sources": {"s": {"paths": [str(path)], **source}}, "ingest": params}
    stage = Ingest(Recipe.model_validate(recipe))
    return [found for unit in stage.units() for found in stage.read(unit)]


def assert_same(path: Path, source: dict[str, Any], params: dict[str, Any]) -> None:
    by_kernel = outcomes(path, source, params)
    with mock.patch.object(Columns, "of", return_value=None):
        one_by_one = outcomes(path, source, params)
    assert len(by_kernel) == len(one_by_one)
    for (name, found, size), (wanted_name, wanted, wanted_size) in zip(by_kernel, one_by_one, strict=True):
        assert (name, size, found.counters) == (wanted_name, wanted_size, wanted.counters)
        assert found.kept.equals(wanted.kept) and found.kept.schema.equals(wanted.kept.schema)
        assert found.decisions.equals(wanted.decisions)


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with (
        mock.patch.object(raw_file, "READ_BYTES", 1 << 8),
        mock.patch("corpusmill.pipeline.ingest.streams.READ_BYTES", 1 << 8),
    ):
        yield


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(files(), st.sampled_from([{}, {"partition_mb": 0.0003, "max_record_mb": 0.0002}, {"partition_mb": 0.001, "min_chars": 4}]), st.sampled_from([{}, {"id_column": "m", "url_column": "é"}, {"text_column": "x y"}]))  # fmt: skip
def test_the_same_is_published(
    tmp_path: Path, small_blocks: None, data: bytes, params: dict[str, Any], source: dict[str, Any]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert_same(path, {"format": "jsonl", **source}, params)


def test_cuts_and_batches_are_the_same(tmp_path: Path, small_blocks: None) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(9_000):
        text = "naïve " * int(rng.integers(0, 9)) if number % 3 else "word " * int(rng.integers(0, 90))
        row: dict[str, Any] = {"text": text + "Ã¤" * (number % 50 == 0), "id": number, "n": number / 7}
        row |= {"long": "y" * 20_000} if number % 997 == 0 else {}
        rows.append(orjson.dumps(row) if number % 83 else b"no JSON")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(rows))
    for megabytes in (0.01, 0.3, 64):
        assert_same(path, {}, {"partition_mb": megabytes})


@pytest.mark.parametrize("good_first", [True, False])
def test_reading_ends_at_a_good_line_too(tmp_path: Path, good_first: bool) -> None:
    path = tmp_path / "a.jsonl"
    good = b'{"text": "good"}\n' * 3
    path.write_bytes(good * good_first + b"bad\n" * jsonl.GIVE_UP_AFTER + b"\n" + good * 9)
    assert_same(path, {}, {})
    assert outcomes(path, {}, {})[0][1].counters["quarantined/ingest.not_jsonl"] == 1


@settings(max_examples=1_000)
@given(st.lists(st.text(st.sampled_from("ab\n"), max_size=9).map(str.encode), max_size=9), st.integers(1, 20))
@example([b"abab", b"\nb\n", b"a"], 3)  # the newline of a long line is the first byte of a block
def test_pieces_are_the_lines(blocks: list[bytes], limit: int) -> None:
    class Blocks:
        def __init__(self) -> None:
            self.position, self.left = 0, [block for block in blocks if block]

        def read(self) -> bytes:
            return self.left.pop(0) if self.left else b""

    found: list[tuple[int, bytes | None, int]] = []
    for offset, data, size, many in pieces(Blocks(), limit):  # type: ignore[arg-type]
        if not many or data is None:
            found.append((offset, data, size))
            continue
        for line in data[:-1].split(b"\n"):
            found.append((offset, line if len(line) <= limit else None, len(line)))
            offset += len(line) + 1
    *whole, last = b"".join(blocks).split(b"\n")
    expected: list[tuple[int, bytes | None, int]] = []
    offset = 0
    for line in [*whole, *([last] if last else [])]:
        expected.append((offset, line if len(line) <= limit else None, len(line)))
        offset += len(line) + 1
    assert found == expected
    assert list(lines(Blocks(), limit)) == expected  # type: ignore[arg-type]


@given(st.text(max_size=40), st.booleans(), st.integers(0, 9))
def test_strings_are_those_of_json(text: str, ascii_only: bool, before: int) -> None:
    line = json.dumps({"m": " " * before, "text": text, "url": text}, ensure_ascii=ascii_only)
    try:
        data = np.frombuffer((line + "\n").encode(), np.uint8)
    except UnicodeEncodeError:
        return
    names, bounds = np.frombuffer(b"textidurldate", np.uint8), np.array([0, 4, 6, 9, 13])
    buffers = tuple(np.zeros(len(data), np.uint8) for _ in range(5))
    found = np.zeros((1, json_scan.COLUMNS), np.int64)
    json_scan.scan(data, len(data), names, bounds, buffers, found)
    assert found[0, json_scan.KIND] == json_scan.DOCUMENT
    assert buffers[0][: found[0, json_scan.TEXT]].tobytes() == text.encode()
    assert buffers[2][: found[0, json_scan.URL]].tobytes() == text.encode()
    assert found[0, json_scan.SIZE] == len(text) * (1 if text.isascii() else 3)


def test_ordinary_lines_are_left_to_the_kernel() -> None:
    """The lines that most files hold: if Python took them, the result would be the same and only slower."""
    line = b'{"id": 7, "text": "a \\u00e9 \\"b\\" \xc3\xa9", "url": null, "date": "2020", "meta": {"a": [1, "]}"]}}\n'
    columns = Columns([b"text", b"id", b"url", b"date"], 1 << 20)
    (run,) = columns.runs(line * 5)
    assert run.table is not None and run.sizes is not None and len(run.table) == 5
    assert run.table.slice(4).to_pylist() == [
        {"text": 'a é "b" é', "source_id": "7", "url": None, "date": "2020",
         "metadata": '{"url":null,"meta":{"a":[1,"]}"]}}'}
    ]  # fmt: skip
