"""Planted copies: of the similarity that they say, found as often as the theory has it, the same in any
cut."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.job import PAIR
from corpusmill.pipeline.dedup.quality import plain, planted
from corpusmill.pipeline.dedup.quality.planted import LEVELS, PLANTED, Planted, choose, mark_found, plant
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.dedup.quality.made import made_up

SHAPES = pytest.mark.parametrize(
    "params", [{}, {"shingle": "char", "ngram": 12}, {"ngram": 13}, {"ngram": 1}], ids=str
)


def plant_all(texts: list[str], keys: np.ndarray, **params: object) -> tuple[Planted, Banding]:
    asked = DedupParams.model_validate(params)
    bands = banding(asked)
    shingling = Shingling(asked, bands.bands * bands.rows)
    array = pa.array(texts, pa.large_string())
    return plant(array, np.arange(len(texts)), keys, shingling, bands), bands


def similarity(a: str, b: str, ngram: int = 5, characters: bool = False) -> float:
    return plain.jaccard(
        *(plain.shingles((plain.characters if characters else plain.words)(text), ngram) for text in (a, b))
    )


def keys_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def long_texts(count: int, low: int = 60, high: int = 500, seed: int = 1) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(made_up(generator, generator.randint(low, high))) for _ in range(count)]


@SHAPES
def test_similarity_is_exact_and_near_the_level(params: dict[str, object]) -> None:
    texts = long_texts(150, 200)
    made, _ = plant_all(texts, keys_of(150), **params)
    assert made.original.tolist() == list(range(150)) and len(set(made.target)) == len(LEVELS)
    for copy, row, jaccard in zip(made.texts.to_pylist(), made.original, made.jaccard, strict=True):
        ngram = int(str(params.get("ngram", 5)))
        assert similarity(texts[row], copy, ngram, params.get("shingle") == "char") == jaccard < 1
    off = np.abs(made.jaccard - made.target)
    assert np.median(off) <= 0.011 and (off < 0.05).mean() > 0.9


@SHAPES
def test_as_many_share_a_band_as_the_theory_says(params: dict[str, object]) -> None:
    """Inside the 99 % interval of the binomial at each level."""
    count = 1200
    made, bands = plant_all(long_texts(count), keys_of(count, 5), **params)
    for level in LEVELS:
        mine = made.target == level
        chance = np.array([bands.found(j) for j in made.jaccard[mine].tolist()])
        half = 2.576 * math.sqrt(float((chance * (1 - chance)).sum())) + 0.5  # of a whole number
        assert abs(made.hit[mine].sum() - chance.sum()) <= half, level
    assert 0.3 < made.hit.mean() < 1


def test_any_cut_gives_the_same_copies() -> None:
    texts = long_texts(60, 15, 80)
    keys = keys_of(60)
    whole, bands = plant_all(texts, keys)
    asked = DedupParams()
    shingling = Shingling(asked, bands.bands * bands.rows)
    found: dict[int, list[object]] = {}
    for rows in np.array_split(np.random.default_rng(1).permutation(60), 7):
        part = pa.array(["other", *(texts[row] for row in rows)], pa.large_string())
        made = plant(part, np.arange(1, len(rows) + 1), keys[rows], shingling, bands)
        columns = (made.original, made.texts.to_pylist(), made.target, made.jaccard, made.hit)
        found |= {int(rows[place - 1]): rest for place, *rest in zip(*columns, strict=True)}
    columns = (whole.original, whole.texts.to_pylist(), whole.target, whole.jaccard, whole.hit)
    assert found == {int(row): rest for row, *rest in zip(*columns, strict=True)}


def test_short_and_endless_texts_get_none() -> None:
    texts = [
        "",
        "one",
        " ".join(["word"] * 19),
        "x" * 100,
        "w " * (planted.LONGEST // 2 + 1),
        long_texts(1)[0],
    ]
    made, _ = plant_all(texts, keys_of(len(texts)))
    assert made.original.tolist() == [5]
    none, _ = plant_all([], keys_of(0))
    assert (
        len(none.texts) == len(none.original) == len(none.hit) == 0 and none.texts.type == pa.large_string()
    )


def test_a_text_of_one_word_over_and_over_gets_an_honest_copy() -> None:
    made, _ = plant_all(["word " * 50], keys_of(1))
    assert len(made.texts) == len(made.jaccard) and (made.jaccard < 1).all()


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(0, 2**64 - 1))
def test_any_text(text: str, key: int) -> None:
    """Unspaced scripts, marks, control characters: the copy is a text, its similarity the exact one."""
    asked = DedupParams()
    shingling = Shingling(asked, 91)
    array = pa.array([text * 3, text + " 漢字かな交じり文日本語の文章は空白なしに書く"], pa.large_string())
    made = plant(array, np.arange(2), np.array([key, key ^ 1], np.uint64), shingling, Banding(13, 7))
    for copy, row, jaccard in zip(made.texts.to_pylist(), made.original, made.jaccard, strict=True):
        assert similarity(array[row].as_py(), copy) == jaccard
    made.texts.validate(full=True)


def test_share_chosen_goes_by_the_key() -> None:
    keys = keys_of(100_000)
    few = choose(keys, 0.01)
    assert 850 < few.sum() < 1150
    assert (choose(keys, 0.02) >= few).all(), "a larger share takes the same ones and more"
    np.testing.assert_array_equal(choose(keys[::-1], 0.01), few[::-1])
    assert choose(keys, 1.0).all() and not choose(keys, 0.0).any()
    low = np.sort(keys)[:1000]
    assert choose(low, 0.5).mean() == pytest.approx(0.5, abs=0.06), "keys near each other are no choice"


def test_found_is_what_met_a_similar_text() -> None:
    records = np.zeros(4, PLANTED)
    records["planted"] = [10, 11, 12, 13]
    pairs = np.zeros(3, PAIR)
    pairs["a"], pairs["b"], pairs["jaccard"] = [1, 2, 3], [10, 12, 13], [0.8, 0.79, 0.95]
    marked = mark_found(records, pairs, 0.8)
    assert marked["found"].tolist() == [True, False, False, True] and not records["found"].any()
