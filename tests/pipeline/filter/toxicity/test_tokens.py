"""Tokens of the toxicity model: disguises undone, noise left out, the same whatever is around a piece."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.text.view import text_buffers
from corpusmill.pipeline.filter.toxicity.tokens import Tokens, hash_of, tokens


def read(texts: list[str]) -> Tokens:
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    return tokens(data, offsets[:-1], offsets[1:])


def words(*texts: str) -> list[list[str]]:
    found = read(list(texts))
    return [
        ["".join(map(chr, found.points[found.starts[t] : found.ends[t]])) for t in range(first, last)]
        for first, last in found.bounds.tolist()
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You're a SHIT", ["you're", "a", "shit"]),
        ("sh1t $hit a$$hole a55 b!tch", ["shit", "shit", "asshole", "ass", "bitch"]),
        ("fuuuuck soooo cool", ["fuck", "so", "cool"]),
        ("f.u.c.k, f u c k, f-u-c-k", ["fuck", "fuck", "fuck"]),
        ("a n.i.g.h.t", ["a", "night"]),
        ("a b-c.d e.f", ["a", "b", "c", "d", "e", "f"]),
        ("I am a b c", ["i", "am", "abc"]),
        ("in the 1990s, $5 and 3rd", ["in", "the", "1990s", "5", "and", "erd"]),
        ("café ＦＵＣＫ 𝐟𝐮𝐜𝐤 c\u200bunt", ["cafe", "fuck", "fuck", "cunt"]),
        ("see https://a.b/idiot @idiot &amp; ok", ["see", "ok"]),
        ("👳🏽 no!!! “so” he?", ["👳", "no", "!", '"', "so", '"', "he", "?"]),
        ("cr@p sh!t bull$hit as*hole don't", ["crap", "shit", "bullshit", "as*hole", "don't"]),
        ("f*ck it * now", ["f*ck", "it", "now"]),
        ("a. b, c", ["a", "b", "c"]),
        ("", []),
        ("...", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == [expected]


def test_a_sentence_begins_after_its_end() -> None:
    found = read(["One two. Three four! Five\nsix seven"])
    assert np.flatnonzero(found.breaks).tolist() == [0, 2, 5, 6]
    assert np.flatnonzero(~found.words).tolist() == [4]


def test_a_token_has_the_hash_of_its_word() -> None:
    assert read(["sh1t"]).hashes.tolist() == [hash_of("shit")]


TEXT = st.text(
    alphabet=st.one_of(st.sampled_from("ab1$@!*.- \n'’“&;#🐀\u200b\u0301é"), st.characters(codec="utf-8")),
    max_size=60,
)


@given(st.lists(TEXT, max_size=4))
def test_any_text_gives_tokens_within_its_size_and_the_same_alone(texts: list[str]) -> None:
    together = read(texts)
    assert together.bounds.shape == (len(texts), 2)
    assert (together.starts < together.ends).all() and (together.ends <= len(together.points)).all()
    assert words(*texts) == [words(text)[0] for text in texts]
    for text, (first, last) in zip(texts, together.bounds.tolist(), strict=True):
        assert together.hashes[first:last].tolist() == read([text]).hashes.tolist()
        assert last - first <= len(text)


@given(
    st.lists(
        st.sampled_from(["ab", "fuuuck", "Sh", "i", "ht", "xhtt", " ", "!", "$", "'", ".", "1", "é", "\n"])
    ).map("".join)
)
def test_words_of_ascii_letters_are_read_as_any_others(text: str) -> None:
    """A character of no width in a word is left out; the loop for letters of ASCII alone does not read such a word."""
    other = re.sub("([A-Za-z])(?=[A-Za-z])", "\\1\u200b", text)
    one, two = read([text]), read([other])
    assert one.hashes.tolist() == two.hashes.tolist() and one.breaks.tolist() == two.breaks.tolist()
