"""Signals: by hand, against the slow oracle, and for any text at all."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.apply import signals_of_text
from corpusmill.pipeline.filter.signals.catalogue import every_spec, text_specs
from corpusmill.pipeline.filter.signals.registry import signal
from corpusmill.pipeline.filter.text.words import FUNCTION_WORDS
from tests.conftest import ROOT
from tests.pipeline.filter import oracle
from tests.pipeline.filter.helpers import PROSE, measured, one

# Words that meet: repeats, marks, phrases, scripts, every kind of space. Surrogates are no text.
PIECES = [
    "a", "the", "The", "of,", "(with)", "word", "word", "...", "…", "#", "-", "•", "*", "{", "12", "٣٤",
    "É", "e\u0301",
    "日本語", "。", "مرحبا", "؟", "नमस्ते", "।", "😀", "end.", '"Yes."', "it?'", "“so!”", "x...", "[1]",
    "[edit]",
    "[citation needed]", "[]", "[x", "Lorem Ipsum", "JavaScript", "privacy policy", "Terms of use",
    "uses cookies",
    "use cookies", "use of cookies", "cookie policy", "x" * 1001, "\n", "\n", "\n\n", " ", " ", " ", "\t",
    "\r\n",
    "HELLO", "McDonald", "o'Neil", "(Yes)", "don't", "ǅ", "İ", "ß", "Ⅷ", "½", "한국", "ｶﾞ", "\u0304", "_", "}", "⟨", "‣",
    "–", "”", "http://a.b/c?d=%20", "HTTPS://x", "http://", "xhttp://a\"b", "://a", ",", "3 likes", "1,2.5K  views!",
    "(7\u3000Shares)", "٣ quotes", "sign-in", "Sign-in now", "Read more...", "Items in Cart", "items in cart\n",
    "1 1 1 1 1 1 1 1 1", "\u00a0", "\u2028", "\u3000", "\x85", "\x1c", "\x00", "\ufeff", "\U0010ffff",
]  # fmt: skip
pieces = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
texts = pieces | st.text(max_size=200) | st.text(alphabet="ab .\n", max_size=300)


def check(text: str) -> None:
    expected, found = oracle.signals(text), one(text)
    assert found.keys() == expected.keys()
    wrong = {k: (found[k], v) for k, v in expected.items() if not math.isclose(found[k], v, rel_tol=1e-6)}
    assert not wrong, repr(text[:300])


@given(texts)
def test_every_signal_equals_the_slow_way(text: str) -> None:
    check(text)


@given(texts)
def test_values_are_finite_and_in_their_range(text: str) -> None:
    found = one(text)
    for spec in text_specs():
        low, high = spec.range
        value = found[spec.name]
        assert math.isfinite(value)
        assert (low is None or value >= low) and (high is None or value <= high), spec.name


@given(st.lists(texts, max_size=8), st.data())
def test_a_document_is_measured_alone(batch: list[str], data: st.DataObject) -> None:
    together = signals_of_text(pa.array(batch, pa.large_string()))
    cut = data.draw(st.integers(0, len(batch)))
    # A slice of a longer array: offsets that do not start at 0.
    longer = pa.array(["before", *batch], pa.large_string())
    first, second = signals_of_text(longer.slice(1, cut)), signals_of_text(longer.slice(1 + cut))
    for name, column in together.items():
        assert column.to_pylist() == first[name].to_pylist() + second[name].to_pylist()


def test_hard_texts_equal_the_slow_way() -> None:
    for text in (
        "",
        "\n\n\n",
        " \t\u3000",
        "no line end",
        "a\r\nb\r\n\r\nc",
        PROSE * 3,
        "x" * 5000 + " end.",
        "a a a a a a a a a a a a a a a",
        "one two three four five six seven eight nine ten " * 7,
        "- a\n• b\n● c\n* d\n– e\n",
        "Said so.[1][23] \nNo end [edit]\n[citation needed]\nSo he said...[4]\nTrue.[a]",
        f"Said so.[{'1' * 30}]\nAnd so.",
        "No mark.[cxxxxxxx nxxxxx]\n].\n1].\n[].\n1]",
    ):
        check(text)


def test_real_text_equals_the_slow_way(data_dir) -> None:  # type: ignore[no-untyped-def]
    path = data_dir / "natural/books_gutenberg/Lewis_Carroll_Alice_s_Adventures_in_Wonderland.md"
    book = path.read_text(encoding="utf-8")
    for start in range(0, len(book), 20_000):
        check(book[start : start + 20_000])


def test_later_copies_as_datatrove_counts_them() -> None:
    # Ten lines, two of them twice over: later copies are .20, all copies (Dolma, DCLM) would be .40.
    lines = [f"line number {i}" for i in range(8)]
    text = "\n".join([*lines, lines[0], lines[3]])
    found = one(text)
    assert found["gopher.dup_line_frac"] == pytest.approx(0.2)
    assert found["gopher.dup_line_chars"] == pytest.approx(2 * 13 / len(text))
    assert found["fineweb.char_dup_ratio"] == pytest.approx(26 / (len(text) - 9))


def test_ngram_shares_by_hand() -> None:
    # Dolma's fixture text: words of 4, 2, 1 and 5 characters. Alone, nothing in it is repeated: 0, where
    # tools that count an n-gram which occurs once say .5, .58 and 1.
    once = one("This is a test.")
    assert once["gopher.top_2_gram"] == once["gopher.top_4_gram"] == 0
    twice = one("This is a test. This is a test.")
    # Top 2-gram: "This is" and "a test." occur twice with 6 characters each, of 24; the first in text wins.
    assert twice["gopher.top_2_gram"] == pytest.approx(0.5)
    assert twice["gopher.top_3_gram"] == pytest.approx(16 / 24)  # "is a test.", the longer of two
    assert twice["gopher.top_4_gram"] == pytest.approx(1.0)
    assert twice["gopher.dup_5_gram"] == 0
    # Ten words and the first six of them again: the later copy is 6 of 16 equal words.
    ten = [f"w{i}" for i in range(10)]
    again = one(" ".join([*ten, *ten[:6]]))
    assert again["gopher.dup_5_gram"] == again["gopher.dup_6_gram"] == pytest.approx(6 / 16)
    assert again["gopher.dup_7_gram"] == 0


def test_of_equal_ngrams_the_first_in_the_text_counts() -> None:
    # "aa aa" and "bb cc" occur twice, of 4 characters each; the first overlaps itself: 3 words of 9.
    assert one("aa aa aa xx bb cc yy bb cc")["gopher.top_2_gram"] == pytest.approx(3 / 9)
    assert one("bb cc xx bb cc yy aa aa aa")["gopher.top_2_gram"] == pytest.approx(4 / 9)


def test_an_overlapping_ngram_counts_its_words_once() -> None:
    assert one("a a a a a a")["gopher.top_2_gram"] == 1.0
    assert one("a " * 12)["gopher.dup_10_gram"] == pytest.approx(11 / 12)


def test_characters_and_bytes_are_kept_apart() -> None:
    found = one("日本語 テスト。")
    assert (found["document.chars"], found["document.bytes"]) == (8, 22)
    assert found["gopher.word_count"] == 2 and found["gopher.mean_word_length"] == 3.5
    assert found["fineweb.line_punct_ratio"] == 1 and found["document.sentences"] == 1


def test_letters_and_digits_of_all_scripts() -> None:
    found = one("مرحبا نص e\u0301te\u0301 नमस्ते 12 ٣٤ ५६ — 😀")
    assert found["gopher.alpha_words"] == pytest.approx(4 / 9)
    assert found["document.digits_ratio"] == pytest.approx(6 / found["document.chars"])


def test_stop_words_are_distinct_and_their_case_and_punctuation_do_not_count() -> None:
    assert one("the the the THE")["gopher.stop_words"] == 1
    assert one('The, (be) to. "of" AND that; have with!')["gopher.stop_words"] == 8
    assert one("thee bet tow off andy th\u00e9")["gopher.stop_words"] == 0


def test_phrases_are_found_at_both_ends_of_the_text_and_not_across_lines() -> None:
    assert one("privacy policy")["c4.policy_lines"] == 1
    assert one("see our terms of USE")["c4.policy_lines"] == 1
    assert one("terms of\nuse")["c4.policy_lines"] == 0
    assert one("lorem ipsum")["c4.lorem_ipsum"] == 1 and one("orem ipsum")["c4.lorem_ipsum"] == 0
    # A phrase cut by the document's edge is not completed by its neighbour.
    assert measured(["uses cook", "ies lorem", " ipsum"])["c4.policy_lines"] == [0, 0, 0]
    assert measured(["lorem", " ipsum"])["c4.lorem_ipsum"] == [0, 0]


def test_a_line_of_a_million_characters() -> None:
    found = one("word " * 200_000)
    assert found["gopher.word_count"] == 200_000 and found["document.lines"] == 1
    assert found["gopher.top_2_gram"] == 1.0 and found["gopher.dup_10_gram"] > 0.9999
    solid = one("x" * 1_000_000)
    assert solid["gopher.word_count"] == 1 and solid["gopher.mean_word_length"] == 1_000_000
    assert solid["c4.long_word_lines"] == 1


def test_a_word_of_exactly_a_thousand_characters_is_not_long() -> None:
    assert one("x" * 1000)["c4.long_word_lines"] == 0 and one("é" * 1001)["c4.long_word_lines"] == 1


def test_specs_are_complete_and_names_unique() -> None:
    names = [spec.name for spec in text_specs()]
    assert len(set(names)) == len(names) and all(spec.origin and spec.unit for spec in text_specs())
    with pytest.raises(ValueError, match=r"gopher\.word_count is defined twice"):
        signal("gopher.word_count", "words", "nobody")
        signal("gopher.word_count", "words", "nobody")(lambda v: v.words)


def test_words_by_hand() -> None:
    found = one("NASA told “McDonald” that The end - of it - is near (HELLO).")
    assert found["document.words"] == 13 and found["redpajama.word_count"] == 11
    assert found["document.all_caps_words_ratio"] == pytest.approx(2 / 13)
    assert found["document.capitalized_words_ratio"] == pytest.approx(1 / 13)  # The
    assert found["gopher.stop_words"] == 3 and found["document.stop_words_ratio"] == pytest.approx(3 / 13)
    assert found["document.longest_word"] == 10
    assert found["redpajama.mean_word_length"] == pytest.approx(41 / 11)


def test_entropy_by_hand() -> None:
    assert one("a b c d")["redpajama.unigram_entropy"] == pytest.approx(math.log(4))
    assert one("A, a! a (a)")["redpajama.unigram_entropy"] == 0
    assert one("a a a b")["redpajama.unigram_entropy"] == pytest.approx(
        0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    )
    assert one("... - !")["redpajama.unigram_entropy"] == one("")["document.type_token_ratio"] == 0


def test_sentences_go_over_lines_and_need_an_end() -> None:
    found = one("A heading\nThe first one.  “And a second!” No end")
    assert found["document.sentences"] == 2
    assert found["document.mean_sentence_length"] == pytest.approx((24 + 15) / 2)
    assert found["document.short_sentences_ratio"] == 0.5 and found["document.long_sentences_ratio"] == 0
    assert one("x" * 74 + ".")["document.long_sentences_ratio"] == 1


def test_page_furniture_line_by_line() -> None:
    lines = {
        "3 likes": "counter", "1,234.5K\tViews!": "counter", "(12 followers)": "counter", "٣ shares": "counter",
        "3likes": "", "three likes": "", "3 likes here": "", "3 K likes": "", "likes": "", "3.5 mb shares": "",
        "Sign-in or register": "phrase", "please sign-in": "", "More: read more...": "phrase", "Read more... now": "",
        "2 Items In Cart": "phrase", "1 2 3 4 5 6 7 8 items in cart": "", "12 34": "", "1234": "numeric",
        "BUY Now": "upper", "AB cd": "",
    }  # fmt: skip
    for line, kind in lines.items():
        found = one(line)
        names = {
            "counter": "counter_lines",
            "phrase": "phrase_lines",
            "numeric": "numeric_lines",
            "upper": "uppercase_lines",
        }
        assert {k for k, name in names.items() if found[f"refinedweb.{name}"]} == (
            {kind} if kind else set()
        ), line


@given(st.lists(st.sampled_from([
    "1", "23", ",", ".", "k", "M", " ", "\t", "\u3000", "likes", "Views", "shares", "(", "!", "_", "é", "\u0301", "٣",
    "sign-in", "read more", "...", "items", "in", "cart", "\n",
]), max_size=8).map("".join))  # fmt: skip
def test_furniture_equals_the_slow_way(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(
    ["http", "https", "HTTP", ":", "//", "://", "a", "Z", "%20", "~", "é", " ", '"', "!", "$", "_", "{", "http://b"]
), max_size=10).map("".join))  # fmt: skip
def test_addresses_equal_the_slow_way(text: str) -> None:
    check(text)


def test_addresses_by_hand() -> None:
    assert one("see https://a.org/b?c=1. x")["nemo.url_ratio"] == pytest.approx(20 / 26)
    assert one("http:// xhttp://é a://b http//c")["nemo.url_ratio"] == 0


def test_what_is_no_address_takes_linear_time() -> None:
    one("://")
    start = time.process_time()
    assert one("://" * 300_000)["nemo.url_ratio"] == 0
    assert time.process_time() - start < 20


def test_the_page_names_signals_that_there_are() -> None:
    page = (ROOT / "docs/filtering.md").read_text(encoding="utf-8")
    own = page[page.index("## Signals") : page.index("### A signal of your own")]
    specs = {spec.name for spec in text_specs()}
    families = {name.split(".")[0] for name in specs}
    named = {name for name in re.findall(r"`(\w+\.\w+)`", own) if name.split(".")[0] in families}
    assert len(named) > 20 and named <= specs
    named = set(re.findall(r"`(rps_\w+|ccnet_\w+)`", own))
    assert {
        name for spec in every_spec() for name in re.findall(r"(?:rps|ccnet)_\w+", spec.origin)
        if not re.search(r"_\d|top|dupe", name)
    } <= named  # fmt: skip
    assert f"{len(FUNCTION_WORDS)} English function words" in own


def test_columns_are_in_one_order_whatever_was_imported_first() -> None:
    code = (
        "import corpusmill.pipeline.filter.signals.web_corpora, corpusmill.pipeline.filter.signals.catalogue as c;"
        "print(*[spec.name for spec in c.text_specs()])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [spec.name for spec in text_specs()]
