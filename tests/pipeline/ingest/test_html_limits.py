"""Pages built to exhaust a parser: refused, and none of ordinary shape with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from corpusmill.pipeline.ingest.readers.html_limits import (
    MAX_COMPARISONS,
    MAX_PARTS,
    TooComplex,
    _most,
    check_complexity,
)


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 100_000 + "x",
        "<div>" * 100_000 + "</div>" * 100_000,
        "<b>" * 50_000 + "x",
        "<select>" + "<option>" * 100_000,
        "<a " + " ".join(f"b{i}=c" for i in range(100_000)) + ">x",
        "".join(f"<font size={i}>" for i in range(2_900)) + "<p>x" * 100_000,
        "<table><tr><td>" * 20_000,
        "<a " + " ".join(f"b{i}='>'" for i in range(60_000)) + ">x",
        ("<a " + " ".join(f"b{i}" for i in range(4_000)) + ">x") * 200,
        "<i a=1></i>" * 800_000,
        '<!-- <a x=" -->' + "<i a=1></i>" * 800_000,
        "<script><a x='</script>" + "<i a=1></i>" * 800_000,
        "</a x='><b y='>" + "<i a=1></i>" * 800_000,
        "<svg><style><a x='</style></svg>" + "<i a=1></i>" * 800_000,
        "<i a=1>" * 800_000,
        "</i a=1>" * 800_000,
        "<i =\"><i ='>" + "<i a=1></i>" * 800_000,
        "<i \x01=\x01'>" + "<i a=1></i>" * 800_000,
        "<div></span>" * 10_000,
        "<div><!-- </div> -->" * 10_000,
        "<div><script></div></script>" * 10_000,
        "<svg><style>" + "<g>" * 10_000,
        "<div a='</div>'>" * 10_000,
        "".join(f"<x{n}>" for n in range(10_000)),
    ],
)
def test_pages_made_to_exhaust_a_parser_are_refused(page: str) -> None:
    with pytest.raises(TooComplex):
        check_complexity(page)


@pytest.mark.parametrize(
    "page",
    [
        "<p>x" * 100_000,
        "<br>" * 50_000,
        "<li>x" * 50_000,
        "<div><p>x</p></div>" * 30_000,
        "<" * 99_999,
        "<a href='x' class=\"a b\" title='>' hidden>x</a> a = b " * 30_000,
        "<" + "a" * 99_999,
        "<a b='" + "c d" * 99_999,
        "<script>" + "if (a<b && c>d) e = 'f g'; " * 30_000 + "</script>",
        "".join(f"<x{n}></x{n}>" for n in range(4_000)),
        "<b><i>x</b></i>" * 20_000,
        "<script>x = '<div>'</script>" * 20_000,
        "<!-- <div> -->" * 20_000,
    ],
)
def test_long_pages_of_ordinary_shape_are_not(page: str) -> None:
    check_complexity(page)


PARTS = ["<div", "</div", "<p", "<svg", "<title", "<script>", "</script>", "<style", "</style", "<!--", "-->", "<![CDATA[",
    "]]>", " ", "\n", "\x01", "/", ">", "=", '"', "'", "x", " a@", " b@=", " c@='", ' d@="',
]  # fmt: skip


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=60))
def test_a_parser_finds_no_more_attributes_than_are_counted(parts: list[str]) -> None:
    page = "".join(
        part.replace("@", str(n)) for n, part in enumerate(parts)
    )  # attributes have different names
    most, _ = _most(np.frombuffer(page.encode() + b" ", np.uint8), MAX_PARTS, MAX_COMPARISONS)
    elements = HTMLTree.parse(page).document.query_selector_all("div, p, svg, title, script, style")
    assert sum(1 + len(element.attrs) for element in elements) <= most


def test_parts_and_comparisons_of_a_page() -> None:
    code = np.frombuffer(b"<p><a b=1 c='d>' e>x</a f><br/>" * 10, np.uint8)
    assert _most(code, MAX_PARTS, MAX_COMPARISONS).tolist() == [10 * (1 + 4 + 2 + 1), 10 * 4]
    assert _most(code, 50, 30).tolist() == [50, 30]
