"""The second opinion and the kernels tell the same words, each by its own means."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality import plain
from corpusmill.pipeline.text.shingling import Shingle, shingle_sets
from tests.pipeline.text.reference import HARD

MIXED = "aB 漢ก\u0301\u0316\u00ad1,é\u1100\u1161\u11a8각か\u3099が\u0345\U0001d15e≠İß"
ANY = st.one_of(st.text(st.characters(codec="utf-8"), max_size=60), st.text(MIXED, max_size=60))


def agree(a: str, b: str, ngram: int, characters: bool) -> None:
    bounds, hashes = shingle_sets(
        pa.array([a, b], pa.large_string()), np.arange(2), Shingle(ngram, characters)
    )
    left, right = set(hashes[: bounds[1]].tolist()), set(hashes[bounds[1] :].tolist())
    mine = [plain.shingles((plain.characters if characters else plain.words)(text), ngram) for text in (a, b)]
    assert (len(mine[0]), len(mine[1])) == (len(left), len(right))
    assert len(mine[0] & mine[1]) == len(left & right)
    assert plain.jaccard(*mine) == len(left & right) / max(1, len(left | right))


@given(ANY, ANY, st.integers(1, 4), st.booleans())
def test_shingles_are_those_of_the_kernels(a: str, b: str, ngram: int, characters: bool) -> None:
    agree(a, b, ngram, characters)
    agree(a, a + b, ngram, characters)


@pytest.mark.parametrize("characters", [False, True])
@pytest.mark.parametrize("text", HARD)
def test_hard_texts(text: str, characters: bool) -> None:
    for other in HARD:
        agree(text, other, 2, characters)


def test_words_by_hand() -> None:
    assert plain.words("The QUICK fox's 漢字 l'été") == [
        "the", "quick", "fox", "s", "漢", "字", "l", "e\u0301te\u0301",
    ]  # fmt: skip
    assert plain.characters(" ab, c漢字") == ["a", "b", " ", "c", "漢", "字"]
    assert plain.words("a\u0301\u0323") == plain.words("a\u0323\u0301")
    six = plain.shingles(["a", "b", "c", "d", "e", "f"], 5)
    assert six == {("a", "b", "c", "d", "e"), ("b", "c", "d", "e", "f")} and plain.shingles(["a"], 5) == {
        ("a",)
    }
    assert plain.jaccard(six, {("a", "b", "c", "d", "e"), ("b", "c", "d", "e", "g")}) == 1 / 3
    assert plain.shingles([], 5) == set() and plain.jaccard(set(), set()) == 0.0


@given(ANY)
def test_spans_are_the_words_in_place(text: str) -> None:
    spans = plain.spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    words = [plain.words(text[start:end]) for start, end in spans]
    assert [word for some in words for word in some] == plain.words(text)
