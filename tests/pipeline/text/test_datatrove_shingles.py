"""The preset `datatrove`: value for value what datatrove itself gave for the golden texts."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text import datatrove_shingles
from corpusmill.pipeline.text.datatrove_shingles import (
    BYTES,
    NO_HASH,
    PRIME,
    permutations,
    sign_words,
    simplified,
)
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.pipeline.text.word_hashes import CHUNK
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.text.golden.texts import texts

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden/datatrove.json").read_text("utf-8")
)["documents"]
TEXTS = texts()
PARAMS = DedupParams(preset="datatrove")


def array(some: list[str]) -> pa.Array:
    return pa.array(some, pa.large_string())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def expected(words: list[str], ngram: int) -> list[int]:
    """XXH64 of the shingles of words, in order."""
    starts = range(max(1, len(words) - ngram + 1)) if words else []
    return [xxhash.xxh64_intdigest(" ".join(words[i : i + ngram]).encode()) for i in starts]


def values(shingles: list[int], num_perm: int = 112) -> np.ndarray:
    """datatrove's `get_signature`, as it is written there."""
    a, b = permutations(num_perm, 1)
    column = np.array(shingles, np.uint64).reshape(-1, 1)
    return ((column * a + b) % PRIME).min(axis=0)


def test_the_golden_file_is_of_these_texts() -> None:
    assert len(GOLDEN) == len(TEXTS) > 200
    assert max(map(len, TEXTS)) > 990_000
    assert 50 < sum("words" in found for found in GOLDEN) < len(GOLDEN) - 50
    assert sum("values" in found for found in GOLDEN) >= 8


def test_simplified_texts_are_datatroves() -> None:
    ours = [digest(text.encode()) for text in simplified(array(TEXTS)).to_pylist()]
    assert ours == [found["simplified"] for found in GOLDEN]


def test_signatures_are_datatroves_for_the_same_words() -> None:
    signed = Shingling(PARAMS, 112).sign(array(TEXTS), np.arange(len(TEXTS)))
    assert signed.signatures.dtype == np.uint64 and signed.signatures.shape == (len(TEXTS), 112)
    compared = 0
    for text, row, count, found in zip(TEXTS, signed.signatures, signed.counts, GOLDEN, strict=True):
        if "words" in found:
            continue
        if "signature" in found:
            assert digest(row.astype("<u8").tobytes()) == found["signature"], text[:80]
            compared += 1
        else:  # fewer than five words: none there, one shingle here
            assert count <= 1
        if "values" in found:
            assert row.tolist() == found["values"]
    assert compared > 60


def test_signatures_of_datatroves_own_words_are_datatroves() -> None:
    differ = [found for found in GOLDEN if "words" in found]
    split = pa.array([found["words"].split(" ") for found in differ])
    hashes = permutations(112, 1)
    signatures = sign_words(split, 5, hashes)
    np.testing.assert_array_equal(sign_words(array([f["words"] for f in differ]), 5, hashes), signatures)
    for row, found in zip(signatures, differ, strict=True):
        if "signature" in found:
            assert digest(row.astype("<u8").tobytes()) == found["signature"]
        if "values" in found:
            assert row.tolist() == found["values"]


@pytest.mark.parametrize("ngram", [1, 2, 5])
def test_sets_and_signatures_follow_the_reference(ngram: int) -> None:
    params = PARAMS.model_copy(update={"ngram": ngram})
    some = [text for text in TEXTS if len(text) < 80_000]
    shingling, rows = Shingling(params, 112), np.arange(len(some))
    signed, (bounds, hashes) = shingling.sign(array(some), rows), shingling.sets(array(some), rows)
    words = [text.split() for text in simplified(array(some)).to_pylist()]
    for i, (first, last) in enumerate(itertools.pairwise(bounds)):
        shingles = expected(words[i], ngram)
        assert hashes[first:last].tolist() == sorted(set(shingles))
        assert signed.counts[i] == len(shingles)
        if shingles:
            np.testing.assert_array_equal(signed.signatures[i], values(shingles))
        else:
            assert (signed.signatures[i] == NO_HASH).all()
    np.testing.assert_array_equal(shingling.sign_sets(bounds, hashes), signed.signatures)
    np.testing.assert_array_equal(sign_words(pa.array(words), ngram, shingling.hashes), signed.signatures)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9))
def test_permutations_wrap_before_the_modulus(hashes: list[int]) -> None:
    edges = [*hashes, 0, 2**61 - 1, 2**64 - 1]
    signed = datatrove_shingles.sign_sets(
        np.array([0, len(edges)]), np.array(edges, np.uint64), *permutations(112, 1)
    )
    np.testing.assert_array_equal(signed[0], values(edges))


@pytest.mark.parametrize("size", [BYTES - 40, BYTES - 16, BYTES, 5 * BYTES])
def test_a_word_or_a_shingle_longer_than_the_buffer(size: int) -> None:
    text = " ".join(["start", "x" * size, "Σ" * size, "ab " * 10, "각" * size, "end Σ"])
    words = simplified(array([text]))[0].as_py().split()
    shingling = Shingling(PARAMS, 112)
    signed = shingling.sign(array([text]), np.arange(1))
    np.testing.assert_array_equal(signed.signatures[0], values(expected(words, 5)))


@pytest.mark.parametrize("cap", [1000, CHUNK, CHUNK + 5, 10 * CHUNK])
def test_only_the_first_shingles_are_signed(cap: int) -> None:
    some = ["", "one", TEXTS[-2]]
    words = [text.split() for text in simplified(array(some)).to_pylist()]
    shingling = Shingling(PARAMS.model_copy(update={"max_shingles": cap}), 16)
    signed = shingling.sign(array(some), np.arange(3))
    ours = [expected(some_words, 5) for some_words in words]
    assert signed.counts.tolist() == [min(cap, len(shingles)) for shingles in ours]
    assert signed.capped.tolist() == [len(shingles) > cap for shingles in ours]
    np.testing.assert_array_equal(signed.signatures[2], values(ours[2][:cap])[:16])
