"""Bands and rows: the promise is kept, and at the least price."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dedup.banding import Banding, banding, solve
from pipeline.dedup.kernels import kernel
from pipeline.dedup.kernels.shingles import permutations
from schemas.dedup import DedupParams
from schemas.errors import UserError


def test_published_curves() -> None:
    """datatrove's 14 x 8, NeMo Curator's 20 x 13, RedPajama's 9 x 13 that is sold as 0.8."""
    assert Banding(14, 8).found(0.8) == pytest.approx(0.924, abs=5e-4)
    assert Banding(20, 13).found(0.7) == pytest.approx(0.177, abs=5e-4)
    assert Banding(9, 13).found(0.8) == pytest.approx(0.399, abs=5e-4)
    assert Banding(3, 5).found(1.0) == 1.0 and Banding(3, 5).found(0.0) == 0.0


def test_default_promise() -> None:
    assert banding(DedupParams()) == Banding(13, 7)


def test_given_banding_is_taken() -> None:
    assert banding(DedupParams(bands=14, rows=8)) == Banding(14, 8)


@given(st.floats(0.05, 1), st.floats(0.01, 0.999), st.integers(8, 256))
def test_solution_keeps_the_promise_with_most_rows_and_fewest_bands(
    similarity: float, recall: float, num_perm: int
) -> None:
    def keeps(bands: int, rows: int) -> bool:
        return bands >= 1 and bands * rows <= num_perm and Banding(bands, rows).found(similarity) >= recall

    found = solve(similarity, recall, num_perm)
    if found is None:
        assert not keeps(num_perm, 1)
        return
    assert keeps(*found)
    assert found.bands == 1 or not keeps(found.bands - 1, found.rows)
    assert not any(keeps(num_perm // rows, rows) for rows in range(found.rows + 1, num_perm + 1))


def test_impossible_promise_names_what_to_change() -> None:
    message = r"dedup\.recall: 0\.999 .*num_perm 8 .*raise num_perm or lower recall"
    with pytest.raises(UserError, match=message):
        banding(DedupParams(similarity=0.1, recall=0.999, num_perm=8))


@pytest.mark.parametrize("size", [10, 50, 200, 2000])
@pytest.mark.parametrize("wanted", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_hit_rate_lies_in_the_binomial_interval(size: int, wanted: float) -> None:
    """Pairs of sets of exactly known similarity: the share that meets in a band is what the S-curve says."""
    bands, rows, trials = 14, 8, 400 if size == 2000 else 1500
    shared = round(2 * size * wanted / (1 + wanted))
    similarity = shared / (2 * size - shared)
    generator = np.random.default_rng([size, round(100 * wanted)])
    a, b = permutations(bands * rows, 1)
    signed = np.empty((2, trials, bands * rows), np.uint32)
    for trial in range(trials):
        hashes = generator.integers(0, 2**64, 2 * size - shared, np.uint64)
        kernel.min_hash(hashes[:size], size, a, b, signed[0, trial])
        kernel.min_hash(hashes[size - shared :], size, a, b, signed[1, trial])
    keys = [kernel.band_keys(some, bands, rows) for some in signed]
    hits = int((keys[0] == keys[1]).any(axis=1).sum())
    low, high = binomial_interval(trials, Banding(bands, rows).found(similarity), 0.99)
    assert low <= hits <= high


def binomial_interval(n: int, p: float, level: float) -> tuple[int, int]:
    """The central interval of Binomial(n, p), by its exact distribution."""
    if p in (0.0, 1.0):
        return round(n * p), round(n * p)
    choose = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    log = [c + k * math.log(p) + (n - k) * math.log1p(-p) for k, c in enumerate(choose)]
    total = np.cumsum(np.exp(log))
    tail = (1 - level) / 2
    return int(np.searchsorted(total, tail)), int(np.searchsorted(total, 1 - tail))


def test_band_keys_depend_on_band_and_every_value() -> None:
    generator = random.Random(0)
    signature = np.array([[generator.getrandbits(32) for _ in range(6)]], np.uint32)
    same = np.tile(signature[:, :2], 3)
    assert len(set(kernel.band_keys(same, 3, 2)[0].tolist())) == 3, "equal values in two bands are no match"
    for place in range(6):
        other = signature.copy()
        other[0, place] ^= 1
        changed = kernel.band_keys(signature, 3, 2)[0] != kernel.band_keys(other, 3, 2)[0]
        assert changed.tolist() == [band == place // 2 for band in range(3)]
