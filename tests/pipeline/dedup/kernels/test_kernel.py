"""Words, shingles and min-hashes: against a plain Python reference, and value for value against
datasketch."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dedup.kernels import kernel, unicode
from pipeline.dedup.kernels.shingles import Shingle, permutations, shingle_sets, sign, signatures
from pipeline.dedup.kernels.unicode import ALONE, CLASS_SHIFT, LETTER, MARK, SKIP

M64 = 2**64 - 1
TABLE = unicode.table().tolist()

HARD = [
    "The quick brown fox jumps over the lazy dog, and the QUICK brown fox again.",
    "",
    "   \n\t ... !!! \u200b",
    "word",
    "two words",
    "five words are one shingle",
    "six words are two shingles here",
    "أرقام ٠١٢٣٤٥٦٧٨٩ عربية في نص قصير جدا هنا",
    "漢字かな交じり文。日本語の文章は空白なしで書かれます",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Re\u0301sume\u0301 de\u0301ja\u0300 vu \u0301orphan a\u0308o\u0308 x y",
    "soft\u00adhyphen zero\u200bwidth join\u200der naïve don't l'été under_score",
    "ΟΔΥΣΣΕΥΣ ὀδυσσεύς Straße STRAẞE İstanbul ISTANBUL ısı",
    "emoji 😀 between 👩‍👩‍👧 words 𝐁𝐨𝐥𝐝 𐐀𐐨 deseret 𠀀𠀁 end",
    "a1b2漢c3字d4 mixed漢字runs ก1ข2",
    "a b c d e " * 50,
    "\x00nul\x00bytes\x7f are separators \ufeff too",
]
MILLION = "".join(f"{(i * 2654435761) % 99991:x} " for i in range(190_000))[:1_000_000]


def mix64(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & M64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


def words_of(text: str) -> list[str]:
    """The word rule, a character at a time."""
    found: list[str] = []
    current, alone = "", False
    for character in text:
        value = TABLE[ord(character)]
        kind, folded = value >> CLASS_SHIFT, chr(value & ((1 << CLASS_SHIFT) - 1))
        if kind == SKIP:
            continue
        if (kind == MARK and current) or (kind == LETTER and not alone):
            current += folded
        else:
            if current:
                found.append(current)
            current, alone = (folded, kind == ALONE) if kind in (LETTER, ALONE) else ("", False)
    return [*found, current] if current else found


def shingles_of(text: str, ngram: int) -> list[int]:
    """64-bit shingle hashes in order, by the formula in the kernel's docstring."""
    hashes = []
    for word in words_of(text):
        h = 0xCBF29CE484222325
        for character in word:
            h = (h ^ ord(character)) * 0x100000001B3 & M64
        hashes.append(mix64(h))
    if not hashes:
        return []
    found = []
    for i in range(max(1, len(hashes) - ngram + 1)):
        total = 0
        for h in hashes[i : i + ngram]:
            total = (total * 0x9E3779B97F4A7C15 + h) & M64
        found.append(mix64(total))
    return found


def expected_sets(text: str, ngram: int) -> list[int]:
    return sorted(set(shingles_of(text, ngram)))


def actual_sets(texts: list[str], ngram: int) -> list[list[int]]:
    array = pa.array(texts, pa.large_string())
    bounds, hashes = shingle_sets(array, np.arange(len(texts)), Shingle(ngram))
    return [hashes[i:j].tolist() for i, j in itertools.pairwise(bounds)]


def datasketch_values(text: str, ngram: int, num_perm: int, seed: int) -> np.ndarray:
    sketch = MinHash(num_perm=num_perm, seed=seed, scheme="affine32", hashfunc=lambda value: value)
    shingles = [h >> 32 for h in shingles_of(text, ngram)]
    if shingles:
        sketch.update_batch(shingles)
    return np.asarray(sketch.hashvalues)


@pytest.mark.parametrize("ngram", [1, 2, 5, 13])
def test_sets_follow_the_reference(ngram: int) -> None:
    assert actual_sets(HARD, ngram) == [expected_sets(text, ngram) for text in HARD]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=8), st.integers(1, 7))
def test_sets_follow_the_reference_on_any_text(texts: list[str], ngram: int) -> None:
    assert actual_sets(texts, ngram) == [expected_sets(text, ngram) for text in texts]


@given(st.text("aB 漢ก\u0301\u00ad1,", max_size=60), st.integers(1, 4))
def test_sets_follow_the_reference_where_classes_meet(text: str, ngram: int) -> None:
    assert actual_sets([text], ngram) == [expected_sets(text, ngram)]


@pytest.mark.parametrize(("num_perm", "seed"), [(112, 1), (128, 1), (17, 42)])
def test_signatures_equal_datasketch(num_perm: int, seed: int) -> None:
    texts = [*HARD, MILLION]
    signed = signatures(pa.array(texts, pa.large_string()), Shingle(5), permutations(num_perm, seed))
    assert signed.dtype == np.uint32
    for text, row in zip(texts, signed, strict=True):
        np.testing.assert_array_equal(row, datasketch_values(text, 5, num_perm, seed))


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
    signed, counts, _ = sign(array, np.arange(5), Shingle(5), permutations(16, 1))
    assert counts.tolist() == [0, 0, 1, 1, 1]
    assert (signed[:2] == kernel.NO_HASH).all()
    assert not (signed[2:] == kernel.NO_HASH).all(axis=1).any()


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
    first, second, third = actual_sets(["Hello,  World!\nÉTÉ", "hello world été", "hello worlds été"], 2)
    assert first == second != third


@given(st.lists(st.sets(st.integers(0, 30), max_size=20), min_size=2, max_size=6))
def test_jaccard_is_exact(sets: list[set[int]]) -> None:
    ordered = [sorted(s) for s in sets]
    bounds = np.r_[0, np.cumsum([len(s) for s in ordered])].astype(np.int64)
    hashes = np.array([x for s in ordered for x in s], np.uint64)
    a, b = np.triu_indices(len(sets))
    found = kernel.jaccard(bounds, hashes, bounds, hashes, a, b)
    for i, j, value in zip(a, b, found, strict=True):
        union = len(sets[i] | sets[j])
        assert value == (len(sets[i] & sets[j]) / union if union else 0.0)
