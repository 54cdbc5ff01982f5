"""Positions through edits, against texts in which every character knows where it came from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.inspect.lineage.edits import StageEdits, back, by_stage, forward
from tests.pipeline.inspect.lineage.edited import check_edits

Char = tuple[
    int, ...
]  # the characters of the first text that a character stands for; after -1 if it was written


def row(stage: str, offset: int, length: int, written: int) -> dict[str, Any]:
    return {"stage": stage, "kind": f"{stage}.x", "offset": offset, "length": length, "written": written}


@st.composite
def edits_of(draw: st.DrawFn, stage: str, size: int) -> list[dict[str, Any]]:
    """Edits of a text of `size` characters: cuts that may overlap, or replacements that stand apart, or both apart."""
    if draw(st.booleans()):
        spans = draw(
            st.lists(
                st.tuples(st.integers(0, max(size - 1, 0)), st.integers(1, 4)), max_size=4 if size else 0
            )
        )
        return [row(stage, a, min(n, size - a), 0) for a, n in spans]
    points = sorted(draw(st.sets(st.integers(0, size), max_size=8)))
    pairs = list(zip(points[::2], points[1::2], strict=False))
    return [row(stage, a, b - a, draw(st.integers(0, 3))) for a, b in pairs]


def apply(text: list[Char], rows: list[dict[str, Any]]) -> list[Char]:
    """The text after edits: what is written stands for all that it replaced."""
    made: list[Char] = []
    at = 0
    for edit in sorted(rows, key=lambda edit: edit["offset"]):
        start, stop = edit["offset"], edit["offset"] + edit["length"]
        made += text[at:start]
        stood = tuple(sorted({place for char in text[start:stop] for place in char if place >= 0}))
        made += [(-1, *stood)] * edit["written"]
        at = max(at, stop)
    return made + text[at:]


@given(st.integers(0, 25), st.data())
def test_back_and_forward_through_any_stages(size: int, data: st.DataObject) -> None:
    first: list[Char] = [(i,) for i in range(size)]
    text, chain = first, []
    for stage in data.draw(st.lists(st.sampled_from("abc"), max_size=4)):
        rows = data.draw(edits_of(stage, len(text)))
        chain.append(StageEdits(stage, rows))
        after = apply(text, rows)
        assert chain[-1].growth == len(after) - len(text)
        text = after
    for start in range(len(text)):
        for end in range(start + 1, min(start + 6, len(text)) + 1):
            pieces = back(chain, start, end)
            assert [start, *(p.end for p in pieces)] == [*(p.start for p in pieces), end], (
                "in order, without a gap"
            )
            for piece in pieces:
                if not piece.inside:
                    assert piece.old_end - piece.old_start == piece.end - piece.start
                    wanted = [(i,) for i in range(piece.old_start, piece.old_end)]
                    assert text[piece.start : piece.end] == wanted
                else:
                    stands = {place for char in text[piece.start : piece.end] for place in char} - {-1}
                    assert all(char[0] == -1 for char in text[piece.start : piece.end])
                    assert stands <= set(range(piece.old_start, piece.old_end))
                    assert {edit.stage for edit in piece.inside} <= {stage.stage for stage in chain}
    for start in range(size):
        low, high = forward(chain, start, start + 1)
        for place, char in enumerate(text):
            if char == (start,):
                assert (low, high) == (place, place + 1)
            elif start in char:
                assert low <= place < high


def test_overlapping_cuts_are_one() -> None:
    """Two kinds of repeats, as dedup cuts them: a character cut twice is gone once."""
    stage = StageEdits("dedup", [row("dedup", 2, 4, 0), {**row("dedup", 4, 5, 0), "kind": "dedup.y"}])
    assert [(e.start, e.end, e.place, e.written, e.kinds) for e in stage.edits] == [
        (2, 9, 2, 0, ("dedup.x", "dedup.y"))
    ]
    assert [p[:4] for p in stage.back(1, 3)] == [(1, 2, 1, 2), (2, 3, 9, 10)]
    assert stage.forward(0, 12) == (0, 5) and stage.forward(3, 8) == (2, 2)
    assert (stage.before(1), stage.before(2)) == ((0, 0), (1, -7))


def test_a_replacement_that_a_later_stage_cuts_into() -> None:
    chain = [StageEdits("a", [row("a", 3, 5, 7)]), StageEdits("b", [row("b", 4, 2, 0)])]
    (piece,) = back(chain, 4, 6)
    assert piece[:4] == (4, 6, 3, 8) and [edit.stage for edit in piece.inside] == ["a"]
    assert forward(chain, 3, 8) == (3, 8)


def test_what_cannot_be_mapped_is_refused() -> None:
    with pytest.raises(WorkError, match="overlap"):
        StageEdits("redact", [row("redact", 0, 4, 2), row("redact", 2, 4, 2)])
    with pytest.raises(UserError, match="older version"):
        StageEdits("redact", [{**row("redact", 0, 4, 0), "written": None}])
    with pytest.raises(WorkError, match="not a stage of this run"):
        by_stage(["filter"], [row("redact", 0, 1, 1)])


def test_the_law_itself_notices_what_is_wrong() -> None:
    check_edits("abcdef", "abXYf", [row("a", 2, 3, 2)], writes=True)
    for edit in (row("a", 2, 3, 1), row("a", 2, 2, 2), row("a", 1, 3, 2)):
        with pytest.raises(AssertionError):
            check_edits("abcdef", "abXYf", [edit], writes=True)
