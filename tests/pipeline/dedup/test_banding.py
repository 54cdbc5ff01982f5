"""Bands and rows: the promise is kept, and at the least price."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import BAND_BYTES, Banding, banding, budget_for, solve
from corpusmill.pipeline.dedup.job import BAND, Job
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams


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


def test_false_share_is_the_mean_of_the_curve() -> None:
    """Against the midpoint rule on two million points."""
    for bands, rows, similarity in [
        (13, 7, 0.8),
        (1, 112, 1.0),
        (128, 1, 0.05),
        (3, 300, 0.99),
        (70, 14, 0.8),
    ]:
        x = (np.arange(2_000_000) + 0.5) * similarity / 2_000_000
        mean = -np.expm1(bands * np.log1p(-(x**rows))).mean()
        assert Banding(bands, rows).false_share(similarity) == pytest.approx(mean, rel=1e-6)


promises = given(
    st.one_of(st.floats(0.01, 1), st.sampled_from([0.5, 0.7, 0.8, 0.9, 1.0])),
    st.one_of(st.floats(0.01, 0.9999), st.sampled_from([0.5, 0.9, 0.95, 0.99])),
    st.integers(8, 128),
    st.one_of(st.none(), st.integers(0, 40)),
)


@promises
def test_no_feasible_banding_has_fewer_false_candidates(
    similarity: float, recall: float, num_perm: int, most_bands: int | None
) -> None:
    """Against all bandings within the budgets, one by one."""
    limit = num_perm if most_bands is None else min(num_perm, most_bands)
    feasible = [
        Banding(bands, rows)
        for rows in range(1, num_perm + 1)
        for bands in range(1, min(limit, num_perm // rows) + 1)
        if Banding(bands, rows).found(similarity) >= recall
    ]
    found = solve(similarity, recall, num_perm, most_bands)
    if not feasible:
        assert found is None
        return
    assert found in feasible
    least = min(item.false_share(similarity) for item in feasible)
    assert found.false_share(similarity) <= least * (1 + 1e-12)


@given(
    st.floats(0.01, 0.99),
    st.floats(0.5, 0.999999),
    st.integers(8, 256),
    st.one_of(st.none(), st.integers(64, 2000)),
)
def test_an_error_names_values_that_work(
    similarity: float, recall: float, num_perm: int, budget: int | None
) -> None:
    params = DedupParams(
        similarity=similarity, recall=recall, num_perm=num_perm, scratch_bytes_per_doc=budget
    )
    try:
        solved = banding(params)
    except UserError as error:
        message = str(error)
    else:
        assert solved.found(similarity) >= recall and solved.bands * solved.rows <= num_perm
        assert budget is None or budget_for(params, solved.bands) <= budget
        return
    assert message.startswith("dedup.recall: ") and "\n" not in message
    advice = message.partition("; ")[2].split(", or ")
    assert advice
    for way in advice:
        settings = dict(re.findall(r"dedup\.(num_perm|recall|scratch_bytes_per_doc) to ([0-9.e-]+)", way))
        if settings:
            changed = {
                key: float(value) if key == "recall" else int(value) for key, value in settings.items()
            }
            banding(DedupParams.model_validate({**params.model_dump(), **changed}))
            for key in changed.keys() - {"recall"}:  # and the next lower value does not
                less = {**params.model_dump(), **changed, key: changed[key] - 1}
                if key == "scratch_bytes_per_doc" or changed[key] > 8:
                    with pytest.raises(UserError):
                        banding(DedupParams.model_validate(less))
        else:
            assert way == "raise dedup.similarity"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"similarity": 0.1, "recall": 0.999, "num_perm": 8},
            "dedup.recall: 0.999 at dedup.similarity 0.1 cannot be reached with dedup.num_perm 8 (at most"
            " 0.569532); raise dedup.num_perm to 66, or lower dedup.recall to 0.569532",
        ),
        (
            {"bands": 20, "rows": 5, "scratch_bytes_per_doc": 300},
            "dedup.scratch_bytes_per_doc: 300 is too little for 20 bands; raise it to 696, or lower dedup.bands"
            " to 3",
        ),
        (
            {"preset": "datatrove", "scratch_bytes_per_doc": 300},
            "dedup.scratch_bytes_per_doc: 300 is too little for 14 bands; raise it to 552",
        ),
        (
            {"preset": "datatrove", "num_perm": 100},
            "dedup.num_perm: 100 is fewer than the 14 x 8 permutations of dedup.preset datatrove; raise it to"
            " 112",
        ),
    ],
)
def test_messages(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        banding(DedupParams(**params))
    assert str(caught.value) == message


def test_preset_datatrove_has_its_own_banding() -> None:
    assert banding(DedupParams(preset="datatrove")) == Banding(14, 8)
    assert banding(DedupParams(preset="datatrove", num_perm=256)) == Banding(14, 8)
    assert banding(DedupParams(preset="datatrove", bands=9, rows=12)) == Banding(9, 12)


def test_without_minhash_no_promise_is_asked() -> None:
    assert banding(DedupParams(minhash=False, similarity=0.001, recall=0.9999)) == Banding(1, 1)


def test_budget_counts_the_records_that_are_written() -> None:
    params = DedupParams(keep_order=["date", "signal:a.b"])
    job = Job(Folder("memory://x"), params, Banding(1, 1), 1, 1, (), 0.0, "")
    assert BAND.itemsize == BAND_BYTES
    assert budget_for(params, 3) == job.doc.itemsize + job.text.itemsize + 3 * BAND.itemsize


@pytest.mark.parametrize("size", [10, 50, 200, 2000])
@pytest.mark.parametrize("wanted", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_hit_rate_lies_in_the_binomial_interval(size: int, wanted: float) -> None:
    """Pairs of sets of exactly known similarity: the share that meets in a band is what the S-curve says."""
    bands, rows, trials = 14, 8, 400 if size == 2000 else 1500
    shared = round(2 * size * wanted / (1 + wanted))
    similarity = shared / (2 * size - shared)
    generator = np.random.default_rng([size, round(100 * wanted)])
    shingling = Shingling(DedupParams(), bands * rows)
    both = [np.empty((trials, size), np.uint64) for _ in range(2)]
    for trial in range(trials):
        hashes = generator.integers(0, 2**64, 2 * size - shared, np.uint64)
        both[0][trial], both[1][trial] = hashes[:size], hashes[size - shared :]
    bounds = np.arange(trials + 1, dtype=np.int64) * size
    signed = [shingling.sign_sets(bounds, sets.ravel()) for sets in both]
    keys = [minhash.band_keys(some, bands, rows) for some in signed]
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
    assert len(set(minhash.band_keys(same, 3, 2)[0].tolist())) == 3, "equal values in two bands are no match"
    for place in range(6):
        other = signature.copy()
        other[0, place] ^= 1
        changed = minhash.band_keys(signature, 3, 2)[0] != minhash.band_keys(other, 3, 2)[0]
        assert changed.tolist() == [band == place // 2 for band in range(3)]
