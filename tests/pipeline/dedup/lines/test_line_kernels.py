"""Units of texts, their keys, and the grouping of keys."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.lines import line_kernels
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.buffers import view
from corpusmill.schemas.dedup import LineParams
from tests.pipeline.dedup.lines import reference

ALPHABET = "ab19٣  \n\n\r\t.?!\"')-éÉ\u0301漢字。！」😀ßกา\u00a0"
UNITS = st.builds(
    LineParams,
    unit=st.sampled_from(["line", "paragraph", "sentences"]),
    sentences=st.integers(1, 3),
    min_words=st.integers(1, 3),
)


def scanned(texts: list[str], params: LineParams) -> np.ndarray:
    offsets, data = view(pa.array(texts, pa.large_string()))
    return line_kernels.scan(
        offsets,
        data,
        line_kernels.rule(),
        line_kernels.UNITS[params.unit],
        params.sentences,
        params.min_words,
    )


def found(text: str, unit: str, sentences: int = 1, min_words: int = 1) -> list[str]:
    """The units of one text."""
    params = LineParams.model_validate({"unit": unit, "sentences": sentences, "min_words": min_words})
    data = text.encode()
    return [data[u[3] : u[3] + u[4]].decode() for u in scanned([text], params).tolist()]


@given(st.lists(st.text(ALPHABET, max_size=40), max_size=4), UNITS)
@example(["one. two. three. four"] * 2, LineParams(unit="sentences", sentences=3, min_words=3))
@example(["a\n \r\n\n\nb\nc\n\n"], LineParams(unit="paragraph", min_words=1))
def test_units_are_those_of_the_reference(texts: list[str], params: LineParams) -> None:
    places = scanned(texts, params)
    expected = [
        (row, len(text[:start].encode()), len(text[start:stop].encode()), key)
        for row, text in enumerate(texts)
        for key, (start, stop) in reference.units(text, params)
    ]
    assert [tuple(unit[2:]) for unit in places.tolist()] == [unit[:3] for unit in expected]
    keys = [tuple(unit[:2]) for unit in places.tolist()]
    by_words: dict[object, set[tuple[int, ...]]] = defaultdict(set)
    for key, unit in zip(keys, expected, strict=True):
        by_words[unit[3]].add(key)
    assert all(len(same) == 1 for same in by_words.values()), "equal words have one key"
    assert len(set(keys)) == len(by_words), "different words have different keys"


def test_keys_know_neither_case_nor_punctuation_nor_digits() -> None:
    same = ["Page 12 of 99!", "page 34, of ٥٦", "  PAGE: 00 of 00...", "«page» 77 OF 12\r"]
    other = ["page 1 of 12", "page 12 off 99", "page 12 of", "of 12 page 99", "p age 12 of 99"]
    keys = [tuple(u[:2]) for u in scanned([*same, *other], LineParams(min_words=1)).tolist()]
    assert len(set(keys[: len(same)])) == 1 and len(set(keys)) == 1 + len(other)


def test_all_digits_of_the_word_rule() -> None:
    if unicodedata.unidata_version != word_rule.VERSION:
        pytest.skip("this Python has another Unicode than the table")
    digits = [p for p in range(word_rule.CODE_POINTS) if unicodedata.category(chr(p)) == "Nd"]
    assert digits == sorted(zero + i for zero in line_kernels.ZEROS for i in range(10))
    entries = line_kernels.rule().entries
    assert set(entries[digits].tolist()) == {int(entries[ord("0")])}
    assert (np.delete(entries, digits) == np.delete(word_rule.rule().entries, digits)).all()


def test_lines_and_paragraphs() -> None:
    text = "  Title\n\none two \nthree\n \t\nfour\r\n\r\nfive\n...\nsix"
    assert found(text, "line") == ["Title", "one two", "three", "four", "five", "six"]
    assert found(text, "paragraph") == ["Title", "one two \nthree", "four", "five\n...\nsix"]
    assert found(text, "paragraph", min_words=2) == ["one two \nthree", "five\n...\nsix"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two. Three? Four! Five", ["One two.", "Three?", "Four!", "Five"]),
        ("A title\nThen a sentence.\n", ["A title", "Then a sentence."]),
        ("Version 3.11 of e.g.this is one... and two", ["Version 3.11 of e.g.this is one...", "and two"]),
        ('He said "go." Then "no!" he said.', ['He said "go."', 'Then "no!"', "he said."]),
        ("What?! Yes.", ["What?!", "Yes."]),
        ("他来了。她走了！真的吗？「好。」完", ["他来了。", "她走了！", "真的吗？", "「好。」", "完"]),
        ("One. ... !! Two.", ["One.", "... !! Two."]),
        ("... !!\n***\n", []),
        ("One.Two", ["One.Two"]),
        ("One.”) Two", ["One.”)", "Two"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert found(text, "sentences") == expected


def test_windows_cross_lines_and_not_documents() -> None:
    assert found("a b. c.\nd e\n\nf.", "sentences", 3) == ["a b. c.\nd e", "c.\nd e\n\nf."]
    assert found("a b. c.", "sentences", 3) == []
    assert len(scanned(["a. b.", "c. d."], LineParams(unit="sentences", sentences=2, min_words=1))) == 2


def test_long_texts_without_words_take_no_longer() -> None:
    """A megabyte of marks that end no sentence: once over the text, not once for each."""
    text = ". " * 500_000 + "end"
    assert found(text, "sentences") == [text]


KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40)


@given(KEYS, st.lists(st.integers(0, 5), min_size=40, max_size=40))
def test_groups(keys: list[tuple[int, int]], ranks: list[int]) -> None:
    hi, lo = (np.array([key[i] for key in keys], np.uint64) for i in range(2))
    groups, firsts, slots = line_kernels.group(hi, lo)
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    assert groups.tolist() == [numbers[key] for key in keys]
    assert firsts.tolist() == [keys.index(key) for key in numbers]
    best = line_kernels.best(groups, len(firsts), np.array(ranks[: len(keys)], np.int64))
    for n, key in enumerate(numbers):
        members = [i for i, other in enumerate(keys) if other == key]
        assert best[n] == min(members, key=lambda i: (ranks[i], i))
    wanted = [(a, b) for a in range(5) for b in range(5)]
    a, b = (np.array([key[i] for key in wanted], np.uint64) for i in range(2))
    places = line_kernels.look_up(slots, firsts, hi, lo, a, b)
    assert places.tolist() == [numbers.get(key, -1) for key in wanted]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), max_size=12))
def test_union(spans: list[tuple[int, int, int]]) -> None:
    ordered = sorted(spans)
    rows, starts, sizes = (np.array([s[i] for s in ordered], np.int64) for i in range(3))
    merged = list(zip(*(a.tolist() for a in line_kernels.union(rows, starts, starts + sizes)), strict=True))
    points = {(row, p) for row, start, stop in merged for p in range(start, stop)}
    assert points == {(row, p) for row, start, size in spans for p in range(start, start + size)}
    for (row, _, stop), (other, start, _) in pairwise(merged):
        assert row < other or stop < start
