"""Winnowing: the selection of the paper, its guarantee."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text.shingling import Shingle, Shingling, winnow
from corpusmill.pipeline.text.winnowing import select
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.text.reference import HARD, shingles_of

WORDS = st.lists(st.sampled_from(["a", "b", "c", "dd", "ee", "f1", "漢", "été"]), max_size=40)


def selected(hashes: list[int], window: int) -> list[int]:
    """Robust winnowing, a window at a time."""
    if not hashes:
        return []
    places: list[int] = []
    for start in range(max(1, len(hashes) - window + 1)):
        part = range(start, min(start + window, len(hashes)))
        least = min(hashes[i] for i in part)
        if places and places[-1] in part and hashes[places[-1]] == least:
            continue
        places.append(max(i for i in part if hashes[i] == least))
    return [hashes[i] for i in places]


def of(texts: list[str], shingle: Shingle, window: int) -> list[list[int]]:
    bounds, hashes = winnow(pa.array(texts, pa.large_string()), np.arange(len(texts)), shingle, window)
    return [hashes[i:j].tolist() for i, j in itertools.pairwise(bounds)]


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 12))
def test_the_selection_is_the_papers(values: list[int], window: int) -> None:
    hashes = np.array(values, np.uint64)
    count = select(hashes, len(values), window, np.empty(window, np.int64))
    assert hashes[:count].tolist() == selected(values, window)


def test_the_papers_own_example() -> None:
    """Figure 2 of the paper: windows of 4 over its hashes."""
    values = [77, 74, 42, 17, 98, 50, 17, 98, 8, 88, 67, 39, 77, 74, 42, 17, 98]
    hashes = np.array(values, np.uint64)
    assert hashes[: select(hashes, len(values), 4, np.empty(4, np.int64))].tolist() == [17, 17, 8, 39, 17]


@pytest.mark.parametrize("characters", [False, True], ids=["word", "char"])
@pytest.mark.parametrize("window", [1, 2, 7, 100])
def test_texts_have_the_distinct_selected_shingles(window: int, characters: bool) -> None:
    expected = [sorted(set(selected(shingles_of(text, 3, characters), window))) for text in HARD]
    assert of(HARD, Shingle(3, characters), window) == expected


@given(WORDS, WORDS, WORDS, WORDS, WORDS, st.integers(1, 6), st.integers(1, 3))
def test_texts_that_share_a_run_share_a_fingerprint(
    run: list[str],
    before: list[str],
    after: list[str],
    first: list[str],
    last: list[str],
    window: int,
    ngram: int,
) -> None:
    one, other = (" ".join([*b, *run, *a]) for b, a in ((before, after), (first, last)))
    if len(run) >= window + ngram - 1:
        ours, theirs = of([one, other], Shingle(ngram), window)
        assert set(ours) & set(theirs)


@pytest.mark.parametrize("preset", ["corpusmill", "datatrove"])
def test_the_door_selects_members_of_the_sets(preset: str) -> None:
    shingling = Shingling(DedupParams.model_validate({"preset": preset, "ngram": 2}), 112)
    text, rows = pa.array(HARD, pa.large_string()), np.arange(len(HARD))
    bounds, hashes = shingling.winnow(text, rows, 4)
    all_bounds, all_hashes = shingling.sets(text, rows)
    for i in range(len(HARD)):
        ours, whole = hashes[bounds[i] : bounds[i + 1]], all_hashes[all_bounds[i] : all_bounds[i + 1]]
        assert np.isin(ours, whole).all() and (len(ours) > 0) == (len(whole) > 0)
    everything = shingling.winnow(text, rows, 1)
    np.testing.assert_array_equal(everything[0], all_bounds)
    np.testing.assert_array_equal(everything[1], all_hashes)


def test_few_shingles_are_selected_and_fewer_where_a_text_repeats_itself() -> None:
    text = " ".join(f"w{i * i % 100_003}" for i in range(20_000))
    random, repeated = of([text, "a b c d e " * 4000], Shingle(5), 9)
    assert 0.18 < len(random) / 20_000 < 0.22
    assert len(repeated) <= 5
