"""Sets of integers by sorting: what NumPy's functions give, which hash them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from corpusmill.pipeline.engine.shuffle import among, distinct

NUMBERS = st.one_of(st.integers(-4, 4), st.integers(-(2**63), 2**63 - 1))
SETS = st.integers(0, 40).flatmap(lambda size: arrays(np.int64, size, elements=NUMBERS))


@given(SETS, SETS)
def test_as_numpy_has_it(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_array_equal(distinct(one), np.unique(one))
    np.testing.assert_array_equal(among(one, np.sort(other)), np.isin(one, other))


@pytest.mark.parametrize("kind", [np.uint64, np.int32, np.dtype("V16")])
def test_other_types(kind: np.dtype) -> None:
    values = np.arange(64, dtype=np.uint8).view(kind).repeat(2)
    assert len(distinct(values)) == len(values) // 2 and among(values, np.sort(values)).all()
