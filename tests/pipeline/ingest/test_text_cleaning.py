"""Encodings and clean text: what is mended, what is left alone, what is refused."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ftfy.badness import BADNESS_RE, MOJIBAKE_CATEGORIES, is_bad
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.ingest.decoding import Decoded, Undecodable, decode
from corpusmill.pipeline.ingest.mojibake import MANY_PLACES, WIDEST, bad_ones, classes, looks_bad
from corpusmill.pipeline.ingest.readers.html import decode_html, extract
from corpusmill.pipeline.ingest.text_cleaning import clean, scrub_surrogates
from corpusmill.pipeline.ingest.text_marks import DIRTY, SUSPECT, UNUSUAL, long_enough, marks
from corpusmill.pipeline.text.buffers import view

GERMAN = "Die Größe der Bücher überrascht – schöne Grüße aus München!"
RUSSIAN = "Это обычный русский текст, достаточно длинный для определения кодировки."
JAPANESE = "これは日本語の文章です。文字コードの判定には十分な長さがあります。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "utf-8"),
        (GERMAN, "cp1252"),
        (GERMAN, "utf-16"),
        (GERMAN, "utf-8-sig"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        (JAPANESE, "utf-16"),
        (RUSSIAN, "utf-32"),
        ("plain ASCII", "ascii"),
        ("", "ascii"),
    ],
)
def test_detected(text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert (decoded.repaired is None) == encoding.startswith(("utf", "ascii"))


@pytest.mark.parametrize("encoding", ["cp1252", "iso-8859-1", "latin1", "windows-1252"])
def test_declared_and_right_is_no_repair(encoding: str) -> None:
    assert decode("Größe ohne Sonderzeichen".encode("latin-1"), encoding) == Decoded(
        "Größe ohne Sonderzeichen"
    )


def test_declared_and_wrong_is_repaired() -> None:
    assert decode(GERMAN.encode(), "iso-8859-1") == (GERMAN, "utf-8", "read as utf-8")
    assert decode(GERMAN.encode("cp1252"), "utf-8") == (GERMAN, "cp1252", "read as cp1252")
    assert decode(RUSSIAN.encode("cp1251"), "no-such-encoding").text == RUSSIAN
    assert decode(b"\xa4\xa2\xa4\xa4", "euc-jp") == Decoded("あい")


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (bytes(range(256)), 128),
        (
            GERMAN.encode() + b" \xff " * 9 + GERMAN.encode(),
            len(GERMAN.encode()) + 1,
        ),  # UTF-8, too often broken
        (b"\x00\x01\x02\x03" * 9, 0),
        (b"ab\x81\x8d\x8f\x90\x9d", 2),
    ],
)
def test_undecodable(data: bytes, position: int) -> None:
    with pytest.raises(Undecodable) as error:
        decode(data)
    assert error.value.position == position


@given(st.text(max_size=200))
def test_utf8_is_left_alone(text: str) -> None:
    try:
        decoded = decode(text.encode())
    except Undecodable:
        assert sum(char < " " or "\x7f" <= char <= "\x9f" or char == "\ufeff" for char in text) * 10 > len(
            text
        )
    else:
        assert decoded == Decoded(text.removeprefix("\ufeff"))


def cleaned(*texts: str, repair: bool = True) -> tuple[list[str], Counter[str]]:
    counters: Counter[str] = Counter()
    return clean(pa.array(texts, pa.large_string()), repair, counters).to_pylist(), counters


def test_mojibake_is_mended_and_counted() -> None:
    texts = [GERMAN, RUSSIAN, JAPANESE, "plain"]
    broken = [text.encode().decode("latin-1") for text in texts[:3]]
    assert cleaned(*broken, "plain") == (
        texts,
        Counter({"encoding_repaired": 3, "encoding_repaired/mojibake": 3}),
    )
    assert cleaned(*texts) == (texts, Counter())
    assert cleaned("schÃ¶n", repair=False) == (["schÃ¶n"], Counter())


def test_nothing_else_of_ftfy_is_done() -> None:
    text = "“curly” ﬁ ligature &lt;tag&gt; ｆｕｌｌ e\u0301 \x1b[31m"
    assert cleaned(text + " schÃ¶n")[0] == [text.replace("\x1b", "") + " schön"]


def test_controls_and_newlines() -> None:
    texts, counters = cleaned(
        "a\x00b\x07c\x7fd", "a\r\nb\rc\x0bd\x0ce\u2028f\u2029g", "\ufefftab\tstays", "fine\n"
    )
    assert texts == ["abcd", "a\nb\nc\nd\ne\nf\ng", "tab\tstays", "fine\n"]
    assert counters == {"control_characters_stripped": 2}


NEIGHBOURS = st.text(
    alphabet=st.one_of(
        st.sampled_from("aA \x80\x9d\xa0\xad°¢£«»ÂÃÎÐØÙàéœŒ√≈‚Äâóвгђ€βēā™’“…ГўВЂ.×²"),
        st.sampled_from(sorted({char for text in MOJIBAKE_CATEGORIES.values() for char in text} | {*" \na"})),
    ),
    max_size=8,
)


@settings(max_examples=500)
@given(NEIGHBOURS, st.sampled_from(["", "plain text of ASCII ", "日本語", "\U0001f600"]))
def test_whatever_ftfy_calls_bad_is_looked_at(text: str, around: str) -> None:
    texts = pa.array(["", around + text + around, "after"], pa.large_string())
    found = marks(*view(texts), classes())
    bad = is_bad(texts[1].as_py())
    assert found[1] & SUSPECT or not bad
    assert looks_bad(texts).to_pylist()[1] or not bad
    assert not (found[[0, 2]] & SUSPECT).any() and not any(looks_bad(texts).to_pylist()[::2])
    suspects = np.flatnonzero(found & SUSPECT)
    assert bad_ones(texts, suspects) == [1] * bad
    many = pa.array(["", " ".join(["śćż"] * MANY_PLACES) + around + text], pa.large_string())
    assert bad_ones(many, np.array([1])) == [1] * looks_bad(many)[1].as_py()


def test_what_the_heuristic_matches_is_no_longer_than_the_window() -> None:
    from re import _parser  # type: ignore[attr-defined]  # the only place where the width of a pattern is known

    assert _parser.parse(BADNESS_RE.pattern, BADNESS_RE.flags).getwidth()[1] < WIDEST
    assert not re.search(r"\(\?[=!<]|\$|\\[bBZ]", BADNESS_RE.pattern)  # nothing that looks beyond


def test_text_in_many_languages_is_not_taken_for_bad() -> None:
    texts = [
        GERMAN,
        RUSSIAN,
        JAPANESE,
        "Zażółć gęślą jaźń",
        "Dvě děti šly",
        "Tiếng Việt có dấu",
        "Ελληνικά",
        "œuvre",
    ]
    assert not any(looks_bad(pa.array(texts, pa.large_string())).to_pylist())


@settings(max_examples=300)
@given(
    st.lists(st.text(st.one_of(st.sampled_from("ab \t\n\r\x0b\x1f\x7f\x80\x85\x9f\xa0é\u2028\u2029\ufeff語"), st.characters(codec="utf-8"))), max_size=6),
    st.integers(0, 6),
)  # fmt: skip
def test_marks_are_those_that_patterns_find(texts: list[str], begin: int) -> None:
    array = pa.array(texts, pa.large_string()).slice(begin)
    dirty = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\u2028\u2029]")
    wanted = [DIRTY * bool(dirty.search(text)) + UNUSUAL * (not text.isascii()) for text in texts[begin:]]
    assert (marks(*view(array), np.zeros(0, np.uint8)) == wanted).all()


@given(
    st.lists(
        st.text(
            st.one_of(st.sampled_from("a \t\u3000\x85\xa0\u1680\x1f"), st.characters(codec="utf-8")),
            max_size=9,
        )
    ),
    st.integers(0, 9),
)
def test_a_text_that_is_long_enough_is(texts: list[str], least: int) -> None:
    array = pa.array(texts, pa.large_string())
    trimmed = pc.utf8_length(pc.utf8_trim_whitespace(array)).to_pylist()
    for enough, length, text in zip(long_enough(*view(array), least), trimmed, texts, strict=True):
        assert (
            length >= least
            if enough
            else not text.isascii() or least > len(text.translate(dict.fromkeys(range(33), "")))
        )


@given(st.lists(st.text(max_size=30), max_size=8))
def test_clean_is_idempotent_and_leaves_no_control(texts: list[str]) -> None:
    once, _ = cleaned(*texts)
    assert cleaned(*once, repair=False)[0] == once
    assert not any(
        (char < " " and char not in "\t\n") or "\x7f" <= char <= "\x9f" for text in once for char in text
    )


def test_a_slice_of_an_array_is_cleaned_as_itself() -> None:
    array = pa.array(["x\x00", "y", "z\x00", "schÃ¶n"], pa.large_string()).slice(1, 3)
    assert clean(array, True, Counter()).to_pylist() == ["y", "z", "schön"]


def test_surrogates() -> None:
    assert scrub_surrogates("a\ud800b\udfffc\ud83d\ude00") == "a�b�c😀"


PAGE = (
    '<html><head><meta charset="{0}"><title> A  title </title></head><body><article><p>'
    + GERMAN
    + "</p></article>"
)


def test_html_encodings_in_order_of_trust() -> None:
    assert GERMAN in decode_html(PAGE.format("iso-8859-1").encode("cp1252"), None).text
    assert decode_html(PAGE.format("utf-8").encode("cp1252"), "windows-1252").repaired is None
    assert decode_html(PAGE.format("iso-8859-1").encode(), None).repaired == "utf-8"
    assert (
        RUSSIAN
        in decode_html((PAGE.format("windows-1251") + RUSSIAN).encode("cp1251", "ignore"), "utf-8").text
    )
    assert decode_html(GERMAN.encode("utf-16"), "utf-8").text == GERMAN
    broken = decode_html(PAGE.format("utf-8").encode() * 3 + b"\xff", None)
    assert broken.repaired == "replaced" and broken.text.endswith("\ufffd")
    with pytest.raises(Undecodable):
        decode_html(bytes(range(256)) * 3, None)


def test_html_main_text() -> None:
    menu = "<nav><ul>" + "<li><a href='/x'>Menu entry</a></li>" * 20 + "</ul></nav>"
    page = (
        PAGE.format("utf-8").replace("<article>", menu + "<article>")
        + "<footer>Copyright</footer><script>x()</script>"
    )
    main = extract(page.encode(), None, "resiliparse")
    assert main.text == GERMAN and main.fields.title == "A title" and main.decoded.repaired is None
    everything = extract(page.encode(), None, "all_text")
    assert "Menu entry" in everything.text and GERMAN in everything.text and "x()" not in everything.text
    pytest.importorskip("trafilatura")
    assert GERMAN in extract(page.encode(), None, "trafilatura").text


def test_missing_trafilatura_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from corpusmill.schemas.recipe import Recipe

    monkeypatch.setitem(sys.modules, "trafilatura", None)
    from corpusmill.pipeline.ingest.stage import Ingest

    config = {"name": "t", "sources": {"s": {"paths": ["x"]}}, "ingest": {"html_extractor": "trafilatura"}}
    with pytest.raises(UserError, match=r"corpusmill\[html\]"):
        Ingest(Recipe.model_validate(config)).key_params()
