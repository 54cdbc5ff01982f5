"""What ingest mended, as edits: they make the clean text of the raw one, on any text."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.reread import cleaned
from corpusmill.pipeline.inspect.lineage.edits import StageEdits, composition, repairs

PIECES = [
    "\r\n",
    "\r",
    "\n",
    "\x0b",
    "\x85",
    "\u2028",
    "\x00",
    "\x7f",
    "\ufeff",
    "a",
    "é",
    "漢",
    "😀",
    "schÃ¶n",
    "â€™",
    " ",
]
texts = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=14
)


def check(before: str, after: str, edits: StageEdits) -> None:
    """Characters outside of the edits are the same, and every character has its place."""
    assert len(before) + edits.growth == len(after)
    for piece in edits.back(0, len(after)) if after else ():
        if not piece.inside:
            assert before[piece.old_start : piece.old_end] == after[piece.start : piece.end]


@given(texts.map("".join), st.booleans())
@example("\ufeffone\r\n\r\ntwo\r", True)
@example("schÃ¶n \r\n und \x00 â€™", True)
def test_repairs_make_the_clean_text(before: str, mend: bool) -> None:
    after = cleaned([before], mend)[0]
    rows = repairs(before, after, lambda given_texts, wanted: cleaned(given_texts, wanted and mend))
    check(before, after, StageEdits("ingest", rows))
    if not mend:  # nothing but line ends and controls: exact
        pieces, at = [], 0
        for row in rows:
            assert row["length"] >= 1 and row["written"] <= 1
            pieces += [before[at : row["offset"]], "\n" * row["written"]]
            at = row["offset"] + row["length"]
        assert "".join([*pieces, before[at:]]) == after


def test_line_ends_are_exact() -> None:
    before = "a\r\nb\rc\x00\x01d\n"
    assert cleaned([before], True) == ["a\nb\ncd\n"]
    found = [
        (r["kind"], r["offset"], r["length"], r["written"]) for r in repairs(before, "a\nb\ncd\n", cleaned)
    ]
    assert found == [("line_end", 1, 1, 0), ("line_end", 4, 1, 1), ("control", 6, 2, 0)]


def test_mojibake_is_the_part_of_its_line() -> None:
    before = "plain\nhier ist es schÃ¶n und gut\nplain \x07again"
    after = cleaned([before], True)[0]
    assert after == "plain\nhier ist es schön und gut\nplain again"
    found = [
        (r["kind"], before[r["offset"] :][: r["length"]], r["written"])
        for r in repairs(before, after, cleaned)
    ]
    assert found == [("mojibake", "Ã¶", 1), ("control", "\x07", 0)]


@given(
    st.text(
        st.characters(exclude_categories=["Cs"])
        | st.sampled_from("e\u0301a\u0308\u1100\u1161\u11a8Å\u0323\u0307"),
        max_size=30,
    )
)
@example("e\u0301 cafe\u0301 \u1100\u1161\u11a8 \ufb01")
def test_composition(before: str) -> None:
    import unicodedata

    after = unicodedata.normalize("NFC", before)
    edits = StageEdits("tokenizer", composition(before, after))
    check(before, after, edits)
    for edit in edits.edits:
        assert edit.end - edit.start <= 1 + len(re.findall("[^ -~]", before))
