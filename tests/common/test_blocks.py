"""What stands in a block's `.json`."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.blocks import Cut, described


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=20), st.data())
def test_the_json_member_is_what_json_writes(ids: list[bytes], data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 2**31), min_size=len(ids), max_size=len(ids))
    starts, lows, highs = (data.draw(numbers) for _ in range(3))
    cut = Cut(
        np.zeros(1, np.uint16), np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16), np.array(starts, np.uint32),
        np.array(lows, np.int64), np.array(highs, np.int64),
    )  # fmt: skip
    plain = {
        "doc_ids": [i.hex() for i in ids], "token_starts": starts, "char_starts": lows, "char_ends": highs,
    }  # fmt: skip
    assert described(cut) == json.dumps(plain, separators=(",", ":")).encode()
