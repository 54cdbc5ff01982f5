from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.ids import text_hash
from corpusmill.pipeline.text import buffers
from corpusmill.schemas.tables import ID

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Texts, and (row, first character, end) of what is cut, sorted and apart."""
    texts = draw(st.lists(TEXT, min_size=1, max_size=5))
    spans = []
    for row, text in enumerate(texts):
        places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=4)))
        spans += [(row, a, b) for a, b in zip(places[::2], places[1::2], strict=False)]
    return texts, spans


@given(case=cut_texts(), before=TEXT)
def test_cut_and_reported_in_characters(
    case: tuple[list[str], list[tuple[int, int, int]]], before: str
) -> None:
    """Of texts that begin anywhere in a buffer: what is left, its hashes, and the edits that lead there."""
    texts, spans = case
    coded = [text.encode() for text in [before, *texts]]
    data = np.frombuffer(b"".join(coded) + b"after", np.uint8)
    offsets = np.cumsum([len(part) for part in coded])
    in_bytes = [(row, len(texts[row][:a].encode()), len(texts[row][:b].encode()), 7) for row, a, b in spans]
    columns = np.array(in_bytes, np.int64).reshape(-1, 4)
    out, bounds = buffers.splice(data, offsets, columns)
    left = [
        "".join(char for i, char in enumerate(text) if not any(r == row and a <= i < b for r, a, b in spans))
        for row, text in enumerate(texts)
    ]
    assert [bytes(out[a:b]).decode() for a, b in pairwise(bounds)] == left

    rows = np.unique(columns[:, 0])
    old = pa.chunked_array([pa.array([text_hash(text)], ID) for text in texts])
    hashes = buffers.with_hashes(old, rows, buffers.hashes(out, bounds, rows))
    assert hashes.type == ID and hashes.to_pylist() == [text_hash(text) for text in left]

    characters = buffers.in_characters(data, offsets, columns[:, 0], columns[:, 1], columns[:, 2])
    assert characters.tolist() == [[a, b - a] for _, a, b in spans]
    listed = buffers.edits("filter", columns[:, 0], pa.array(["x"] * len(spans), pa.string()), characters)
    assert listed.to_pylist() == [
        [
            {"stage": "filter", "kind": "x", "offset": a, "length": b - a, "written": 0}
            for r, a, b in spans
            if r == row
        ]
        for row in rows
    ]


def test_spans_of_different_kinds_may_overlap() -> None:
    data, offsets = np.frombuffer("aéüb".encode(), np.uint8), np.array([0, 6])
    rows, starts, stops = np.array([0, 0, 0]), np.array([0, 1, 1]), np.array([5, 3, 6])
    assert buffers.in_characters(data, offsets, rows, starts, stops).tolist() == [[0, 3], [1, 1], [1, 3]]
