"""Real texts through the whole kernel: the share of pairs that meet in a band is what the S-curve says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.dedup.plain_sets import jaccard, plain_shingles
from tests.pipeline.dedup.test_banding import binomial_interval

SIMILARITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SIZES = {10: 4000, 50: 3000, 200: 1500, 2000: 400}  # shingles of a text -> pairs of texts tried
BANDINGS = (Banding(13, 7), Banding(14, 8), Banding(20, 5))
PRESETS = ("corpusmill", "datatrove")
# All cells together lie in their intervals with 99 %: Bonferroni's correction. J = 1 is no matter of chance.
CELLS = (len(SIMILARITIES) - 1) * len(SIZES) * len(BANDINGS) * len(PRESETS)
LEVEL = 1 - 0.01 / CELLS


def shape(size: int, wanted: float) -> tuple[int, int]:
    """(shingles of the other text, shingles shared) such that a text of `size` has Jaccard `wanted`, within
    0.005, with another that is as long as can be."""
    for other in range(size, 0, -1):
        shared = round(wanted * (size + other) / (1 + wanted))
        if shared <= other and abs(shared / (size + other - shared) - wanted) < 0.005:
            return other, shared
    raise AssertionError(f"no such texts: {size}, {wanted}")


def similar_pairs(size: int, other: int, shared: int, count: int, seed: int) -> tuple[pa.Array, pa.Array]:
    """`count` pairs of texts of `size` and `other` 5-word shingles, the first `shared` of them the same in both;
    words of seven random letters, so that nothing else is."""
    generator = np.random.default_rng(seed)
    sides = np.full((2, count, size + 4, 8), ord(" "), np.uint8)
    sides[..., :7] = generator.integers(ord("a"), ord("z") + 1, sides[..., :7].shape, np.uint8)
    sides[1, :, : shared + 4] = sides[0, :, : shared + 4]
    return one_text_a_row(sides[0]), one_text_a_row(sides[1, :, : other + 4])


def one_text_a_row(letters: npt.NDArray[np.uint8]) -> pa.Array:
    """A large_string array of the rows of [texts, words, letters]."""
    offsets = np.arange(len(letters) + 1, dtype=np.int64) * letters[0].size
    data = np.ascontiguousarray(letters).tobytes()
    return pa.LargeStringArray.from_buffers(len(letters), pa.py_buffer(offsets), pa.py_buffer(data))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wanted", SIMILARITIES)
def test_hit_rate_lies_in_the_binomial_interval(size: int, wanted: float, preset: str) -> None:
    """Texts through the whole kernel: the share of pairs that meet in a band is 1 - (1 - J^r)^b."""
    count = SIZES[size]
    other, shared = shape(size, wanted)
    exact = shared / (size + other - shared)
    both = similar_pairs(size, other, shared, count, seed=size + round(1000 * wanted))
    for pair in range(3):
        one, two = (side[pair].as_py() for side in both)
        assert len(plain_shingles(one)) == size and jaccard(one, two) == exact
    params = DedupParams.model_validate({"preset": preset})
    shingling = Shingling(params, 112)
    signed = [shingling.sign(side, np.arange(count, dtype=np.int64)) for side in both]
    assert (signed[0].counts == size).all() and (signed[1].counts == other).all()
    for banding in BANDINGS:
        keys = [minhash.band_keys(_first(side.signatures, banding), *banding) for side in signed]
        hits = int((keys[0] == keys[1]).any(axis=1).sum())
        low, high = binomial_interval(count, banding.found(exact), LEVEL)
        assert low <= hits <= high, f"{hits} of {count}, expected {low} to {high} with {banding}"


def _first(signatures: npt.NDArray[np.unsignedinteger], banding: Banding) -> npt.NDArray[np.unsignedinteger]:
    return np.ascontiguousarray(signatures[:, : banding.bands * banding.rows])


def test_the_intervals_can_tell_curves_apart() -> None:
    """Where a curve is steep, one row more or less lies far outside."""
    for count in SIZES.values():
        low, high = binomial_interval(count, Banding(14, 8).found(0.7), LEVEL)
        assert not low <= count * Banding(14, 9).found(0.7) <= high
        assert not low <= count * Banding(14, 7).found(0.7) <= high
