"""The page: the same bytes again, nothing that loads or runs, hostile text shown and not obeyed."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import hostile, ordinary

VOID = {"meta", "link", "wbr", "br", "img", "input", "hr", "base", "embed", "source"}
ALLOWED = {
    "html", "head", "meta", "title", "link", "style", "body", "div", "header", "nav", "main", "section", "article",
    "caption", "dl", "dt", "dd", "footer", "p", "h1", "h2", "h3", "h4", "span", "b", "i", "a", "ol", "ul", "li", "table", "thead", "tbody", "tr",
    "label", "input", "script", "th", "td", "details", "summary", "code", "pre", "mark", "wbr", "svg", "g", "rect", "path", "line", "circle",
    "text",
}  # fmt: skip


class Checker(HTMLParser):
    """Collects elements and attributes, and checks that elements are nested as they should be."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check(page: str) -> Checker:
    """The page parsed; asserts that it is well formed, loads nothing, and runs only the script whose hash its policy names."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.tags <= ALLOWED
    for tag, name, value in checker.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src", "srcset", "data", "action", "xlink:href"):
            assert ((tag, name) == ("a", "href") and value.startswith("#")) or (tag, value) == (
                "link",
                "data:,",
            )
        if name == "style":
            assert re.fullmatch(r"--heat:[01]\.\d\d", value)
    targets = [value[1:] for tag, name, value in checker.attributes if (tag, name) == ("a", "href")]
    assert set(targets) <= set(checker.ids) and len(checker.ids) == len(set(checker.ids))
    policy = next(
        value
        for tag, name, value in checker.attributes
        if (tag, name) == ("meta", "content") and "default-src" in value
    )
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)
    hashes = [f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in scripts]
    assert (
        re.findall(r"script-src ([^;]*)", policy) == hashes and "fetch" not in page.partition("<script>")[2]
    )
    styles = re.search(r"<style>(.*?)</style>", page, re.S)
    assert styles and not re.search(r"url\(|@import|expression", styles[1])
    return checker


def test_the_ordinary_page_is_self_contained(make_run: Maker) -> None:
    page = (make_run(ordinary()).report() / "report.html").read_text()
    checker = check(page)
    assert [tag for tag in checker.tags if tag == "script"] == ["script"]
    assert "14 in = 7 kept + 6 removed + 1 quarantined" in page


def test_hostile_text_is_shown_not_obeyed(make_run: Maker) -> None:
    page = (make_run(hostile(), report={"samples": 20}).report() / "report.html").read_text()
    shown = "".join(check(page).words)
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>" in shown
    assert "{{ 7 * 7 }}" in shown
    for code in ("U+202E", "U+2066", "U+200B", "U+0000", "U+001B", "U+FEFF", "U+E0041"):
        assert code in shown
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x00\x1b\U000e0041]", page)
    assert "日本語" in shown and "مرحبا" in shown


def test_the_same_run_gives_the_same_bytes(make_run: Maker) -> None:
    made = make_run(ordinary())
    first = {f.name: f.read_bytes() for f in made.report("one").iterdir()}
    second = {f.name: f.read_bytes() for f in made.report("two").iterdir()}
    assert first == second and len(first) == 3


def test_no_time_and_no_place_of_the_run_is_on_the_page(make_run: Maker, tmp_path: Path) -> None:
    folder = make_run(ordinary()).report()
    for file in folder.iterdir():
        assert str(tmp_path) not in file.read_text() and "seconds" not in file.read_text()


@pytest.mark.parametrize("parts", [[], [[]]])
def test_an_empty_run_has_a_page(make_run: Maker, parts: list[list[object]]) -> None:
    page = (make_run(parts).report() / "report.html").read_text()
    assert "No record went in" in "".join(check(page).words)
