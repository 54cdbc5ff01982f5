"""Excerpts, pairs and tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report.excerpts import cut, marked, masked, tag_in_context, window
from tests.pipeline.corpus import recipe

ANY = st.text(max_size=200)


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


def test_what_the_run_redacts_is_in_no_excerpt() -> None:
    """Nor what it does not redact, as far as patterns find it; whatever the run puts in its place."""
    text = "Ann Lee (ann@site.org) logs in to host 192.168.17.4."
    shown = {
        name: masked(recipe(redact=params), None, {b"x" * 16: text}, 200)[b"x" * 16]
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
