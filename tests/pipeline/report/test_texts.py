"""Excerpts, pairs, words and numbers."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.report import words
from corpusmill.pipeline.report.texts import cut, marked, masked, tag_in_context, window
from tests.pipeline.corpus import recipe

ANY = st.text(max_size=200)


@given(ANY)
def test_visible_text_hides_nothing_and_is_inert(text: str) -> None:
    markup = str(words.visible(text))
    bare = re.sub(r'<span class="ctl">U\+([0-9A-F]{4,6})</span>', lambda m: chr(int(m[1], 16)), markup)
    assert "<" not in bare.translate({ord(c): None for c in text if c in "<>"})
    assert unescape(bare) == text or any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\x00-\x08\x0b-\x1f\x7f]", markup)


@given(ANY)
def test_breakable_adds_places_to_break_and_nothing_else(text: str) -> None:
    assert str(words.breakable(text)).replace("<wbr>", "") == str(words.visible(text))


@given(ANY, ANY)
def test_marked_texts_are_the_texts(a: str, b: str) -> None:
    left, right = marked(a, b)
    assert "".join(text for _, text in left) == a and "".join(text for _, text in right) == b
    if a == b:
        assert not any(differs for differs, _ in left)


def test_marks_stand_on_the_words_that_differ() -> None:
    left, right = marked("the cat sat on it", "the dog sat on it")
    assert [text for differs, text in left if differs] == ["cat"]
    assert [text for differs, text in right if differs] == ["dog"]


@given(ANY, ANY, ANY)
def test_windows_begin_at_one_place(lead: str, a: str, b: str) -> None:
    left, right = window(lead + a, lead + b, 30)
    assert len(left) <= 34 and len(right) <= 34
    assert left.startswith("… ") == right.startswith("… ") or not lead


def test_a_late_difference_is_in_the_window() -> None:
    lead = "same words " * 500
    left, right = window(lead + "HERE", lead + "THERE", 90)
    assert "HERE" in left and "THERE" in right


@given(st.text(max_size=300), st.integers(50, 100))
def test_cut_is_a_beginning(text: str, chars: int) -> None:
    short = cut(text, chars)
    assert short == text or (short.endswith(" …") and text.startswith(short[:-2]) and len(short) <= chars + 2)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("by <EMAIL> now", "<EMAIL>"),
        ("by [IP 4] now", "[IP 4]"),
        ("by user7@x.example now", "user7@x.example"),
    ],
)
def test_the_tag_is_found_at_its_place(text: str, tag: str) -> None:
    assert tag_in_context(text, 3) == {"before": "by ", "tag": tag, "after": " now"}
    assert tag_in_context("by ", 3) == {"before": "by ", "tag": "", "after": ""}


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 5, "0 %"), (5, 5, "100 %"), (1, 0, "–"), (99_999, 100_000, "> 99.9 %"), (1, 10**7, "< 0.01 %"),
     (1, 8, "12.5 %"), (1, 1000, "0.1 %")],
)  # fmt: skip
def test_shares(part: int, whole: int, shown: str) -> None:
    assert words.share(part, whole).replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (2_340_000, "2.34 MB")],
)
def test_sizes(value: int, shown: str) -> None:
    assert words.size(value).replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (1234567, "1,234,567"), (0.12345, "0.123"), (12.5, "12.5"), (3.0, "3")]
)
def test_numbers(value: float | None, shown: str) -> None:
    assert words.number(value) == shown


@given(ANY)
def test_markdown_stays_in_its_cell(text: str) -> None:
    for shown in (words.markdown(text), words.code(text)):
        assert "\n" not in shown and "\r" not in shown
        assert not re.search(r"(?<!\\)(?:\\\\)*\|", shown)


def test_tokens_of_white_space_can_be_seen() -> None:
    assert words.token(" the") == "␣the" and words.token("\n\t") == "⏎⇥"
    assert words.token(" " * 32) == "␣ × 32" and words.token("<" * 9) == "&lt; × 9"


def test_what_the_run_redacts_is_in_no_excerpt() -> None:
    """Nor what it does not redact, as far as patterns find it; whatever the run puts in its place."""
    text = "Ann Lee (ann@site.org) logs in to host 192.168.17.4."
    shown = {
        name: masked(recipe(redact=params), Folder("unused"), {b"x" * 16: text}, 200)[b"x" * 16]
        for name, params in {
            "plain": {}, "one kind": {"kinds": ["ssn"], "replacement": "remove"},
            "more": {
                "kinds": ["email", "name", "ip"], "ip": "all", "replacement": "remove",
                "model": "tests.pipeline.redact.test_models:capitals",
            },
        }.items()
    }  # fmt: skip
    assert shown["plain"] == shown["one kind"] == "Ann Lee (<EMAIL>) logs in to host 192.168.17.4."
    assert shown["more"] == "<NAME> (<EMAIL>) logs in to host <IP>."
