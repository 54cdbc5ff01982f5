"""Passages beside items: in two columns on a terminal, and as a page that fits any screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.decontaminate.items import Item
from corpusmill.pipeline.inspect.passages.gather import part_text
from corpusmill.pipeline.inspect.passages.page import render, show
from corpusmill.pipeline.report.excerpts import marked
from tests.browser import check_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def answer(passage: str | None, text: str) -> dict[str, Any]:
    left, right = marked(passage or "", text)
    row = {
        "doc_id": "ab" * 16, "source": "web", "set": "riddles", "item": "7", "items": 3, "part": "question", "near": True,
        "value": 0.9, "words": 18, "of": 20, "passage": passage, "text": text, "left": left, "right": right,
    }  # fmt: skip
    return {"run": "out/clean", "threshold": 0.5, "near": 0.8, "total": 2, "passages": [row]}


@pytest.mark.browser
def test_the_page_fits_and_loads_nothing(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "passages.html"
    file.write_text(
        render(answer("Two spotted <b>llamas</b> carry " + "x" * 300, "Two spotted llamas carry baskets"))
    )
    check_page(browser, file)


def test_both_sides_are_shown_and_escaped() -> None:
    page = render(answer("two <script>alert(1)</script> owls", "two glass owls"))
    assert "<script" not in page and "<mark>glass</mark>" in page and "and 2 more items" in page
    assert "No text: deleted" in render(answer(None, "two owls"))
    lines = show(answer("two tin owls\x1b[31m", "two glass owls")).splitlines()
    assert lines[0].endswith("riddles#7 and 2 more items, question: 18 of 20 words in order (90%)")
    assert lines[1].split() == ["passage", "|", "item"] and "glass" in lines[2].partition("|")[2]
    assert lines[-1] == "2 passages found; 1 not shown"


@settings(max_examples=50)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_can_be_shown(passage: str, text: str) -> None:
    shown = show(answer(passage, text))
    assert "\x1b" not in shown and all(len(line) <= 140 for line in shown.splitlines()[1:])
    assert "</html>" in render(answer(passage, text))


def test_the_text_most_like_the_passage_is_shown() -> None:
    item = Item(
        "s",
        "1",
        0,
        1,
        "Who was late?",
        "Ann met Bob.",
        "",
        ("Bob was",),
        ("Ann was",),
        ("Ann was", "Bob was"),
        "",
    )
    assert part_text(item, "question", "Who was late?") == "Who was late?"
    assert part_text(item, "question", "Ann met Bob. Who was late?") == "Ann met Bob. Who was late?"
    assert (
        part_text(item, "question", "Who was late? A. Ann was B. Bob was")
        == "Who was late?\nAnn was\nBob was"
    )
    assert part_text(item, "answer", "it is Ann was it") == "Ann was"
    assert part_text(item, "passage", "x") == "Ann met Bob."
