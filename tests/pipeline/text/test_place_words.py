"""Words and where they stand: the same words as deduplication's scanner gives, at the places that hold them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text.word_hashes import (
    FNV_BASIS,
    FNV_PRIME,
    OUTSIDE,
    RESERVE,
    most_words,
    place_words,
    scan_words,
)
from corpusmill.pipeline.text.word_rule import rule

TEXT = st.text(
    st.sampled_from("abZ09 \n\t\r.,-_'’éÉßİıſ\u0301\u0323\u00ad\u200b\u200d日本かが한국\u1100\u1161ก็ดี١٢🦙\u2028"), max_size=60
) | st.text(max_size=60)  # fmt: skip


def placed(text: str) -> list[tuple[int, int, int, int]]:
    """(hash, first byte, end, paragraph) of each word, after bytes that are no part of the text."""
    data = np.frombuffer(b"zz" + text.encode("utf-8", "replace"), np.uint8)
    most = most_words(len(data) - 2)
    arrays = [np.zeros(most, kind) for kind in (np.uint64, np.int64, np.int64, np.int32)]
    count = place_words(data, 2, len(data), rule(), *arrays)
    assert count <= most
    return [tuple(int(array[i]) for array in arrays) for i in range(count)]  # type: ignore[misc]


@given(TEXT)
def test_the_words_are_those_of_deduplication(text: str) -> None:
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    out = np.zeros(len(data) + RESERVE, np.uint64)
    count = scan_words(data, 0, len(data), rule(), FNV_PRIME, OUTSIDE, FNV_BASIS, out, 0)[3]
    assert [word[0] for word in placed(text)] == out[:count].tolist()


@given(TEXT)
def test_each_place_holds_its_word_alone(text: str) -> None:
    raw = text.encode("utf-8", "replace")
    last = 2
    for number, start, end, _ in placed(text):
        assert last <= start < end
        last = end
        (alone,) = placed(raw[start - 2 : end - 2].decode())
        assert (alone[0], alone[1], alone[2]) == (number, 2, end - start + 2)


@given(st.lists(st.sampled_from(["ab", "c", " ", "\n", "\n \n", "\n\n", ".", "\r\n", "\t"]), max_size=20))
def test_blank_lines_part_paragraphs(pieces: list[str]) -> None:
    text = "".join(pieces)
    blocks = [block for block in re.split(r"\n[ \t\r]*(?=\n)", text) if re.search(r"\w", block)]
    counts = [len(re.findall(r"\w+", block)) for block in blocks]
    assert [word[3] for word in placed(text)] == [i for i, n in enumerate(counts) for _ in range(n)]


@pytest.mark.parametrize("text", ["a" * 9, "日" * 9, "a." * 9, "日本", "", " ", "가각", "a"])
def test_room_is_enough(text: str) -> None:
    assert len(placed(text)) <= most_words(len(text.encode()))
