"""Canonically equivalent spellings, the order of marks, fingerprints of the words alone."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.shingling import Shingle, fingerprints, shingle_sets
from corpusmill.pipeline.text.word_hashes import CHUNK
from corpusmill.pipeline.text.word_rule import CLASS_SHIFT, SEPARATOR, classify
from tests.pipeline.text.reference import HARD, MILLION, expected_fingerprint, words_of


def known(point: int) -> bool:
    """Whether a code point is a character, assigned in the table's version of Unicode as in this Python."""
    if 0xD800 <= point < 0xE000:
        return False
    kind = word_rule.rule().entries[point] >> CLASS_SHIFT
    later = kind == SEPARATOR and (
        unicodedata.combining(chr(point))
        or classify(unicodedata.normalize("NFD", chr(point))[0]) != SEPARATOR
    )
    return not later


def sets(texts: list[str], ngram: int, characters: bool) -> list[list[int]]:
    bounds, hashes = shingle_sets(
        pa.array(texts, pa.large_string()), np.arange(len(texts)), Shingle(ngram, characters)
    )
    return [hashes[i:j].tolist() for i, j in itertools.pairwise(bounds)]


def prints(texts: list[str]) -> list[tuple[int, int]]:
    hi, lo = fingerprints(pa.array(texts, pa.large_string()), np.arange(len(texts)))
    return list(zip(hi.tolist(), lo.tolist(), strict=True))


def test_every_character_in_both_spellings() -> None:
    """Each one by itself, in a word, and where it could join what stands around it."""
    points = [
        p for p in range(word_rule.CODE_POINTS) if unicodedata.category(chr(p)) not in ("Cn", "Co", "Cs")
    ]
    others = np.setdiff1d(np.arange(word_rule.CODE_POINTS), points)
    assert (word_rule.rule().entries[others] >> CLASS_SHIFT == SEPARATOR).all()
    points = [p for p in points if known(p)]
    assert len(points) > 144_000
    texts = ["{0} a{0}b 漢{0}\u0316 \u1100{0}\u11a8 \u1100\u1161{0}".format(chr(p)) for p in points]
    spelled = [[unicodedata.normalize(form, text) for text in texts] for form in ("NFC", "NFD")]
    rows = np.arange(len(texts))
    for shingle in (Shingle(1), Shingle(2, characters=True)):
        first = shingle_sets(pa.array(texts, pa.large_string()), rows, shingle)
        for other in spelled:
            again = shingle_sets(pa.array(other, pa.large_string()), rows, shingle)
            np.testing.assert_array_equal(again[0], first[0])
            np.testing.assert_array_equal(again[1], first[1])


@given(
    st.one_of(
        st.text(st.characters(codec="utf-8").filter(lambda c: known(ord(c))), max_size=50),
        st.text("aé\u0301\u0316\u0345ᾳ각\u1100\u1161\u11a8か\u3099が≠\u0338\u0344\u00ad \u302e\U0001d165"),
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_any_text_in_both_spellings(text: str, ngram: int, characters: bool) -> None:
    texts = [text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)]
    first, composed, decomposed = sets(texts, ngram, characters)
    assert first == composed == decomposed
    assert len(set(prints(texts))) == 1


def test_a_mark_belongs_to_its_letter() -> None:
    spellings = ["áb", "ab\u0301", "ab", "a\u0301\u0301b", "àb", "b\u0301a"]
    assert len({tuple(words) for words in sets(spellings, 1, False)}) == len(spellings)
    assert len(set(prints(spellings))) == len(spellings)


@pytest.mark.parametrize("text", HARD)
def test_fingerprints_follow_the_reference(text: str) -> None:
    assert prints([text]) == [expected_fingerprint(text)]


def test_fingerprints_are_of_the_words_in_their_order_alone() -> None:
    same = prints(["Hello, World! ÉTÉ", "hello   world e\u0301te\u0301", "HELLO—world … été"])
    assert len(set(same)) == 1
    texts = ["a b", "b a", "ab", "a b a", "a a b", "a", "a a", "a a a", "b"]
    assert len(set(prints(texts))) == len(texts)
    assert prints(["", " \n", "...!?"]) == [(0, 0)] * 3


@pytest.mark.parametrize("words", [CHUNK - 17, CHUNK - 16, CHUNK - 15, CHUNK, 2 * CHUNK + 7])
def test_fingerprints_go_on_from_chunk_to_chunk(words: int) -> None:
    text = " ".join(MILLION.split()[:words])
    assert len(words_of(text)) == words
    assert prints([text]) == [expected_fingerprint(text)]


@given(st.text("ab ,é漢", max_size=30), st.text("ab ,é漢", max_size=30))
def test_fingerprints_are_equal_if_the_words_are(first: str, second: str) -> None:
    one, other = prints([first, second])
    assert (one == other) == (words_of(first) == words_of(second))
