"""Shingles of short texts: the kernel equals the rules in plain Python, and what is no difference gives the same ones."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality.plain import short_shingles
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.text.reference import HARD

PIECES = [
    "http://a.b/c?d=1", "HTTPS://x", "www.a.b", "WWW.", "@name", "@", "a@b.c", "&amp;", "&#128514;", "&", "&toolongentity;", ";",
    " ", "  ", "\n", "call", "me", "me.", "SOOO", "00", "1,234", "😂", "❤️", "é", "é", "漢字", "가", "ท", "_", "#tag", "a", "b", "!",
    "x@y", "\u200d", "\x00",
]  # fmt: skip
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.text(max_size=30))


def sets(texts: list[str], **params: object) -> list[set[int]]:
    shingling = Shingling(DedupParams.model_validate({"preset": "short", **params}), 8)
    bounds, hashes = shingling.sets(pa.array(texts, pa.large_string()), np.arange(len(texts)))
    return [set(hashes[i:j].tolist()) for i, j in itertools.pairwise(bounds)]


@settings(max_examples=300)
@given(TEXTS, TEXTS, st.integers(1, 4))
@example("www", "&#;", 3)
@example("&" + "a" * 8 + ";", "&" + "a" * 9 + ";", 3)
def test_the_kernel_equals_the_plain_rules_on_any_text(a: str, b: str, ngram: int) -> None:
    ours = sets([a, "in between", b], ngram=ngram)
    plain = [short_shingles(text, ngram) for text in (a, b)]
    assert [len(ours[0]), len(ours[2]), len(ours[0] & ours[2])] == [
        len(plain[0]),
        len(plain[1]),
        len(plain[0] & plain[1]),
    ]


def test_hard_texts() -> None:
    ours, plain = sets(HARD), [short_shingles(text, 3) for text in HARD]
    assert list(map(len, ours)) == list(map(len, plain))
    for (a, b), (c, d) in zip(itertools.combinations(ours, 2), itertools.combinations(plain, 2), strict=True):
        assert len(a & b) == len(c & d)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Call me now, please!", "CALL ME NOW PLEASE"),
        ("your code is 123", "Your code is 98765."),
        ("so good", "soooo goooood 😂😂 https://t.co/Ab1"),
        ("now call me", "call me now @anna &lt;"),
        ("wins 1,000 pounds", "pounds: wins 5000 000"),
        ("nice www.example.com/a?b", "nice"),
    ],
)
def test_what_is_no_difference(one: str, other: str) -> None:
    ours, theirs = sets([one, other])
    assert ours == theirs and ours


def test_a_typo_leaves_more_than_it_takes_and_texts_without_words_have_none() -> None:
    one, typo, other, mention, empty = sets(
        [
            "please call me when you are home",
            "please cal me when yuo are home",
            "the train is late again today",
            "@a :-)",
            "",
        ]
    )
    assert len(one & typo) / len(one | typo) > 0.7 and len(one & other) / len(one | other) < 0.2
    assert mention == empty == set()
