"""The main text of web pages: what stays and how it is laid out, what the page says of itself, pages built to do harm, and real pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from corpusmill.pipeline.ingest.readers.html import extract
from corpusmill.pipeline.ingest.readers.main_text import context as around
from corpusmill.pipeline.ingest.readers.main_text import features as alone
from corpusmill.pipeline.ingest.readers.main_text.assemble import assemble
from corpusmill.pipeline.ingest.readers.main_text.extract import MAX_BLOCKS, blocks_of, main_text
from corpusmill.pipeline.ingest.readers.main_text.scan import B_CHARS, B_LINK_CHARS, MAX_OPEN, OWNER, TAG
from corpusmill.pipeline.ingest.readers.main_text.trees import (
    Model,
    Trees,
    dump,
    load,
    load_bytes,
    shipped_model,
)
from corpusmill.pipeline.ingest.readers.main_text.vocabulary import NUMBER, words_of
from corpusmill.pipeline.ingest.readers.page_fields import PageFields, iso_date, page_fields
from tests.pipeline.ingest.helpers import ingest

WEB = Path(__file__).resolve().parents[4] / "shared/data/web"
PARAGRAPHS = (
    "The river rose for three days, and on the fourth the bridge at the mill gave way, as the older people had said it would.",
    "Nobody was on it. A cart had crossed an hour before, loaded with flour, and its driver still tells the story in the inn.",
    "When the water fell, the council met, argued for a week, and decided to build the new bridge of stone, which stands today.",
)
MENU = "".join(
    f"<li><a href='/{name}'>{name}</a></li>"
    for name in ("Home", "News", "Sport", "Weather", "Contact", "Log in")
)
PAGE = f"""<!doctype html><html lang="en-GB"><head><title>The bridge | Village News</title>
<meta property="article:published_time" content="2021-04-05T06:07:08Z"><meta name="author" content="A. Miller"></head><body>
<header><a href="/">Village News</a><nav><ul class="menu">{MENU}</ul></nav></header>
<main><article class="article-body"><h1>The bridge</h1><p>{PARAGRAPHS[0]}</p><p>{PARAGRAPHS[1]}</p>
<pre>level = 3
  if rain:
    level += 1</pre><p>{PARAGRAPHS[2]}</p></article>
<div class="share"><a href="#">Share</a> <a href="#">Tweet</a> <a href="#">Mail</a></div></main>
<aside class="related"><h3>More news</h3><ul><li><a href="/1">Cows on the road again</a></li><li><a href="/2">Fair on Sunday</a></li></ul></aside>
<footer>Copyright 2021 <a rel="license" href="https://creativecommons.org/licenses/by/4.0/">CC BY</a></footer></body></html>"""


def laid_out(html: str) -> str:
    """All blocks of a page, whatever the model thinks of them."""
    blocks = blocks_of(HTMLTree.parse(html))
    return assemble(blocks.data, blocks.page, np.ones(len(blocks.features), np.bool_))


def test_an_article_among_what_surrounds_it() -> None:
    text = main_text(HTMLTree.parse(PAGE))
    for paragraph in PARAGRAPHS:
        assert f"{paragraph}" in text.split("\n\n")
    assert "level = 3\n  if rain:\n    level += 1" in text
    for gone in ("Sport", "Tweet", "Cows on the road", "Copyright", "Log in"):
        assert gone not in text


COMMENTS = [
    f"As visitor number {n} I have to say that I crossed that bridge as a child, and that it was no wider then than it is today."
    for n in range(12)
]
THREAD = (
    "<ol class='comment-list'>"
    + "".join(f"<li class='comment'><p>{comment}</p></li>" for comment in COMMENTS)
    + "</ol>"
)


def test_comments_below_an_article_are_left_out() -> None:
    page = PAGE.replace("</article>", f"{THREAD}</article>")
    assert page != PAGE
    text = main_text(HTMLTree.parse(page))
    assert all(paragraph in text for paragraph in PARAGRAPHS) and "visitor number" not in text


def test_a_section_on_comments_is_kept() -> None:
    section = f"<section id='comments'><h2>Discussion</h2><p>{COMMENTS[0]}</p><p>{COMMENTS[1]}</p></section>"
    text = main_text(HTMLTree.parse(PAGE.replace("</article>", f"{section}</article>")))
    assert COMMENTS[0] in text and COMMENTS[1] in text


def test_comments_that_are_all_of_a_page_are_kept() -> None:
    text = main_text(HTMLTree.parse(f"<body><h1>The bridge</h1><div>{THREAD}</div></body>"))
    assert all(comment in text for comment in COMMENTS)


def test_what_the_page_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    (document,) = ingest(tmp_path / "a.html").docs
    assert json.loads(document["metadata"]) == {
        "title": "The bridge | Village News", "language": "en-GB", "published": "2021-04-05T06:07:08Z", "author": "A. Miller",
        "license": "https://creativecommons.org/licenses/by/4.0/",
    }  # fmt: skip
    assert document["date"] == "2021-04-05T06:07:08Z"


def test_fields_of_linked_data() -> None:
    linked = {
        "@graph": [
            {
                "@type": "NewsArticle",
                "datePublished": "2019-02-03",
                "author": [{"name": "B. Baker"}],
                "license": "https://l.example/",
            }
        ]
    }
    page = f"<script type='application/ld+json'>{json.dumps(linked)}</script><script type='application/ld+json'>{{broken</script><p>x</p>"
    assert page_fields(HTMLTree.parse(page)) == PageFields(
        None, None, "2019-02-03", "https://l.example/", "B. Baker"
    )
    assert (
        page_fields(HTMLTree.parse("<html lang='not a language'><meta name=date content='soon'><p>x"))
        == PageFields()
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2020-02-29", "2020-02-29"), ("20200229", "2020-02-29"), ("2020-02-30", None), ("2020-01-02 03:04", "2020-01-02T03:04"),
        ("2020-01-02T03:04:05.678+01:00", "2020-01-02T03:04:05+01:00"), ("last week", None), ("", None),
    ],
)  # fmt: skip
def test_dates(value: str, found: str | None) -> None:
    assert iso_date(value) == found


def test_paragraphs_lists_tables_and_code_stay_apart() -> None:
    page = """<h1>T&amp;C</h1><p>One <b>two</b>&nbsp;three<br>four<br><br>five &lt;x&gt;</p><ul><li>a<li>b<ol><li>c<li><p>d</p><p>e</p></ol></ul>
    <table><tr><th>H<th>I<tr><td>1<td>2</table><pre>def f():
    return a &lt; 1
</pre><dl><dt>term<dd>what it means</dl>the end"""
    assert laid_out(page) == (
        "T&C\n\nOne two three\nfour\n\nfive <x>\n\n- a\n- b\n  1. c\n  2. d\ne\n\nH\tI\n1\t2\n\ndef f():\n    return a < 1\n\n"
        "term\nwhat it means\n\nthe end"
    )


def test_what_is_not_seen_is_left_out() -> None:
    page = """<p>seen</p><p style="color:red; display : none">no</p><div hidden><p>no</p></div><p aria-hidden="true">no</p>
    <p style="visibility:hidden">no</p><script>no("<p>no</p>")</script><style>p{}</style><template><p>no</p></template><noscript><p>no</p></noscript>
    <!-- <p>no</p> --><select><option>no</select><textarea><p>no</textarea><p>seen too</p>"""
    assert laid_out(page) == "seen\n\nseen too"


def test_blocks_know_their_links_and_words() -> None:
    blocks = blocks_of(
        HTMLTree.parse("<div id='mainContent' class='related_posts'><p>ab <a href=x>cde</a></p></div>")
    )
    ((_, *_),) = [tuple(row) for row in blocks.page.blocks[:, :2]]
    (row,) = blocks.page.blocks
    assert (row[B_CHARS], row[B_LINK_CHARS]) == (5, 3)
    assert blocks.page.nodes[row[OWNER], TAG] == NUMBER["p"]
    assert {"related", "content"} <= set(words_of("mainContent related_posts"))
    assert "advertisement" not in words_of("header-shadow") and "advertisement" in words_of("box ad-top")


def test_pages_built_to_exhaust_a_parser(tmp_path: Path) -> None:
    """Nested deeper than is kept track of, unclosed, cut off, with 10^5 attributes or entries: in seconds, and with their text."""
    deep = "<div>" * (3 * MAX_OPEN) + "deep" + "</div>" * (3 * MAX_OPEN) + "<p>after</p>"
    blocks = blocks_of(HTMLTree.parse(deep))
    assert "after" in assemble(blocks.data, blocks.page, np.ones(len(blocks.features), np.bool_))
    for page in (
        "<p " + " ".join(f"a{i}=1" for i in range(9_000)) + ">text</p>",
        "<ul>" + "<li>x" * 100_000,
        "<b>" * 10_000 + "text",
        PAGE[: len(PAGE) // 2],
        "<table>" + "<tr><td>1" * 50_000,
    ):
        assert laid_out(page)
    (tmp_path / "a.html").write_text("<div>" * 100_000 + "x", encoding="utf-8")
    assert ingest(tmp_path / "a.html").rules == ["ingest.html_too_complex"]
    (tmp_path / "a.html").write_text("<ul>" + "<li>x" * (MAX_BLOCKS + 1), encoding="utf-8")
    assert ingest(tmp_path / "a.html").rules == ["ingest.html_too_complex"]


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from("<>/=\"' -!abpdiv&;\n\u4e2d\u00e9"), max_size=200))
def test_whatever_comes_is_laid_out(html: str) -> None:
    tree = HTMLTree.parse(html)
    text = laid_out(html)
    assert "\x00" not in text and len(text) <= 4 * len(html) + 30
    assert len(main_text(tree)) <= len(text)


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_bytes_are_extracted_or_refused(data: bytes) -> None:
    try:
        text = extract(b"<html><body>" + data, None, "main_text").text
    except ValueError:
        return
    text.encode()


def test_a_model_comes_back_as_it_was_written() -> None:
    stump = Trees(*(np.array(values, kind) for values, kind in (
        ([0], np.int32), ([0, -1, -1], np.int16), ([2.5, -1.0, 1.0], np.float32), ([1, 0, 0], np.int32), ([2, 0, 0], np.int32),
    )))  # fmt: skip
    assert stump(np.array([[2.5], [2.6]], np.float32)) == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])
    model = load_bytes(dump(Model(stump, stump, 0.25, ("one",))))
    assert model.threshold == 0.25 and model.names == ("one",)
    for ours, theirs in zip(model.first, stump, strict=True):
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()


def test_the_shipped_model_is_of_these_features() -> None:
    """A feature that is added, removed or moved needs `python -m tools.train_main_text`."""
    assert load().names == (*alone.NAMES, *around.NAMES)
    assert shipped_model() in (Path(alone.__file__).parent / "model.md").read_text(encoding="utf-8")


def test_the_same_in_another_process() -> None:
    code = "import sys; from resiliparse.parse.html import HTMLTree\nfrom corpusmill.pipeline.ingest.readers.main_text.extract import main_text\nsys.stdout.write(main_text(HTMLTree.parse(sys.stdin.read())))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=PAGE, capture_output=True, text=True, check=True
    )
    assert done.stdout == main_text(HTMLTree.parse(PAGE))


@pytest.mark.skipif(not WEB.exists(), reason="the shared test data is not there")
def test_real_pages_that_the_model_was_not_made_of() -> None:
    """A little below the figures of the bench `html_extraction`, on its held-out pages."""
    from bench.html_extraction import HELD_OUT, gold_pages, groups, parts, scores, segment_pages

    everything = [*segment_pages(WEB / "trafilatura_eval"), *gold_pages(WEB / "readability_test_pages")]
    dealt, first = parts(everything), groups(everything)
    assert len(set(zip(first.tolist(), dealt, strict=True))) == len(
        set(first.tolist())
    )  # like pages are in one part
    pages = [page for page, part in zip(everything, dealt, strict=True) if part == HELD_OUT]
    assert len(pages) > 70
    found = scores([main_text(HTMLTree.parse(page.html)) for page in pages], pages)
    assert found["word_f1"] > 0.945 and found["gram_f1"] > 0.93
    assert found["precision"] > 0.84 and found["recall"] > 0.94
