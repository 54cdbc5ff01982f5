"""The view: classes of characters, hashes, places, batches."""

from __future__ import annotations

import sys
import unicodedata

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.text.view import spans, text_buffers, view_of
from corpusmill.pipeline.filter.text.words import FUNCTION_WORDS, function_words, word_hash_of
from corpusmill.pipeline.text.unicode_tables import (
    ALPHA,
    CJK,
    DIGIT,
    LOWER,
    MARK,
    OTHER,
    PUNCT,
    SPACE,
    UPPER,
    class_table,
    lower_table,
)
from tests.pipeline.filter import oracle
from tests.pipeline.filter.signals.test_signals import texts


@given(st.lists(texts, max_size=12), st.integers(1, 200))
def test_spans_cover_the_batch_once(batch: list[str], limit: int) -> None:
    array = pa.array(batch, pa.large_string())
    found = list(spans(array, limit))
    assert [row for first, last in found for row in range(first, last)] == list(range(len(batch)))
    for first, last in found:
        assert last - first == 1 or sum(len(t.encode()) for t in batch[first:last]) <= limit


def test_line_positions_are_bytes_of_the_text() -> None:
    text = "  héllo wörld \n\n\t日本\r\nend"
    data, offsets = text_buffers(pa.array(["other", text], pa.large_string()).slice(1))
    view = view_of(data, offsets)
    found = [bytes(data[a:b]).decode() for a, b in zip(view.line_start, view.line_end, strict=True)]
    assert found == ["héllo wörld", "日本", "end"]


def test_the_class_table_is_unicodedata() -> None:
    table = class_table()
    for point in [
        *range(0x3200),
        *range(0xA900, 0xAC00),
        *range(0xD700, 0xD800),
        *range(0xF900, 0x10000),
        0x20000,
        *range(0x1D400, 0x1D800),
        0xE0001,
        sys.maxunicode,
    ]:
        char = chr(point)
        category = unicodedata.category(char)
        assert bool(table[point] & SPACE) == char.isspace()
        assert bool(table[point] & ALPHA) == char.isalpha()
        assert bool(table[point] & DIGIT) == char.isdecimal()
        assert bool(table[point] & UPPER) == (category == "Lu")
        assert bool(table[point] & LOWER) == (category == "Ll")
        assert bool(table[point] & PUNCT) == (category[0] == "P")
        assert bool(table[point] & MARK) == (category[0] == "M")
        assert bool(table[point] & OTHER) == (category[0] not in "LMN" and not char.isspace())
        asian = unicodedata.name(char, "").startswith(oracle.EAST_ASIAN)
        assert bool(table[point] & CJK) == (asian and char.isalpha())


def test_a_bare_words_hash_is_that_of_the_scan() -> None:
    texts = ["don't", "“É2!”", "日本", "İ", "...", "e\u0301"]
    view = view_of(*text_buffers(pa.array([" ".join(texts)], pa.large_string())))
    wanted = [word_hash_of(oracle.bare(text)) if oracle.bare(text) else 0 for text in texts]
    assert view.word_bare.tolist() == wanted
    assert len(set(FUNCTION_WORDS)) == len(FUNCTION_WORDS) == (function_words() != 0).sum()


def test_lower_case_of_every_letter() -> None:
    table = lower_table()
    for point in range(sys.maxunicode + 1):
        if unicodedata.category(chr(point)) == "Lu" and len(chr(point).lower()) == 1:
            assert table[point] == ord(chr(point).lower())


def test_the_views_text_is_the_batch() -> None:
    texts = ["", "é", "日本\n"]
    longer = pa.array(["before", *texts, "after"], pa.large_string())
    view = view_of(*text_buffers(longer.slice(1, 3)))
    assert view.text.to_pylist() == texts
    assert view_of(*text_buffers(longer.slice(0, 0))).text.to_pylist() == []
