"""Each condition of a rule on lines, beside a plain reading of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.filter.rules.line_matches import LineText
from corpusmill.pipeline.filter.rules.rule_files import LineEntry
from corpusmill.pipeline.filter.rules.sets import rule_set
from corpusmill.pipeline.filter.text.view import text_buffers, view_of
from corpusmill.pipeline.text.unicode_tables import ALPHA, DIGIT, PUNCT, UPPER, class_table


def meeting(lines: list[str], **condition: Any) -> list[bool]:
    """Which of the lines, none of them blank, meet the condition."""
    rule = LineEntry.model_validate({"name": "r", **condition}).compiled("s")
    view = view_of(*text_buffers(pa.array(["\n".join(lines)], pa.large_string())))
    found: list[bool] = LineText(view).meeting(rule).tolist()
    return found


def bits(line: str, bit: int) -> float:
    return sum(bool(class_table()[ord(char)] & bit) for char in line) / len(line)


VALUES = {
    "words": lambda line: len(line.split()),
    "chars": len,
    "longest_word": lambda line: max(map(len, line.split())),
    "uppercase_ratio": lambda line: bits(line, UPPER),
    "digit_ratio": lambda line: bits(line, DIGIT),
    "letter_ratio": lambda line: bits(line, ALPHA),
    "punctuation_ratio": lambda line: bits(line, PUNCT),
}
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30).filter(
    lambda line: line.strip() != ""
)


@pytest.mark.parametrize("value", VALUES)
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINE, min_size=1, max_size=4), limit=st.sampled_from([0, 0.25, 0.5, 1, 2, 7]))
def test_values(value: str, lines: list[str], limit: float) -> None:
    expected = [VALUES[value](line.strip()) for line in lines]
    assert meeting(lines, value=value, more_than=limit) == [number > limit for number in expected]
    assert meeting(lines, value=value, at_most=limit) == [number <= limit for number in expected]


def test_values_of_every_script() -> None:
    assert meeting(["ÄÖ ü", "ПРИВЕТ а", "١٢٣"], value="uppercase_ratio", at_least=0.5) == [True, True, False]
    assert meeting(["١٢٣", "१२", "12a"], value="digit_ratio", more_than=0.999999) == [True, True, False]


def test_phrases() -> None:
    lines = ["3 ITEMS in cart", "No item", "sign-in now", "Please Sign-In", "ÜBER uns", "a.b", "axb"]
    assert meeting(lines, phrases=["items in cart"]) == [True] + [False] * 6
    assert meeting(lines, phrases=["Sign-in"], where="start") == [False, False, True] + [False] * 4
    assert meeting(lines, phrases=["Sign-in"], where="end") == [False, False, False, True] + [False] * 3
    assert meeting(lines, phrases=["über", "a.b"]) == [False] * 4 + [True, True, False]
    assert meeting(lines, phrases=["in"], most_words=2) == [False, False, True, True, False, False, False]


def test_ends() -> None:
    lines = ["One.", "Two", "Three…", "Four” ", "Five.  "]
    assert meeting(lines, ends_in=["."]) == [True, False, False, False, True]
    assert meeting(lines, ends_not_in=[".", "…", "”"]) == [False, True, False, False, False]


def test_patterns_see_one_line_at_a_time() -> None:
    lines = ["12 likes", "a 12 likes", "12", "likes"]
    assert meeting(lines, pattern=r"^\d+\s+likes$") == [True, False, False, False]
    assert meeting(lines, pattern=r"12\s*likes") == [True, True, False, False]
    assert meeting(["é" * 3, "x"], pattern=r"^.{3}$") == [True, False]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("LOUD WORDS here", "uppercase"),
        ("12345", "numeric"),
        ("1.2k followers", "counter"),
        ("  5,123,456 Likes!", "counter"),
        ("Home", "words_min"),
        ("You have 3 items in cart today", "items_in_cart"),
        ("An article to be Read More...", "read_more"),
        ("Sign-in or register", "sign_in"),
    ],
)
def test_each_rule_of_dclm(line: str, rule: str) -> None:
    view = view_of(*text_buffers(pa.array([line], pa.large_string())))
    found = [own.name for own in rule_set("dclm").lines if LineText(view).meeting(own).any()]
    assert f"dclm.{rule}" in found
    prose = view_of(
        *text_buffers(pa.array(["He likes the 3 views of it, and read more."], pa.large_string()))
    )
    assert not any(LineText(prose).meeting(own).any() for own in rule_set("dclm").lines)
