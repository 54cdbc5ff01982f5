"""What is cut of texts: spans, new texts, signals and the ledger."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.ids import text_hash
from corpusmill.pipeline.filter.rules.line_matches import cut
from corpusmill.pipeline.filter.rules.line_signals import LineRules
from corpusmill.pipeline.filter.rules.rule_files import LineEntry, LineRule
from corpusmill.pipeline.filter.rules.sets import line_rules, rule_set
from corpusmill.pipeline.filter.text.view import text_buffers, view_of
from corpusmill.schemas.filter import FilterParams
from tests.pipeline.filter.helpers import documents, measured
from tests.pipeline.inspect.lineage.edited import check_edits

SHORT: dict[str, Any] = {"name": "short", "value": "words", "less_than": 2}
MARK: dict[str, Any] = {"name": "mark", "pattern": r"\[\d*\]|\[edit\]", "cut": "match"}


def rules(*entries: dict[str, Any], name: str = "s") -> dict[str, tuple[LineRule, ...]]:
    return {name: tuple(LineEntry.model_validate(entry).compiled(name) for entry in entries)}


def cut_texts(
    texts: list[str], sets: dict[str, tuple[LineRule, ...]]
) -> tuple[list[str], list[list[tuple[str, str]]], dict[str, list[float]]]:
    """(texts without what is cut, for each text (rule, what it cut), signals). Checks offsets and hashes."""
    lines = LineRules(sets, cuts=True)
    docs = documents(texts)
    view = view_of(*text_buffers(docs["text"].combine_chunks()))
    values, spans = lines.measure(view, {})
    left, decisions = cut(docs, spans, lines.names)
    by_id = {row["doc_id"]: row for row in decisions.to_pylist()}
    edits: list[list[tuple[str, str]]] = []
    for text, row in zip(texts, left.to_pylist(), strict=True):
        listed = by_id.get(row["doc_id"], {"edits": []})["edits"]
        rest, at = "", 0
        for edit in listed:
            assert edit["offset"] >= at and edit["length"] > 0 and edit["stage"] == "filter"
            rest += text[at : edit["offset"]]
            at = edit["offset"] + edit["length"]
        assert rest + text[at:] == row["text"], "the ledger's edits make the new text of the old"
        check_edits(text, row["text"], listed)
        assert row["text_hash"] == text_hash(row["text"])
        assert (row["doc_id"] in by_id) == (row["text"] != text)
        edits.append([(e["kind"], text[e["offset"] : e["offset"] + e["length"]]) for e in listed])
    return left["text"].to_pylist(), edits, {name: column.tolist() for name, column in values.items()}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("one two\nx\nthree four", "one two\nthree four"),
        ("one two\nx", "one two"),
        ("one two\nx\n", "one two\n"),
        ("x\none two", "one two"),
        ("\n\nx\n\none two", "\n\none two"),
        ("one two\n\nx\n\nthree four", "one two\n\nthree four"),
        ("one two\n\nx\nthree four", "one two\n\nthree four"),
        ("one two\nx\n\nthree four", "one two\n\nthree four"),
        ("one two\nx\n\ny\nthree four", "one two\n\nthree four"),
        ("one two\r\nx\r\nthree four\r\n", "one two\r\nthree four\r\n"),
        ("a b:\n  x\n    c d", "a b:\n    c d"),
        ("x", ""),
        ("x\n\ny", ""),
        ("é ü\nж\nñ o", "é ü\nñ o"),
        ("", ""),
        (" \n ", " \n "),
    ],
)
def test_a_line_goes_and_the_larger_gap_stays(text: str, left: str) -> None:
    assert cut_texts([text], rules(SHORT))[0] == [left]


def test_parts_of_lines_go_first_and_lines_are_judged_as_they_then_stand() -> None:
    texts = ["It is so [1] and[[2]edit] so.\n[3]\nword [4]\nword two", "nothing here"]
    left, edits, signals = cut_texts(texts, rules(SHORT, MARK))
    assert left == ["It is so  and so.\nword two", "nothing here"]
    assert edits[0] == [
        ("s.mark", "[1]"), ("s.mark", "[[2]edit]"), ("s.mark", "[3]\n"), ("s.short", "word [4]\n"),
    ]  # fmt: skip
    assert signals["s.cut_lines_ratio"] == [0.5, 0]
    assert signals["s.cut_words_ratio"][0] == pytest.approx(4 / 11)
    assert signals["lines.cut_lines_ratio"] == [0.5, 0]


def test_the_first_rule_that_cuts_is_named() -> None:
    both = rules({"name": "digits", "value": "digit_ratio", "at_least": 1}, SHORT)
    assert cut_texts(["a b\n1\nx\nc d"], both)[1] == [[("s.digits", "1\n"), ("s.short", "x\n")]]
    two_sets = {
        **rules(SHORT, name="a"),
        **rules({"name": "mark", "phrases": ["x"], "cut": "match"}, name="b"),
    }
    left, edits, _ = cut_texts(["a b\nx\nc x d"], two_sets)
    assert left == ["a b\nc d"] and edits == [[("a.short", "x\n"), ("b.mark", " x")]]


def test_sets_look_at_the_text_as_it_came() -> None:
    sets = {**rules(MARK, name="a"), **rules(SHORT, name="b")}
    left, _, signals = cut_texts(["[1] word\nno more"], sets)
    assert left == [" word\nno more"], "b saw two words, whatever a cut"
    assert signals["b.cut_lines_ratio"] == [0]


def test_nothing_is_cut_unless_asked_for() -> None:
    lines = LineRules(rules(SHORT), cuts=False)
    values, spans = lines.measure(view_of(*text_buffers(pa.array(["a b\nx"], pa.large_string()))), {})
    assert len(spans) == 0 and list(values) == ["s.cut_lines_ratio", "s.cut_words_ratio", "s.left_sentences"]
    assert [column[0] for column in values.values()] == [0.5, pytest.approx(1 / 3), 1]


def test_a_slice_of_a_batch_is_a_batch() -> None:
    """Views begin anywhere in the buffers of a table."""
    texts = ["one two\nx [1]", "[1]\nx\none two [2]", "y\nthree four"]
    lines = LineRules(rules(SHORT, MARK), cuts=True)
    column = pa.array(["padding\nx", *texts, "x"], pa.large_string()).slice(1, 3)
    values, spans = lines.measure(view_of(*text_buffers(column)), {})
    alone, expected = lines.measure(view_of(*text_buffers(pa.array(texts, pa.large_string()))), {})
    assert spans.tolist() == expected.tolist() and len(spans) > 3
    assert {k: v.tolist() for k, v in values.items()} == {k: v.tolist() for k, v in alone.items()}


WORDS = st.sampled_from(
    ["a", "B", "two words", "SHOUT OUT", "12", "1.2k likes", "[1]", "[", "]", "[edit]", "items in cart", "Read more...",
     "Sign-in", "A sentence, with words.", " ", "\t", "\r", "é", "中文。", "javascript", "\u2028", "e\u0301", "..."]
)  # fmt: skip
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.one_of(WORDS, st.just("\n")), max_size=25).map("".join),
    st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=8).map("\n".join),
)


@pytest.mark.parametrize("name", ["c4", "dclm", "dolma"])
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(TEXT, max_size=4))
@example(texts=["[[[1]1]edit] a\n[1]\n\nSign-in Sign-in x y\nRead more... Read more..."])
def test_a_second_pass_cuts_nothing_and_edits_make_the_text(name: str, texts: list[str]) -> None:
    own = {name: rule_set(name).lines}
    left, _, signals = cut_texts(texts, own)
    again, edits, _ = cut_texts(left, own)
    assert again == left and not any(edits)
    for signal, values in signals.items():
        assert all(value >= 0 for value in values)
        assert signal.endswith("left_sentences") or max(values, default=0) <= 1


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT, max_size=3))
def test_what_stays_of_a_line_is_a_line_that_came(texts: list[str]) -> None:
    """Lines are cut whole, and blank lines are at most as many as there were."""
    left, _, _ = cut_texts(texts, {"dolma": rule_set("dolma").lines})
    for text, rest in zip(texts, left, strict=True):
        came, stayed = text.split("\n"), rest.split("\n")
        kept = [line for line in came if line.strip() and line.strip().endswith((".", "?", "!", '"'))]
        assert [line for line in stayed if line.strip()] == kept
        assert stayed.count("") <= came.count("") + (not kept)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT.filter(lambda text: "[" not in text), max_size=3))
def test_the_lines_of_c4_are_those_of_its_signals(texts: list[str]) -> None:
    """The kernel of the signal and the rules in the file say the same of a text without citation marks."""
    _, _, signals = cut_texts(texts, {"c4": rule_set("c4").lines})
    stated = measured(texts)
    assert signals["c4.left_sentences"] == stated["c4.kept_sentences"]
    kept = [
        ratio for ratio, lines in zip(stated["c4.kept_lines"], stated["document.lines"], strict=True) if lines
    ]
    cut_ = [
        ratio
        for ratio, lines in zip(signals["c4.cut_lines_ratio"], stated["document.lines"], strict=True)
        if lines
    ]
    assert [1 - ratio for ratio in cut_] == pytest.approx(kept)


def test_disabled_line_rules_do_not_cut() -> None:
    given = FilterParams(rules=["c4"], disable=["c4.no_terminal_mark"])
    assert "c4.no_terminal_mark" not in [rule.name for rule in line_rules(given)["c4"]]
    assert cut_texts(["Three words here\nTwo words"], line_rules(given))[0] == ["Three words here"]
