"""Cutting: what is left, what the ledger records, and that texts stay valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.stage import cut
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Outcome, check_conservation
from corpusmill.schemas.tables import SPANS
from tests.pipeline.dedup.helpers import Doc, docs_of, partitions, table
from tests.pipeline.dedup.lines import reference
from tests.pipeline.inspect.lineage.edited import check_edits

LINES, SUBSTRINGS = "dedup.lines", "dedup.substrings"
NO_FLOOR = {LINES: 0, SUBSTRINGS: 0}
# Letters, digits, white space of all kinds, letters of two and three and four bytes, marks, unspaced letters.
ALPHABET = "ab1  \n\n\r\t.,-é́漢字。😀ßกा"

Places = Sequence[tuple[int, int, int]]  # document, offset and length in bytes


def spans(docs: Sequence[Doc], places: Places) -> pa.Table:
    rows = sorted((docs[i].id, offset, length) for i, offset, length in places)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.table(dict(zip(SPANS.names, columns, strict=True)), schema=SPANS)


def outcome(
    docs: Sequence[Doc], cuts: Mapping[str, Places], min_left: Mapping[str, int] = NO_FLOOR
) -> Outcome:
    """`cut`, with everything checked that holds for any input."""
    before = table(docs)
    result = cut(before, {kind: spans(docs, places) for kind, places in cuts.items()}, min_left)
    check_conservation("dedup", len(docs), result)
    texts = {row["doc_id"]: row for row in result.kept.to_pylist()}
    decided = {row["doc_id"]: row for row in result.decisions.to_pylist()}
    assert [d.id for d in docs if d.id in texts] == list(texts), "in the order of the partition"
    assert [d.id for d in docs if d.id in decided] == list(decided)
    for doc in docs:
        row = decided.get(doc.id)
        if row is None:
            assert texts[doc.id]["text"] == doc.text and texts[doc.id]["text_hash"] == text_hash(doc.text)
            continue
        gone: set[int] = set()
        reach: dict[str, int] = {}
        assert row["edits"] == sorted(row["edits"], key=lambda e: (e["offset"], list(cuts).index(e["kind"])))
        for edit in row["edits"]:
            assert edit["stage"] == "dedup" and edit["length"] > 0
            assert edit["offset"] > reach.get(edit["kind"], -1), "edits of one kind are apart"
            reach[edit["kind"]] = edit["offset"] + edit["length"]
            gone |= set(range(edit["offset"], edit["offset"] + edit["length"]))
        assert gone and max(gone) < len(doc.text)
        left = "".join(c for i, c in enumerate(doc.text) if i not in gone)
        check_edits(doc.text, left, row["edits"])
        if row["outcome"] == "kept":
            assert texts[doc.id]["text"] == left and texts[doc.id]["text_hash"] == text_hash(left)
            assert row["rule"] is row["value"] is row["threshold"] is row["failed"] is None
        else:
            assert row["outcome"] == "removed" and doc.id not in texts
            assert row["value"] == len(reference.words(left)) < row["threshold"] == min_left[row["rule"]]
            own = {
                "stage": "dedup",
                "rule": row["rule"],
                "value": row["value"],
                "threshold": row["threshold"],
            }
            assert own in row["failed"]
    return result


def left(text: str, *cuts: str) -> str:
    """What is left of one text without the first occurrence of each of these parts."""
    docs = docs_of([text])
    places = [(0, len(text[: text.index(part)].encode()), len(part.encode())) for part in cuts]
    return outcome(docs, {LINES: places}).kept["text"][0].as_py()


@pytest.mark.parametrize(
    ("text", "cuts", "expected"),
    [
        # whole lines take a newline
        ("A\nB\nC", ["B"], "A\nC"),
        ("A\nB\nC", ["B\n"], "A\nC"),
        ("A\nB\nC", ["\nB"], "A\nC"),
        ("A\nB\nC", ["\nB\n"], "A\nC"),
        ("A\nB\nC", ["A"], "B\nC"),
        ("A\nB\nC", ["C"], "A\nB"),
        ("A\nB\nC\n", ["C"], "A\nB\n"),
        ("A\nB\nC\nD", ["B", "C"], "A\nD"),
        ("A\r\nB\r\nC", ["B"], "A\r\nC"),
        ("A\n  B  \n    C", ["B"], "A\n    C"),
        ("\n\n  A\n  B", ["A"], "\n\n  B"),
        ("A\nB", ["A", "B"], ""),
        # paragraphs take a blank line
        ("A\n\nB\n\nC", ["B"], "A\n\nC"),
        ("A\n\nB\nC", ["B"], "A\n\nC"),
        ("A\nB\n\nC", ["B"], "A\n\nC"),
        ("A\r\nB\r\n\r\nC", ["B"], "A\r\n\r\nC"),
        ("A\n\nB\n\n\nC\n\nD", ["B", "C"], "A\n\nD"),
        ("A\n\nB\n", ["B"], "A\n"),
        ("A\n\nB", ["B"], "A"),
        ("A\n\nB", ["A"], "B"),
        # inside a line
        ("foo bar baz", ["bar"], "foo baz"),
        ("foo bar baz", [" bar "], "foo baz"),
        ("foo bar baz", ["bar "], "foo baz"),
        ("foo bar baz", ["foo"], "bar baz"),
        ("  foo bar\nbaz", ["foo"], "  bar\nbaz"),
        ("foo bar\nbaz", ["bar"], "foo\nbaz"),
        ("foo bar  \nbaz", ["bar"], "foo  \nbaz"),
        # across lines: the neighbours stay on different lines
        ("foo bar\nbaz qux", ["bar\nbaz"], "foo\nqux"),
        ("foo bar\n\nbaz qux\nx y", ["bar\n\nbaz"], "foo\n\nqux\nx y"),
        ("foo bar\r\nbaz qux", ["bar\r\nbaz"], "foo\r\nqux"),
        # words are not glued
        ("foo,bar,baz", [",bar,"], "foo,baz"),
        ("foo-bar", ["-"], "foo-bar"),
        ("foobarbaz", ["bar"], "foobarbaz"),
        ("foo漢字baz", ["漢字"], "foo漢baz"),
        ("foo (a b) baz", ["(a b)"], "foo baz"),
        ("foo(a b)baz", ["(a b)"], "foo baz"),
        ("他们说。重复。然后", ["重复。"], "他们说。然后"),
        ("cafe\u0301 x y", ["x"], "cafe\u0301 y"),
        # nothing but white space
        ("a  b\n\nc", ["  "], "a  b\n\nc"),
        (" \n ", [" \n "], " \n "),
    ],
)
def test_what_a_cut_leaves(text: str, cuts: list[str], expected: str) -> None:
    assert left(text, *cuts) == expected


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[Doc], dict[str, Places]]:
    docs = docs_of(draw(st.lists(st.text(ALPHABET, max_size=24), max_size=4)))
    found: dict[str, Places] = {}
    for kind in (LINES, SUBSTRINGS):
        places = []
        for i, doc in enumerate(docs):
            size = len(doc.text.encode())
            for _ in range(draw(st.integers(0, 3))):
                start = draw(st.integers(0, size))
                places.append((i, start, draw(st.integers(0, size - start))))
        found[kind] = places
    return docs, found


def asked(doc: Doc, i: int, cuts: Mapping[str, Places]) -> list[tuple[int, int]]:
    """The spans of one document in characters; what would be half a character is none of it."""
    data = doc.text.encode()
    found = []
    for places in cuts.values():
        for row, offset, length in places:
            if row == i:
                start = len(data[:offset].decode(errors="ignore")) + (data[:offset] != cleaned(data[:offset]))
                found.append((start, max(start, len(cleaned(data[: offset + length]).decode()))))
    return found


def cleaned(data: bytes) -> bytes:
    return data.decode(errors="ignore").encode()


@given(documents())
def test_any_spans_of_any_texts(case: tuple[list[Doc], dict[str, Places]]) -> None:
    docs, cuts = case
    result = outcome(docs, cuts)
    for i, (doc, text) in enumerate(zip(docs, result.kept["text"].to_pylist(), strict=True)):
        places = asked(doc, i, cuts)
        assert text == "".join(c for c in reference.cut(doc.text, places) if c)
        plain = [c for j, c in enumerate(doc.text) if not any(a <= j < b for a, b in places)]
        solid = [c for c in plain if c not in reference.WHITE]
        rest = iter(c for c in text if c not in reference.WHITE)
        assert all(c in rest for c in solid), "nothing goes that was not asked for"


@given(documents())
def test_what_was_cut_is_cut_again(case: tuple[list[Doc], dict[str, Places]]) -> None:
    """The edits, given as spans, are the same cut: settled spans settle to themselves."""
    docs, cuts = case
    first = outcome(docs, cuts)
    again: list[tuple[int, int, int]] = []
    for row in first.decisions.to_pylist():
        i = next(i for i, doc in enumerate(docs) if doc.id == row["doc_id"])
        for edit in row["edits"]:
            start = len(docs[i].text[: edit["offset"]].encode())
            part = docs[i].text[edit["offset"] : edit["offset"] + edit["length"]]
            again.append((i, start, len(part.encode())))
    assert outcome(docs, {LINES: again}).kept.equals(first.kept)


@given(documents(), st.integers(0, 4), st.integers(0, 4))
def test_any_floor(case: tuple[list[Doc], dict[str, Places]], lines: int, substrings: int) -> None:
    docs, cuts = case
    floor = {LINES: lines, SUBSTRINGS: substrings}
    whole, result = outcome(docs, cuts), outcome(docs, cuts, floor)
    texts = dict(zip(whole.kept["doc_id"].to_pylist(), whole.kept["text"].to_pylist(), strict=True))
    gone = set()
    for row in whole.decisions.to_pylist():
        kinds = {edit["kind"] for edit in row["edits"]}
        if any(len(reference.words(texts[row["doc_id"]])) < floor[kind] for kind in kinds):
            gone.add(row["doc_id"])
    assert {r["doc_id"] for r in result.decisions.to_pylist() if r["outcome"] == "removed"} == gone


def test_the_rule_that_cut_more_removes() -> None:
    docs = docs_of(["aaaa bb cc", "aaaa bb cc", "aaaa bb cc"])
    cuts = {LINES: [(0, 0, 4), (1, 5, 2), (2, 8, 2)], SUBSTRINGS: [(0, 5, 2), (1, 0, 4), (2, 0, 4)]}
    rows = outcome(docs, cuts, {LINES: 2, SUBSTRINGS: 2}).decisions.to_pylist()
    assert [row["rule"] for row in rows] == [LINES, SUBSTRINGS, SUBSTRINGS]
    assert [len(row["failed"]) for row in rows] == [2, 2, 2]
    only_substrings = outcome(docs, cuts, {LINES: 0, SUBSTRINGS: 2}).decisions.to_pylist()
    assert {row["rule"] for row in only_substrings} == {SUBSTRINGS}
    assert outcome(docs, cuts, NO_FLOOR).kept["text"].to_pylist() == ["cc", "cc", "bb"]


def test_edits_of_two_kinds_overlap_and_cover_what_is_missing() -> None:
    docs = docs_of(["é one\nß two three\nfour"])
    second = "é one\n".encode()
    cuts = {LINES: [(0, len(second), 12)], SUBSTRINGS: [(0, len(second) + 3, 3)]}
    [row] = outcome(docs, cuts).decisions.to_pylist()
    assert [(e["kind"], e["offset"], e["length"]) for e in row["edits"]] == [
        (LINES, 6, 12),
        (SUBSTRINGS, 8, 3),
    ]


def test_a_span_inside_a_character_is_made_smaller() -> None:
    docs = docs_of(["x 漢字 y"])
    assert outcome(docs, {LINES: [(0, 3, 4)]}).kept["text"].to_pylist() == ["x 漢字 y"]
    assert outcome(docs, {LINES: [(0, 3, 5)]}).kept["text"].to_pylist() == ["x 漢 y"]


def test_no_documents_and_no_spans() -> None:
    assert outcome([], {LINES: []}).kept.num_rows == 0
    docs = docs_of(["", "a b"])
    assert outcome(docs, {LINES: [], SUBSTRINGS: []}).kept.equals(table(docs))
    assert outcome(docs, {LINES: [(0, 0, 0), (1, 1, 0)]}).kept.equals(table(docs))
    assert cut(table(docs), {}, {}).kept.equals(table(docs))


def test_chunks_and_slices_of_a_table() -> None:
    docs = docs_of([f"keep {i}\ncut me {i}\nend" for i in range(10)])
    places = spans(docs, [(i, len(f"keep {i}\n"), 8) for i in range(3, 8)])
    whole = table(docs)
    expected = cut(whole.slice(2, 6).combine_chunks(), {LINES: places}, NO_FLOOR)
    parts = pa.concat_tables([whole.slice(2, 2), whole.slice(4, 4)])
    for docs_in in (whole.slice(2, 6), parts):
        found = cut(docs_in, {LINES: places}, NO_FLOOR)
        assert found.kept.combine_chunks().equals(expected.kept.combine_chunks())
        assert found.decisions.equals(expected.decisions)
    assert expected.kept["text"].to_pylist()[1] == "keep 3\nend"


def test_spans_of_other_documents_and_texts() -> None:
    docs, others = docs_of(["a b c"]), docs_of(["a b c"], "elsewhere")
    with pytest.raises(WorkError, match="other documents"):
        cut(table(docs), {LINES: spans(others, [(0, 0, 1)])}, NO_FLOOR)
    for offset, length in ((0, 6), (-1, 2), (2, -1), (6, 0)):
        with pytest.raises(WorkError, match="other texts"):
            cut(table(docs), {LINES: spans(docs, [(0, offset, length)])}, NO_FLOOR)


def test_what_document_deduplication_left(tmp_path: Path) -> None:
    docs = docs_of([f"text {i}" for i in range(5)])
    folder = Folder(tmp_path)
    [part] = partitions(folder, docs)
    rows = [{"doc_id": docs[i].id, "kept": i == 1, "rule": "dedup.exact"} for i in (3, 1, 0)]
    file = publish_table(folder, "removals/x.parquet", pa.Table.from_pylist(rows))
    kept = Kept(0, part, folder / "removals/x.parquet", file.xxh3)
    assert kept.read(["text"])["text"].to_pylist() == ["text 1", "text 2", "text 4"]
    assert kept.read(["text", "doc_id"]).column_names == ["text", "doc_id"]
    everything: Any = Kept(0, part, None, "").read(["text"])
    assert everything["text"].to_pylist() == [d.text for d in docs]
    with pytest.raises(WorkError, match="checksum"):
        Kept(0, part, folder / "removals/x.parquet", "0" * 32).read(["text"])
