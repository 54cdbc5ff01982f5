"""Features of ranges of tokens: as a plain Python reading of the rule has them, and summed as they are listed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity import features
from corpusmill.pipeline.filter.toxicity import sums as sums_module
from corpusmill.pipeline.filter.toxicity.features import KNOWN, extracted, lexicon, looked_up
from corpusmill.pipeline.filter.toxicity.sums import BLOCK, LABELS, Rows, summed
from corpusmill.pipeline.filter.toxicity.tokens import hash_of
from tests.pipeline.filter.toxicity.test_tokens import read

BUCKETS = 1 << 12
CLASSES = {"hate": 1, "gay": 6, "you": 7, "not": 10, "!": 13}
TABLE = lexicon(
    np.array([hash_of(word) for word in [*CLASSES, "the"]], np.uint64),
    np.array([*CLASSES.values(), KNOWN], np.uint8),
)
WEIGHTS = np.random.default_rng(5).integers(-999, 999, (BUCKETS, LABELS)).astype(np.int16)
READ = Rows(WEIGHTS)
SENTENCES = st.lists(
    st.lists(
        st.sampled_from(["hate", "gay", "you", "not", "!", "the", "people", "aa", "a", "🐀", "ab"]),
        max_size=14,
    )
    .map(" ".join)
    .filter(lambda text: "a a a" not in text),  # letters spaced out are one word
    max_size=4,
)


def mixed(h: int, *values: int) -> int:
    for value in values:
        h = ((h ^ value) * 0x9E3779B97F4A7C15) & (2**64 - 1)
        h ^= h >> 29
    return h


def own(word: str) -> list[int]:
    """A token's number and those of its n-grams."""
    marked = f"<{word}>"
    grams = [
        mixed(11, *map(ord, marked[i : i + n]))
        for i in range(len(marked))
        for n in range(2, 6)
        if i + n <= len(marked)
    ]
    return [
        mixed(hash_of(word), 1),
        *(mixed(gram, 3) for gram in grams if len(word) > 1 or not word.isascii()),
    ]


def near(words: list[str]) -> set[int]:
    """The numbers of what stands near each other."""
    found = {mixed(hash_of(a), hash_of(b), 2) for a, b in pairwise(words)}
    kinds = [CLASSES.get(word, 0) for word in words]
    for t, kind in enumerate(kinds):
        if not kind:
            continue
        found.add(mixed(kind, 1, 4))
        following = [u for u in range(t + 1, min(len(words), t + 1 + features.REACH)) if kinds[u]][:2]
        found |= {mixed(kind, kinds[u], 2, 4) for u in following}
        third = [
            v
            for u in following[:1]
            for v in range(u + 1, min(len(words), u + 1 + features.LAST_REACH))
            if kinds[v]
        ][:1]
        found |= {mixed(kind, kinds[following[0]], kinds[v], 3, 4) for v in third}
        around = range(max(0, t - features.NEAR), min(len(words), t + features.NEAR + 1))
        found |= {mixed(kind, hash_of(words[u]), 1 if u > t else 2, 5) for u in around if u != t}
    return {number % BUCKETS for number in found}


def expected(words: list[str]) -> Array:
    """float64[BUCKETS]: the values of all features."""
    values, squares = np.zeros(BUCKETS), 0.0
    for word in dict.fromkeys(words):
        first, *grams = own(word)
        values[first % BUCKETS] += 1
        squares += 1 + bool(grams)
        for gram in grams:
            values[gram % BUCKETS] += 1 / np.sqrt(len(grams))
    for number in near(words):
        values[number] += 1
        squares += 1
    return values / np.sqrt(max(squares, 1))


@given(SENTENCES)
def test_features_are_those_of_the_rule(texts: list[str]) -> None:
    found = read(texts)
    listed = extracted(found, found.bounds, looked_up(found, TABLE), BUCKETS)
    for row, text in enumerate(texts):
        values = np.zeros(BUCKETS)
        part = slice(listed.offsets[row], listed.offsets[row + 1])
        np.add.at(values, listed.features[part], listed.values[part].astype(np.float64))
        np.testing.assert_allclose(values, expected(text.split()), atol=1e-5)


@given(SENTENCES)
def test_sums_are_of_the_listed_features_whatever_is_in_the_batch_or_was_read_before(
    texts: list[str],
) -> None:
    found = read(texts)
    values = looked_up(found, TABLE)
    (sums,) = summed(found, [found.bounds], values, READ)
    for row, text in enumerate(texts):
        np.testing.assert_allclose(sums[row], expected(text.split()) @ WEIGHTS, atol=0.5)
        alone = read([text])
        assert (summed(alone, [alone.bounds], looked_up(alone, TABLE), READ)[0][0] == sums[row]).all()


def test_what_is_kept_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["you hate the gay people", "hate them", "a b c d e f g h", "you", "hate"]
    first = [_sums_of(text, Rows(WEIGHTS)) for text in texts]
    monkeypatch.setattr(sums_module, "KEPT", 4)
    rows = Rows(WEIGHTS)
    for text, wanted in [*zip(texts, first, strict=True)] * 2:
        assert (_sums_of(text, rows) == wanted).all()
        assert all(len(kept.hashes) == sums_module.KEPT for kept in rows._free) and len(rows._free) <= 1


def _sums_of(text: str, rows: Rows) -> np.ndarray:
    found = read([text])
    return summed(found, [found.bounds], looked_up(found, TABLE), rows)[0][0]


def test_many_ranges_reuse_their_marks() -> None:
    found = read(["you hate the gay people"] * 600)
    (sums,) = summed(found, [found.bounds], looked_up(found, TABLE), Rows(WEIGHTS))
    assert (sums == sums[0]).all()


def test_sums_of_several_arrays_of_ranges_are_those_of_each() -> None:
    found = read(["you hate the gay people", "the people you hate", "gay gay gay"])
    values, rows = looked_up(found, TABLE), Rows(WEIGHTS)
    halves = np.array([[0, 2], [2, 5], [3, 3], [1, 9]])
    together = summed(found, [found.bounds, halves], values, rows)
    for part, sums in zip([found.bounds, halves], together, strict=True):
        assert (summed(found, [part], values, rows)[0] == sums).all()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12), st.integers(0, 2**32 - 1))
def test_ranges_that_overlap_are_summed_as_if_alone(spans: list[tuple[int, int]], seed: int) -> None:
    words = np.random.default_rng(seed).choice(["hate", "gay", "you", "the", "aa"], 60)
    found = read([" ".join(words)])
    values, rows = looked_up(found, TABLE), Rows(WEIGHTS)
    ranges = np.array([sorted(span) for span in spans], np.int64).reshape(-1, 2)
    (together,) = summed(found, [ranges], values, rows)
    for row, (first, last) in enumerate(ranges):
        alone = read([" ".join(words[first:last])])
        assert (summed(alone, [alone.bounds], looked_up(alone, TABLE), rows)[0][0] == together[row]).all()


def test_a_range_longer_than_a_block() -> None:
    words = (["you", "hate", "the", "gay", "people"] * BLOCK)[: 2 * BLOCK + 3]
    found = read([" ".join(words)])
    values, rows = looked_up(found, TABLE), Rows(WEIGHTS)
    ranges = np.array([[0, len(words)], [BLOCK - 1, BLOCK + 4], [5, 9]])
    (sums,) = summed(found, [ranges], values, rows)
    for row, (first, last) in enumerate(ranges):
        np.testing.assert_allclose(sums[row], expected(words[first:last]) @ WEIGHTS, atol=0.5)


def test_what_is_in_the_lexicon() -> None:
    found = read(["the you people"])
    assert looked_up(found, TABLE).tolist() == [KNOWN, 7, 0]
