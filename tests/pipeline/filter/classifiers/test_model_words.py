"""Words and pieces over buffers, against the plain reading in `oracle.py`."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers.model_words import Words, as_it_stands, cleaned
from corpusmill.pipeline.filter.classifiers.pieces import SHORT_SENTENCE, blank, sentences_of, windows_of
from corpusmill.pipeline.filter.text.view import text_buffers
from tests.pipeline.filter.classifiers import oracle
from tests.pipeline.filter.helpers import PROSE

# Unassigned code points may be known to RE2's version of Unicode and not to this Python's, or the other way.
ANY = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=80)
MARKS = st.text("aZ'@&;#_. \n\t\v…。”é\u0301İſK\u3000\u0085", max_size=40)
ADDRESS = st.lists(
    st.sampled_from(["http://", "HTTPS://x.y/z?q", "https:/", "hhttp://a", "'", "@", "&amp;", " ", "a", "\n", "é", "\v"]),
    max_size=20,
).map("".join)  # fmt: skip
TEXTS = st.lists(ANY | MARKS | ADDRESS, max_size=5)


def buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    data, offsets = text_buffers(pa.array(["x", *texts], pa.large_string())[1:])
    return data, offsets


def spelled(words: Words) -> list[list[str]]:
    """The words of each piece."""
    texts = [words.data[a:b].tobytes().decode() for a, b in zip(words.starts, words.ends, strict=True)]
    return [texts[a:b] for a, b in words.bounds.tolist()]


def fnv(word: bytes) -> int:
    h = 2166136261
    for byte in word:
        h = ((h ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return h


@given(TEXTS)
@example(["''a'' b'c 'd'", "@a'@b", "a'&amp;b", "'", "''", "a '", "x http://y", "http://"])
def test_cleaned_text_is_that_of_the_pattern(texts: list[str]) -> None:
    data, offsets = buffers(texts)
    words, lines = cleaned(data, offsets[:-1], offsets[1:])
    assert [words.data[a:b].tobytes().decode() for a, b in lines.tolist()] == oracle.clean(texts)
    assert spelled(words) == [line.split(" ") if line else [] for line in oracle.clean(texts)]
    assert words.hashes.tolist() == [fnv(w.encode()) for piece in spelled(words) for w in piece]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | MARKS, max_size=5))
def test_words_as_they_stand_are_parted_by_the_white_space_of_fasttext(texts: list[str]) -> None:
    data, offsets = buffers(texts)
    words = as_it_stands(data, offsets[:-1], offsets[1:])
    assert spelled(words) == [[w for w in re.split("[ \n\r\t\v\f\0]", text) if w] for text in texts]
    assert words.hashes.tolist() == [fnv(w.encode()) for piece in spelled(words) for w in piece]


LONG = st.text("ab \n é河", min_size=30, max_size=400) | st.text("ab", min_size=80, max_size=200) | ANY


@given(st.lists(LONG, max_size=4), st.integers(41, 60), st.integers(1, 4))
def test_windows_are_those_of_the_plain_reading(texts: list[str], chars: int, most: int) -> None:
    data, offsets = buffers(texts)
    first, last, owner = windows_of(data, offsets, chars, most)
    for row, text in enumerate(texts):
        own = range(owner[row], owner[row + 1])
        assert [data[first[w] : last[w]].tobytes().decode() for w in own] == oracle.windows(text, chars, most)


@given(st.lists(ANY | MARKS, max_size=5))
def test_sentences_have_all_words_in_order_and_three_or_more(texts: list[str]) -> None:
    data, offsets = buffers(texts)
    first, last, owner = windows_of(data, offsets, 41, 100)
    words, _ = cleaned(data, first, last)
    sentences, of_document = sentences_of(words, first, last, owner)
    for row in range(len(texts)):
        own = sentences[of_document[row] : of_document[row + 1]]
        begin, end = words.bounds[owner[row], 0], words.bounds[owner[row + 1] - 1, 1]
        assert [w for a, b in own.tolist() for w in range(a, b)] == list(range(begin, end))
        assert (own[:-1, 1] - own[:-1, 0] >= SHORT_SENTENCE).all()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("One two three. Four five six! Seven", ["one two three", "four five six", "seven"]),
        ("Mr. Smith went home (at 3.15). He slept.", ["mr smith went home at 3 15", "he slept"]),
        ('He said "stop it now." Then he left us.', ["he said stop it now", "then he left us"]),
        ("a b c\nd e f", ["a b c", "d e f"]),
        ("one two a.b  three four five", ["one two a b three four five"]),
        ("see a b www.x.y and z…  c d e", ["see a b www x y and z", "c d e"]),
        ("我 很 好。你 呢 吗", ["我 很 好", "你 呢 吗"]),
        ("a b 'c.' d e f", ["a b c", "d e f"]),
    ],
)
def test_where_sentences_end(text: str, wanted: list[str]) -> None:
    data, offsets = buffers([text])
    first, last, owner = windows_of(data, offsets, 400, 50)
    words, _ = cleaned(data, first, last)
    own = spelled(words)[0]
    assert [" ".join(own[a:b]) for a, b in sentences_of(words, first, last, owner)[0].tolist()] == wanted


def test_where_sentences_end_in_text_as_it_stands() -> None:
    text = 'He said "stop it now." Then (at 3.15 he left!) us, Mr. Smith.\nA b c\u3002 d e f'
    data, offsets = buffers([text])
    words = as_it_stands(data, offsets[:-1], offsets[1:])
    own = spelled(words)[0]
    found = sentences_of(words, offsets[:-1], offsets[1:], np.arange(2))[0]
    assert [" ".join(own[a:b]) for a, b in found.tolist()] == [
        'He said "stop it now."', "Then (at 3.15 he left!)", "us, Mr. Smith.", "A b c\u3002", "d e f",
    ]  # fmt: skip


def test_a_sentence_goes_on_over_windows_that_touch_and_ends_between_others() -> None:
    for most, wanted in ((50, 1), (3, 3)):
        data, offsets = buffers(["word " * 400])
        first, last, owner = windows_of(data, offsets, 400, most)
        words, _ = cleaned(data, first, last)
        assert len(sentences_of(words, first, last, owner)[0]) == wanted


@given(st.lists(st.text(" \n\u00a0\u3000\u2028", max_size=4) | ANY, max_size=6))
def test_blank(texts: list[str]) -> None:
    assert blank(*buffers(texts)).tolist() == [not text or text.isspace() for text in texts]


def test_no_document_at_all() -> None:
    data, offsets = buffers([])
    first, last, owner = windows_of(data, offsets, 400, 50)
    words, lines = cleaned(data, first, last)
    assert len(words.starts) == len(lines) == len(sentences_of(words, first, last, owner)[0]) == 0


def test_prose_is_cut_at_sentences() -> None:
    data, offsets = buffers([PROSE])
    first, last, owner = windows_of(data, offsets, 400, 50)
    words, _ = cleaned(data, first, last)
    sentences, _ = sentences_of(words, first, last, owner)
    assert len(sentences) == len(re.findall(r"[.!?](?:\s|$)", PROSE))
