"""Similarities through the inverted index are those of the sets themselves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.ids import doc_id
from corpusmill.pipeline.split.index import SAMPLE, Index, build, compare, empty_best, sets_of

U64 = npt.NDArray[np.uint64]
# Few values, so that sets share much; spread over all bits, with neighbours.
POOL = [(n * 0x9E3779B97F4A7C15) % 2**64 for n in range(40)] + [0, 1, 2**64 - 1, 2**64 - 2]
SETS = st.lists(st.sets(st.sampled_from(POOL), max_size=25), max_size=12)


def packed(sets: list[set[int]]) -> tuple[npt.NDArray[np.int64], U64]:
    bounds = np.cumsum([0, *(len(s) for s in sets)]).astype(np.int64)
    return bounds, np.array([value for s in sets for value in sorted(s)], np.uint64)


def sample(sets: list[set[int]]) -> pa.Table:
    rows = [
        {"doc_id": doc_id("s", str(i)), "source": "s", "bytes": 1, "shingles": sorted(s)}
        for i, s in enumerate(sets)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLE)


def run(index: Index, train: list[set[int]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    best, row = empty_best(len(index.sizes))
    compare(*packed(train), np.arange(len(train)), tuple(index), best, row)
    return best, row


@settings(max_examples=120, deadline=None)
@given(SETS, SETS)
def test_best_is_the_best_of_all_pairs(validation: list[set[int]], train: list[set[int]]) -> None:
    best, row = run(build(sample(validation)), train)
    for v, mine in enumerate(validation):
        for column in (0, 1):
            values = [
                len(mine & d) / len(mine | d) if column == 0 else len(mine & d) / len(mine) if mine else 0.0
                for d in [d or {-1} for d in train]
            ]
            top = max(values, default=0.0)
            assert best[v, column] == top
            assert row[v, column] == (values.index(top) if top else -1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.floats(0, 1))
def test_many_documents_with_templates(seed: int, documents: int, density: float) -> None:
    """More documents than a word of a bitmap has bits, and shingles that many of them have."""
    draw = np.random.default_rng(seed)
    pool = draw.integers(0, 2**63, 60)

    def sets(count: int) -> list[set[int]]:
        common = (
            draw.random(len(pool)) < 0.5
        )  # these are in as many documents as `density` says, the others in few
        return [
            set(pool[draw.random(len(pool)) < np.where(common, density, 0.03)].tolist()) for _ in range(count)
        ]

    validation, train = sets(documents), sets(6)
    best, _ = run(build(sample(validation)), train)
    for v, mine in enumerate(validation):
        shared = [len(mine & d) for d in train]
        assert best[v, 0] == max(n / max(1, len(mine | d)) for n, d in zip(shared, train, strict=True))
        assert best[v, 1] == max(shared) / max(1, len(mine))


@given(SETS)
def test_sets_come_back_from_the_sample(sets: list[set[int]]) -> None:
    table = sample(sets)
    for part, expected in ((table, sets), (table.slice(1), sets[1:])):
        bounds, hashes = sets_of(part)
        assert bounds.tolist() == packed(expected)[0].tolist()
        assert hashes.tolist() == packed(expected)[1].tolist()


def test_a_template_is_one_class() -> None:
    template = set(POOL[:20])
    index = build(sample([template | {POOL[20 + i]} for i in range(5)]))
    assert len(index.list_bounds) == 2 and index.members.tolist() == [0, 1, 2, 3, 4]
    best, row = run(index, [template, template | {POOL[22]}])
    assert best[2].tolist() == [1.0, 1.0] and row[2].tolist() == [1, 1]
    assert best[0, 0] == 20 / 21 and row[0].tolist() == [0, 0]
