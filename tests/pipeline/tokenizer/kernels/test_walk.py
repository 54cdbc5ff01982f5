"""The kernels beside plain Python, on any text."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.encode import encode, plain
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.tokenizer.kernels.walk import (
    MIN_LINE,
    REPEATED,
    TAG,
    count_tokens,
    line_hashes,
    mark,
)
from corpusmill.pipeline.tokenizer.merge_origins import _names
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.corpus import words

EOS = "<|endoftext|>"
BLANK = " \t\n\v\f\r"
TEXTS = st.lists(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                ["a line that is repeated", "<EMAIL>", "<PHONE", "\n", "\r\n", "  ", "<IP>>", "日本語" * 6]
            ),
        ),
        max_size=8,
    ).map("".join),
    max_size=5,
)


@pytest.fixture(scope="module")
def bpe() -> Bpe:
    texts = [words(50, seed) for seed in range(30)] + ["mail <EMAIL> now\n"] * 9
    data = train(pa.chunked_array([pa.array(texts, pa.large_string())]), TokenizerParams(vocab_size=400))
    return load_bpe(data, EOS, "test")


def array(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(["left out", *texts], pa.large_string())]).slice(1)


def long_lines(text: str) -> list[bytes]:
    stripped = [line.strip(BLANK.encode()) for line in text.encode().split(b"\n")]
    return [line for line in stripped if len(line) >= MIN_LINE]


@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example(["x" * 15 + "\n" + "y" * 16 + "\n\n  " + "y" * 16 + "  "])
def test_lines_have_equal_hashes_where_they_are_equal(bpe: Bpe, texts: list[str]) -> None:
    for view in (view.alone() for view in plain(bpe, array(texts))):
        hashes = np.zeros(len(view.data) // MIN_LINE + 1, np.uint64)
        owners = np.zeros(len(hashes), np.int32)
        count = line_hashes(view.data, view.bounds, hashes, owners)
        lines = [(line, k) for k, text in enumerate(texts) for line in long_lines(text)]
        assert owners[:count].tolist() == [k for _, k in lines]
        of = dict(zip([line for line, _ in lines], hashes[:count].tolist(), strict=True))
        assert [of[line] for line, _ in lines] == hashes[:count].tolist()
        assert len(set(of.values())) == len(of) and 0 not in of.values()


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_tokens_are_counted_where_their_middle_lies(bpe: Bpe, texts: list[str]) -> None:
    repeated = {line for line, n in Counter(x for t in texts for x in set(long_lines(t))).items() if n >= 2}
    names, ends = _names()
    known = [b"<" + names[a:b].tobytes() + b">" for a, b in pairwise(ends)]
    for view in (view.alone() for view in plain(bpe, array(texts))):
        hashes = np.zeros(len(view.data) // MIN_LINE + 1, np.uint64)
        owners = np.zeros(len(hashes), np.int32)
        count = line_hashes(view.data, view.bounds, hashes, owners)
        every = [line for text in texts for line in long_lines(text)]
        wanted = np.array(
            sorted({int(h) for h, line in zip(hashes[:count], every, strict=True) if line in repeated}),
            np.uint64,
        )
        marks = np.zeros(len(view.data), np.uint8)
        mark(view.data, view.bounds, wanted, names, ends, marks)
        expected = bytearray(len(view.data))
        base = 0
        for text in texts:
            data, at = text.encode(), 0
            for line in data.split(b"\n"):
                bare = line.strip(BLANK.encode())
                if bare in repeated:
                    start = base + at + line.index(bare)
                    for i in range(start, start + len(bare)):
                        expected[i] |= REPEATED
                at += len(line) + 1
            for i in range(len(data)):
                for tag in known:
                    if data.startswith(tag, i):
                        for j in range(i, i + len(tag)):
                            expected[base + j] |= TAG
            base += len(data)
        assert marks.tobytes() == bytes(expected)
        ids, starts = encode(bpe, pa.chunked_array([view.texts]))
        counts = np.zeros((3, bpe.vocab_size), np.int64)
        table = bpe.pieces
        count_tokens(view.bounds, ids, starts, table.bounds, marks, counts)
        at, expect = 0, np.zeros_like(counts)
        for token in ids.tolist():
            size = int(table.bounds[token + 1] - table.bounds[token])
            flags = expected[at + size // 2]
            expect[:, token] += [1, bool(flags & REPEATED), bool(flags & TAG)]
            at += size
        assert counts.tolist() == expect.tolist()
