"""Tokens against a plain reading of the word rule."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.substrings import anchor_kernels
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.buffers import view
from tests.pipeline.dedup.substrings.helpers import tokenize

LETTERS = st.sampled_from("aZé\u0301 ,\n語ก็각\u1112\u1161\u11ab\u00ad\u200b\u200d1٣😀")


def scanned(text: str) -> tuple[list[tuple[int, int]], list[int]]:
    offsets, data = view(pa.array(["before ", text, "after"], pa.large_string()))
    capacity = anchor_kernels.most_tokens(offsets, np.array([1]))
    hashes, starts = np.zeros(capacity, np.uint64), np.zeros(capacity, np.int64)
    count = anchor_kernels.tokens(data, offsets[1], offsets[2], anchor_kernels.classes(), hashes, starts)
    bounds = starts[: count + 1].tolist()
    return list(itertools.pairwise(bounds)), hashes[:count].tolist()


@given(st.text(LETTERS) | st.text(), st.data())
def test_tokens_are_words_with_what_follows_them(text: str, data: st.DataObject) -> None:
    bounds, hashes = scanned(text)
    assert bounds == tokenize(text)
    raw = text.encode()
    pieces = [raw[start:stop] for start, stop in bounds]
    assert all(piece.decode() for piece in pieces), "cut at characters"
    if bounds:
        assert b"".join(pieces) == raw[bounds[0][0] :]
    assert len(set(zip(pieces, hashes, strict=True))) == len(set(pieces)) == len(set(hashes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n", []),
        ("  one, two.\n", ["one, ", "two.\n"]),
        ("aé\u0301b", ["aé\u0301b"]),
        ("\u0301a", ["a"]),
        ("語言a", ["語", "言", "a"]),
        ("かか\u3099", ["か", "か\u3099"]),
        ("한국 말", ["한국 ", "말"]),
        ("x\u00ady z", ["x\u00ady ", "z"]),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert [text.encode()[start:stop].decode() for start, stop in scanned(text)[0]] == expected


def test_case_and_separators_make_other_tokens() -> None:
    assert len(set(scanned("a A a, a\n a\u00ad a")[1])) == 6


def test_what_code_points_do() -> None:
    table = anchor_kernels.classes()
    assert len(table) == 0x110000
    named = {"a": anchor_kernels.INSIDE, " ": anchor_kernels.BETWEEN, "\u0301": anchor_kernels.GOES_ON, "語": anchor_kernels.ALONE,
             "が": anchor_kernels.ALONE, "각": anchor_kernels.INSIDE, "é": anchor_kernels.INSIDE, "\u200b": anchor_kernels.BETWEEN}  # fmt: skip
    assert {c: table[ord(c)] for c in named} == named
    for point in range(0, 0x3000, 7):
        kind = word_rule.classify(unicodedata.normalize("NFD", chr(point))[0])
        assert (table[point] == anchor_kernels.BETWEEN) == (kind == word_rule.SEPARATOR)
