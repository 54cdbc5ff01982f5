"""Documents copied into another order, and what their sums notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.shard.kernels.order import copy, weigh


def copied(
    documents: list[list[int]], order: list[int], gap: int, dtype: type
) -> tuple[list[list[int]], list[int]]:
    """The documents as `copy` put them, and their sums."""
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    source: npt.NDArray[Any] = np.array([x for doc in documents for x in doc], dtype=dtype)
    lengths = np.diff(offsets)[order]
    out: npt.NDArray[Any] = np.zeros(int(lengths.sum()) + gap * len(order), dtype=dtype)
    places, sums = np.zeros(len(order) + 1, dtype=np.int64), np.zeros(len(order), dtype=np.uint64)
    copy(source, offsets[:-1][order], lengths, gap, out, places, sums)
    assert int(places[-1]) == len(out)
    ends = places[1:] - gap
    return [out[a:b].tolist() for a, b in zip(places[:-1], ends, strict=True)], sums.tolist()


@given(st.data())
def test_documents_come_in_the_order_asked_for(data: st.DataObject) -> None:
    dtype, top = data.draw(st.sampled_from([(np.uint16, 2**16), (np.uint32, 2**32), (np.uint64, 2**64)]))
    documents = data.draw(st.lists(st.lists(st.integers(0, top - 1), max_size=6), min_size=1, max_size=8))
    order = data.draw(st.permutations(range(len(documents))))
    gap = data.draw(st.integers(0, 2))
    found, sums = copied(documents, list(order), gap, dtype)
    assert found == [documents[i] for i in order]
    again, same = copied(documents, list(range(len(documents))), 0, dtype)
    assert [same[i] for i in order] == sums and again == documents


@pytest.mark.parametrize(
    "change", [lambda d: d[::-1], lambda d: [*d, 0], lambda d: d[:-1], lambda d: [d[0] ^ 1, *d[1:]]]
)
def test_a_changed_document_has_another_sum(
    change: Callable[[list[int]], list[int]],
) -> None:
    document = [3, 1, 4, 1, 5]
    assert copied([document], [0], 0, np.uint16)[1] != copied([change(document)], [0], 0, np.uint16)[1]


def test_weights_are_added_up_by_document() -> None:
    out = np.empty(4, dtype=np.int64)
    weights = np.array([10, 20, 30], dtype=np.int32)
    weigh(np.array([0, 1, 2, 2], dtype=np.uint16), np.array([0, 1, 1, 3, 4]), weights, out)
    assert out.tolist() == [10, 0, 50, 30]
