"""Shingles, sets and min-hashes: against a plain Python reference, and value for value against datasketch."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.shingling import Shingle, permutations, shingle_sets, sign, signatures
from corpusmill.pipeline.text.word_hashes import CHUNK
from tests.pipeline.text.golden.texts import texts as golden_texts
from tests.pipeline.text.reference import HARD, MILLION, expected_sets, mix64, shingles_of

KINDS = pytest.mark.parametrize("characters", [False, True], ids=["word", "char"])
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def actual_sets(texts: list[str], ngram: int, characters: bool = False) -> list[list[int]]:
    array = pa.array(texts, pa.large_string())
    bounds, hashes = shingle_sets(array, np.arange(len(texts)), Shingle(ngram, characters))
    return [hashes[i:j].tolist() for i, j in itertools.pairwise(bounds)]


def datasketch_values(shingles: list[int], num_perm: int, seed: int) -> np.ndarray:
    sketch = MinHash(num_perm=num_perm, seed=seed, scheme="affine32", hashfunc=lambda value: value)
    if shingles:
        sketch.update_batch([h >> 32 for h in shingles])
    return np.asarray(sketch.hashvalues)


@KINDS
@pytest.mark.parametrize("ngram", [1, 2, 5, 13, 64])
def test_sets_follow_the_reference(ngram: int, characters: bool) -> None:
    expected = [expected_sets(text, ngram, characters) for text in HARD]
    assert actual_sets(HARD, ngram, characters) == expected


@given(st.lists(ANY_TEXT, max_size=8), st.integers(1, 7), st.booleans())
def test_sets_follow_the_reference_on_any_text(texts: list[str], ngram: int, characters: bool) -> None:
    expected = [expected_sets(text, ngram, characters) for text in texts]
    assert actual_sets(texts, ngram, characters) == expected


@given(
    st.text("aB 漢ก\u0301\u0316\u00ad1,é\u1100\u1161\u11a8각か\u3099が\u0345\U0001d15e", max_size=60),
    st.integers(1, 4),
    st.booleans(),
)
def test_sets_follow_the_reference_where_classes_meet(text: str, ngram: int, characters: bool) -> None:
    assert actual_sets([text], ngram, characters) == [expected_sets(text, ngram, characters)]


@given(st.binary(max_size=40), st.integers(1, 3), st.booleans())
def test_broken_utf8_does_not_read_past_the_text(data: bytes, ngram: int, characters: bool) -> None:
    """The bytes after a text have no part in its hashes, however it ends."""
    found = []
    for after in (b"", b"\xbfz\xbf\xbf"):
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data + after)]
        array = pa.Array.from_buffers(pa.large_string(), 1, buffers)
        found.append(shingle_sets(array, np.arange(1), Shingle(ngram, characters))[1].tolist())
    assert found[0] == found[1]


@KINDS
@pytest.mark.parametrize(("num_perm", "seed"), [(112, 1), (128, 1), (17, 42)])
def test_signatures_equal_datasketch(num_perm: int, seed: int, characters: bool) -> None:
    texts = [
        *HARD,
        MILLION[:200_000] if characters else MILLION,
        *(t for t in golden_texts() if len(t) < 2_000),
    ]
    array = pa.array(texts, pa.large_string())
    signed = signatures(array, Shingle(5, characters), permutations(num_perm, seed))
    assert signed.dtype == np.uint32
    for text, row in zip(texts, signed, strict=True):
        expected = datasketch_values(shingles_of(text, 5, characters), num_perm, seed)
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("words", [CHUNK - 12, CHUNK + 60, 3 * CHUNK + 1])
@pytest.mark.parametrize("ngram", [1, 5, 64])
def test_no_shingle_is_lost_where_a_chunk_ends(words: int, ngram: int) -> None:
    text = pa.array(
        [" ".join(f"w{i}" for i in range(words + extra)) for extra in range(20)], pa.large_string()
    )
    rows, hashes = np.arange(20), permutations(16, 1)
    signed, counts, _, capped = sign(text, rows, Shingle(ngram), hashes)
    np.testing.assert_array_equal(counts, words + rows - ngram + 1)
    expected = minhash.sign_sets(*shingle_sets(text, rows, Shingle(ngram)), *hashes)
    np.testing.assert_array_equal(signed, expected)
    assert not capped.any()


@KINDS
@pytest.mark.parametrize("cap", [1, 2, 7, CHUNK, CHUNK + 5, 20 * CHUNK])
def test_only_the_first_shingles_are_signed(cap: int, characters: bool) -> None:
    texts = ["", "one", "of five words or so", MILLION[:60_000]]
    ours = [shingles_of(text, 3, characters) for text in texts]
    array = pa.array(texts, pa.large_string())
    signed, counts, draws, capped = sign(
        array, np.arange(4), Shingle(3, characters), permutations(16, 1), cap
    )
    assert counts.tolist() == [min(cap, len(some)) for some in ours]
    assert capped.tolist() == [len(some) > cap for some in ours]
    for some, row, draw in zip(ours, signed, draws, strict=True):
        np.testing.assert_array_equal(row, datasketch_values(some[:cap], 16, 1))
        assert draw == mix64(min((h & 0xFFFFFFFF for h in some[:cap]), default=0xFFFFFFFF))


def test_first_permutations_give_the_first_values() -> None:
    array = pa.array(HARD, pa.large_string())
    hashes = permutations(112, 1)
    all_of_them = signatures(array, Shingle(5), hashes)
    np.testing.assert_array_equal(signatures(array, Shingle(5), hashes.first(91)), all_of_them[:, :91])


def test_signatures_work_in_datasketch_lsh() -> None:
    text = " ".join(f"word{i}" for i in range(300))
    near = text.replace("word150", "other")
    signed = signatures(pa.array([text, near, HARD[0]], pa.large_string()), Shingle(5), permutations(112, 1))
    sketches = [MinHash(hashvalues=row, seed=1, scheme="affine32") for row in signed]
    lsh = MinHashLSH(threshold=0.8, num_perm=112)
    for name, sketch in zip("xyz", sketches, strict=True):
        lsh.insert(name, sketch)
    assert set(lsh.query(sketches[0])) == {"x", "y"}


def test_empty_text_has_no_shingle_and_short_text_has_one() -> None:
    array = pa.array(["", "!?", "one", "one two three four", "one two three four five"], pa.large_string())
    signed, counts, _, _ = sign(array, np.arange(5), Shingle(5), permutations(16, 1))
    assert counts.tolist() == [0, 0, 1, 1, 1]
    assert (signed[:2] == minhash.NO_HASH).all()
    assert not (signed[2:] == minhash.NO_HASH).all(axis=1).any()
    short = pa.array(["", "!?", "a", "ab c", "ab cd"], pa.large_string())
    _, counts, _, _ = sign(short, np.arange(5), Shingle(5, characters=True), permutations(16, 1))
    assert counts.tolist() == [0, 0, 1, 1, 1]


def test_sliced_and_null_and_32_bit_string_arrays() -> None:
    whole = pa.array(HARD, pa.large_string())
    hashes = permutations(16, 1)
    expected = signatures(whole, Shingle(3), hashes)
    np.testing.assert_array_equal(signatures(whole.slice(4, 6), Shingle(3), hashes), expected[4:10])
    np.testing.assert_array_equal(signatures(whole.cast(pa.string()), Shingle(3), hashes), expected)
    nulls = signatures(pa.array([None, HARD[0]], pa.large_string()), Shingle(3), hashes)
    empty = signatures(pa.array(["", HARD[0]], pa.large_string()), Shingle(3), hashes)
    np.testing.assert_array_equal(nulls, empty)
    assert signatures(pa.array([], pa.large_string()), Shingle(3), hashes).shape == (0, 16)


def test_case_punctuation_and_spacing_do_not_count() -> None:
    for characters in (False, True):
        first, second, third = actual_sets(
            ["Hello,  World!\nÉTÉ", "hello world été", "hello worlds été"], 2, characters
        )
        assert first == second != third


@pytest.mark.parametrize("count", [0, 1, 2, 3, 24, 25, 1000, 70_000])
def test_hashes_are_sorted_whatever_repeats(count: int) -> None:
    random = np.random.default_rng(count)
    even = random.integers(0, 2**64, count, np.uint64)
    few = even[random.integers(0, max(1, count // 50), count)] if count else even
    crowded = even >> np.uint64(20)
    for values in (even, few, crowded):
        out = np.empty(count, np.uint64)
        minhash.sort_hashes(values, count, out)
        np.testing.assert_array_equal(out, np.sort(values))


def test_band_keys_take_both_widths_and_depend_on_the_band() -> None:
    narrow = np.array([[1, 2, 1, 2], [1, 2, 3, 4]], np.uint32)
    keys = minhash.band_keys(narrow, 2, 2)
    np.testing.assert_array_equal(minhash.band_keys(narrow.astype(np.uint64), 2, 2), keys)
    assert keys[0, 0] == keys[1, 0] and keys[0, 1] != keys[1, 1] and keys[0, 0] != keys[0, 1]
    wide = narrow.astype(np.uint64)
    wide[1, 0] += np.uint64(1 << 40)
    assert minhash.band_keys(wide, 2, 2)[1, 0] != keys[1, 0]


@given(st.lists(st.sets(st.integers(0, 30), max_size=20), min_size=2, max_size=6))
def test_jaccard_is_exact(sets: list[set[int]]) -> None:
    ordered = [sorted(s) for s in sets]
    bounds = np.r_[0, np.cumsum([len(s) for s in ordered])].astype(np.int64)
    hashes = np.array([x for s in ordered for x in s], np.uint64)
    a, b = np.triu_indices(len(sets))
    found = minhash.jaccard(bounds, hashes, bounds, hashes, a, b)
    for i, j, value in zip(a, b, found, strict=True):
        union = len(sets[i] | sets[j])
        assert value == (len(sets[i] & sets[j]) / union if union else 0.0)
