"""Blocks and windows: their extent, and hashes that depend on the tokens alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.substrings import anchor_kernels
from corpusmill.pipeline.text.buffers import view
from tests.pipeline.dedup.substrings.helpers import tokenize

TEXTS = st.lists(st.text(st.sampled_from("ab,語 \n"), max_size=80), min_size=1, max_size=4)
SIZES = st.tuples(st.integers(1, 5), st.integers(1, 6))


def blocks_of(texts: list[str], k: int, w: int, capacity: int, wanted: int = 1) -> tuple[Any, Any, Any]:
    """All blocks with every `wanted`-th anchor, from outputs of one size."""
    offsets, data = view(pa.array(texts, pa.large_string()))
    rows = np.arange(len(texts), dtype=np.int64)
    names = np.unique(anchor_kernels.winnow(offsets, data, rows, anchor_kernels.classes(), k, w)[0])[::wanted]
    slots, begin, found = anchor_kernels.hash_set(names), 0, []
    while begin < len(rows):
        out = np.zeros(capacity, anchor_kernels.UNIT)
        done, count, needed = anchor_kernels.blocks(
            offsets, data, rows, begin, anchor_kernels.classes(), k, w, slots, out
        )
        if done < len(rows):
            assert count + needed > capacity
        if done == begin:
            capacity = needed
        found.append(out[:count])
        begin = done
    return np.concatenate(found), offsets, data


@given(TEXTS, SIZES, st.integers(1, 50))
def test_blocks_hold_every_window_once(texts: list[str], size: tuple[int, int], capacity: int) -> None:
    k, w = size
    found, _, _ = blocks_of(texts, k, w, capacity)
    n = k + w - 1
    seen = [(int(b["row"]), int(b["token"]) + i) for b in found for i in range(b["count"])]
    bounds = [tokenize(text) for text in texts]
    assert seen == [
        (row, i) for row, anchor_kernels in enumerate(bounds) for i in range(len(anchor_kernels) - n + 1)
    ]
    for block in found:
        tokens_of = bounds[block["row"]]
        assert block["start"] == tokens_of[block["token"]][0]
        assert block["start"] + block["length"] == tokens_of[block["token"] + block["count"] + n - 2][1]
    content: dict[int, set[Any]] = {}
    for block in found:
        text = texts[block["row"]].encode()[block["start"] :][: block["length"]]
        content.setdefault(int(block["check"]), set()).add((text, int(block["count"])))
    assert all(len(same) == 1 for same in content.values())


@given(TEXTS, SIZES)
def test_windows_hash_their_tokens_alone(texts: list[str], size: tuple[int, int]) -> None:
    """However a window is come to: rolled along a block, or first in its own."""
    k, w = size
    n = k + w - 1
    found, offsets, data = blocks_of(texts, k, w, 1000)
    made = anchor_kernels.windows(offsets, data, found, anchor_kernels.classes(), n)
    again = anchor_kernels.windows(offsets, data, made, anchor_kernels.classes(), n)
    assert np.array_equal(made, again)
    text_of: dict[int, bytes] = {}
    for unit in made:
        raw = texts[unit["row"]].encode()
        bounds = tokenize(texts[unit["row"]])
        assert unit["count"] == 1 and bounds[unit["token"]][0] == unit["start"]
        assert bounds[unit["token"] + n - 1][1] == unit["start"] + unit["length"]
        text = raw[unit["start"] :][: unit["length"]]
        assert text_of.setdefault(int(unit["check"]), text) == text
    assert len(set(text_of.values())) == len(text_of)
    assert made["key"].tolist() == np.repeat(found["key"], found["count"]).tolist()


def test_only_wanted_anchors() -> None:
    texts = ["a b c d e f g h i j k l m n o p q r s t u v w x y z"]
    every, _, _ = blocks_of(texts, 3, 4, 100)
    some, _, _ = blocks_of(texts, 3, 4, 100, wanted=2)
    kept = np.unique(every["key"])[::2]
    assert len(some) < len(every) and np.array_equal(some, every[np.isin(every["key"], kept)])


def test_thue_morse_words_do_not_meet() -> None:
    """They fool a polynomial modulo 2^64 of any base."""
    word = "a"
    while len(word) < 2048:
        word += word.translate(str.maketrans("ab", "ba"))
    texts = [" ".join(word) + " ", " ".join(word.translate(str.maketrans("ab", "ba"))) + " "]
    offsets, data = view(pa.array(texts, pa.large_string()))
    block = np.zeros(2, anchor_kernels.UNIT)
    block["row"], block["count"], block["length"] = [0, 1], 1, len(texts[0])
    made = anchor_kernels.windows(offsets, data, block, anchor_kernels.classes(), 2048)
    assert made["check"][0] != made["check"][1]
