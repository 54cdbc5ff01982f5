"""Keys of texts: those of the bytes alone, and apart for different bytes, in both halves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text.byte_hashes import text_keys

TEXTS = st.lists(
    st.none() | st.text(max_size=90) | st.sampled_from(["", "a", "a\0", "\0", "aa"]), max_size=30
)


def plain(text: str) -> tuple[int, int]:
    """The same in plain Python."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0xD6E8FEB86659FD93 % 2**64
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * multiplier % 2**64
    return xxhash.xxh64_intdigest(text.encode()), value ^ value >> 33


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string()]), st.data())
def test_equal_to_plain_python(texts: list[str | None], kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=40)) if texts else []
    array = pa.concat_arrays([pa.array(["before"], kind), pa.array(texts, kind)])[1:]
    hi, lo = text_keys(array, np.array(rows, np.int64))
    expected = [plain(texts[row] or "") for row in rows]
    assert list(zip(hi.tolist(), lo.tolist(), strict=True)) == expected


def test_no_two_of_a_hundred_thousand_urls_meet_in_a_half() -> None:
    texts = pa.array([f"example.org/{i % 7}/page?id={i}" for i in range(100_000)])
    for half in text_keys(texts, np.arange(len(texts), dtype=np.int64)):
        assert len(np.unique(half)) == len(texts)
