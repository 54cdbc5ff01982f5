"""MediaWiki exports: articles out of XML, text out of wikitext, and no input that makes either slow."""

from __future__ import annotations

import bz2
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.ingest.wikitext import strip
from tests.pipeline.ingest.helpers import ingest

HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="de"><siteinfo><base>https://de.wiki/wiki/'
    'Haupt</base><namespaces><namespace key="0"/><namespace key="6">Datei</namespace><namespace key="14">'
    "Kategorie</namespace></namespaces></siteinfo>"
)


def page(n: int, text: str, ns: int = 0, extra: str = "") -> str:
    return (
        f"<page><title>Title {n} &amp; Co</title><ns>{ns}</ns><id>{100 + n}</id>{extra}<revision>"
        f"<id>9</id><timestamp>2016-04-22T10:19:33Z</timestamp><contributor><username>x</username><id>5</id></contributor>"
        f'<model>wikitext</model><text xml:space="preserve">{text}</text></revision></page>\n'
    )


def test_pages(tmp_path: Path) -> None:
    pages = [
        page(0, "'''Bold''' text [[Datei:a.png|mini|no]] [[Kategorie:no]] &lt;ref&gt;no&lt;/ref&gt;end"),
        page(1, "#REDIRECT [[x]]", extra='<redirect title="x" />'),
        page(2, "#redirect [[x]]"),
        page(3, "talk", ns=1),
        page(4, "{{only a template}}"),
        page(5, "five").replace("wikitext</model>", "css</model>"),
        page(6, "six"),
    ]
    (tmp_path / "a.xml").write_text(HEAD + "".join(pages) + "</mediawiki>")
    result = ingest(tmp_path)
    one, two = result.docs
    assert one["text"].split() == ["Bold", "text", "end"]
    assert (one["source_id"], one["locator"], one["date"]) == ("100", "a.xml#0", "2016-04-22T10:19:33Z")
    assert one["url"] == "https://de.wiki/wiki/Title_0_&_Co" and json.loads(one["metadata"]) == {
        "title": "Title 0 & Co"
    }
    assert two["locator"] == "a.xml#6"
    rows = {row["locator"][-1]: (row["outcome"], row["rule"]) for row in result.decisions}
    assert rows == {
        "1": ("removed", "ingest.redirect"),
        "2": ("removed", "ingest.redirect"),
        "3": ("removed", "ingest.namespace"),
        "4": ("quarantined", "ingest.empty_text"),
        "5": ("removed", "ingest.content_type"),
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_a_dump_cut_short_keeps_the_pages_before_the_cut(tmp_path: Path, compressed: bool) -> None:
    whole = (HEAD + "".join(page(n, f"text of page {n}") for n in range(30))).encode()
    at = whole.index(b"Title 20")
    data = bz2.compress(whole[:at]) if compressed else whole[:at]
    (tmp_path / ("a.xml.bz2" if compressed else "a.xml")).write_bytes(data)
    result = ingest(tmp_path)
    assert result.texts == [f"text of page {n}" for n in range(20)]
    (row,) = result.decisions
    assert row["rule"] == "ingest.truncated" and row["locator"].endswith("#20") and row["value"] == len(data)


def test_malformed_xml_and_other_xml(tmp_path: Path) -> None:
    bad = HEAD + page(0, "zero") + "<page><title>a\x01b</title></page>" + page(1, "one")
    (tmp_path / "a.xml").write_text(bad)
    (tmp_path / "b.xml").write_text('<?xml version="1.0"?><rss><item>x</item></rss>')
    (tmp_path / "c.xml").write_bytes(b"\x00\x01\x02")
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    (tmp_path / "d.xml").write_text(f'<!DOCTYPE m [<!ENTITY e0 "ha">{entities}]><mediawiki>&e12;</mediawiki>')
    result = ingest(tmp_path)
    assert result.texts == ["zero"]
    assert {row["locator"]: row["rule"] for row in result.decisions} == {
        "a.xml#1": "ingest.malformed_xml",
        "b.xml#0": "ingest.not_mediawiki",
        "c.xml#0": "ingest.not_mediawiki",
        "d.xml#0": "ingest.malformed_xml",
    }


def test_a_page_too_large_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(HEAD + page(0, "x" * (3 << 20)) + page(1, "one") + "</mediawiki>")
    result = ingest(tmp_path, params={"max_record_mb": 1})
    assert result.texts == ["one"] and result.rules == ["ingest.record_too_large"]
    assert result.decisions[0]["value"] == 3 << 20


def test_real_dump(data_dir: Path) -> None:
    result = ingest(data_dir / "natural/encyclopedic_enwiki_dump/enwiki-pages-articles-shortened.xml.bz2")
    assert (len(result.docs), len(result.decisions)) == (106, 100)
    assert set(result.rules) == {"ingest.redirect"}
    texts = "\n".join(result.texts)
    for markup in ("{{", "}}", "[[", "]]", "<ref", "'''", "{|", "|}", "Category:", "&nbsp;"):
        assert texts.count(markup) <= len(texts) / 100_000, markup
    anarchism = result.docs[0]["text"]
    assert anarchism.startswith("Anarchism is a political philosophy that advocates self-governed societies")
    assert "\nHistory\n" in anarchism and len(anarchism) > 30_000


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("a {{t|b {{u|{{v}}}} c}} d", "a  d"),
        ("a {{unclosed b", "a {{unclosed b"),
        ("a }} b", "a }} b"),
        ("[[Target]], [[Target|shown]], [[Target#Part|shown]]s", "Target, shown, showns"),
        ("[[Mercury (planet)|]] and [[Help:Contents|]]", "Mercury and Contents"),
        ("[[File:a.jpg|thumb|100px|caption with [[link]] and {{t}}]]after", "after"),
        ("[[Category:Things]][[fr:Chose]][[:Category:Things]]", "Category:Things"),
        (
            "see [http://x.org the site] and [http://y.org] and http://z.org",
            "see the site and  and http://z.org",
        ),
        ("'''''both''''' '''bold''' ''italic'' don't", "both bold italic don't"),
        ('x<ref name="a">note {{c}}</ref>y<ref name=b />z<ref>unclosed', "xyzunclosed"),
        ("x<!-- a\nb -->y<!-- to the end", "xy"),
        ("== Heading ==\ntext\n=== Empty ===\n== Also empty ==\n\n== Last ==\n", "Heading\ntext"),
        ("== A ==\n=== B ===\ntext", "A\nB\ntext"),
        ("* one\n** two\n# three\n: four\n; five", "- one\n- two\n- three\nfour\nfive"),
        ("a\n{| class=x\n! h\n|-\n| c || {{t}}\n{|\n| nested\n|}\n|}\nb", "a\n\nb"),
        ("<nowiki>[[no]] '''link''' &lt;</nowiki> [[yes]]", "[[no]] '''link''' < yes"),
        ('a<br />b<p>c</p><span style="x">d</span>', "a\nb\nc\nd"),
        ("5&nbsp;km &lt;b&gt; &amp;amp; &eacute;", "5 km <b> &amp; é"),
        ("{{lang|fr|bonjour}} {{nowrap|a b}} {{convert|5|km|mi}}", "bonjour a b 5 km"),
        ("Name ({{IPA|x}}) is; Other ({{IPA|x}}; born 1)", "Name is; Other (born 1)"),
        ("__NOTOC__a\n----\nb", "a\n\nb"),
        ("1 < 2 and 3 > 2, {a} [b]", "1 < 2 and 3 > 2, {a} [b]"),
        ("<math>x^2 < y</math>after", "after"),
        ("\ufdd0[[a]]\ufdd5", "a"),
    ],
)
def test_wikitext(wikitext: str, text: str) -> None:
    assert strip(wikitext) == text


PIECES = [
    "{{",
    "}}",
    "[[",
    "]]",
    "{|",
    "|}",
    "{|\n",
    "[[a|",
    "{{lang|x|",
    "{{a|",
    "<ref>",
    "</ref>",
    "<ref",
    "<!--",
    "-->",
    "[http://",
    "<nowiki>",
    "</nowiki",
    "<nowiki></nowiki",
    "'''",
    "==",
    "(",
    "( ",
    "(;",
    "&",
    "<",
    "<a ",
    "\n",
    "* ",
    "__A",
    "[[[",
    "{{{",
    "{{lang|a=",
    "[//",
    "&#",
    "|",
    " ",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", PIECES)
def test_half_a_megabyte_of_one_token_ends(piece: str) -> None:
    """Half a second where time is linear, minutes where it is quadratic: the limit tells them apart."""
    strip(piece * (500_000 // len(piece)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "wikitext",
    [
        "[[" * 100_000 + "a" + "]]" * 100_000,
        "{{lang|a|" * 60_000 + "a" + "}}" * 60_000,
        "[[{{" * 99_000 + "]]}}" * 99_000,
        "<ref>" * 99_000 + "</ref>" * 99_000,
        ("[[" * 39 + "a" * 1000 + "]]" * 39) * 500,
        "(" + " " * 900_000,
        "{{lang|" + "a=|" * 200_000 + "}}",
        "{{lang|" + " " * 500_000 + "}}",
        "=" * 500_000,
        "=\n" * 200_000,
    ],
)
def test_nests_and_runs_end(wikitext: str) -> None:
    """As above, for markup that nests or repeats within one construct."""
    strip(wikitext)


@settings(max_examples=150)
@given(st.lists(st.sampled_from([*PIECES, "word", " ", "é"]), max_size=60).map("".join))
def test_any_markup_gives_text_without_made_up_characters(wikitext: str) -> None:
    text = strip(wikitext)
    assert set(text) <= set(wikitext) | set(" \n-<>")
    assert not any(0xFDD0 <= ord(char) < 0xFDF0 for char in text)
