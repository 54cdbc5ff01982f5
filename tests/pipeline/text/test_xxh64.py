"""XXH64 against the xxhash package."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text.byte_hashes import xxh64


@given(st.binary(max_size=200), st.integers(0, 40), st.integers(0, 40))
def test_any_bytes_at_any_place(data: bytes, before: int, after: int) -> None:
    around = np.frombuffer(b"\xff" * before + data + b"\xff" * after, np.uint8)
    assert xxh64(around, before, before + len(data)) == xxhash.xxh64_intdigest(data)


@pytest.mark.parametrize("size", [*range(70), 1000, 100_003])
def test_every_length(size: int) -> None:
    data = bytes(i * 131 % 251 for i in range(size))
    assert xxh64(np.frombuffer(data, np.uint8), 0, size) == xxhash.xxh64_intdigest(data)
