"""Signals: by hand, against the slow oracle, and for any text at all."""

from __future__ import annotations

import math
import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.filter.apply import signals_of_text
from pipeline.filter.signals.catalogue import text_specs
from pipeline.filter.signals.registry import signal
from pipeline.filter.text.unicode import ALPHA, DIGIT, PUNCT, SPACE, UPPER, class_table
from pipeline.filter.text.view import spans, text_buffers, view_of
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
    "\u00a0", "\u2028", "\u3000", "\x85", "\x1c", "\x00", "\ufeff", "\U0010ffff",
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


@given(st.lists(texts, max_size=12), st.integers(1, 200))
def test_spans_cover_the_batch_once(batch: list[str], limit: int) -> None:
    array = pa.array(batch, pa.large_string())
    found = list(spans(array, limit))
    assert [row for first, last in found for row in range(first, last)] == list(range(len(batch)))
    for first, last in found:
        assert last - first == 1 or sum(len(t.encode()) for t in batch[first:last]) <= limit


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


def test_line_positions_are_bytes_of_the_text() -> None:
    text = "  héllo wörld \n\n\t日本\r\nend"
    data, offsets = text_buffers(pa.array(["other", text], pa.large_string()).slice(1))
    view = view_of(data, offsets)
    found = [bytes(data[a:b]).decode() for a, b in zip(view.line_start, view.line_end, strict=True)]
    assert found == ["héllo wörld", "日本", "end"]


def test_the_class_table_is_unicodedata() -> None:
    table = class_table()
    for point in [*range(0x3200), *range(0xFE00, 0x10000), *range(0x1D400, 0x1D800), 0xE0001, sys.maxunicode]:
        char = chr(point)
        category = unicodedata.category(char)
        assert bool(table[point] & SPACE) == char.isspace()
        assert bool(table[point] & ALPHA) == char.isalpha()
        assert bool(table[point] & DIGIT) == char.isdecimal()
        assert bool(table[point] & UPPER) == (category == "Lu")
        assert bool(table[point] & PUNCT) == (category[0] == "P")


def test_specs_are_complete_and_names_unique() -> None:
    names = [spec.name for spec in text_specs()]
    assert len(set(names)) == len(names) and all(spec.origin and spec.unit for spec in text_specs())
    with pytest.raises(ValueError, match=r"gopher\.word_count is defined twice"):
        signal("gopher.word_count", "words", "nobody")
        signal("gopher.word_count", "words", "nobody")(lambda v: v.words)
