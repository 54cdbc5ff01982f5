"""Which documents are trained on and measured on: never the same, the same for any partitions, of a split those it took."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.tokenizer.compare.draw import Batch, draw
from tests.pipeline.corpus import documents, words

DOCS = pa.concat_tables(
    [
        documents([words(50 + i % 9, i) for i in range(120)], "web"),
        documents([f"a text of code, number {i}" for i in range(40)], "code"),
        documents(["the only one"], "lone"),
    ]
)
MUCH = 1 << 30


def batches(docs: pa.Table, count: int, split: bool = False) -> Iterator[Batch]:
    edges = np.linspace(0, len(docs), count + 1).astype(int)
    for low, high in pairwise(edges.tolist()):
        part = docs.slice(low, high - low)
        chosen = np.array([text.as_py().endswith("7") for text in part["text"]]) if split else None
        yield Batch(part, chosen)


def size(texts: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def test_all_documents_are_on_one_side() -> None:
    sample = draw(batches(DOCS, 3), 0, MUCH, MUCH)
    train, held = sample.train.to_pylist(), sample.held_out["text"].to_pylist()
    assert set(train) & set(held) == {"the only one"}
    assert sorted([*train, *held]) == sorted([*DOCS["text"].to_pylist(), "the only one"])
    for source, about in sample.sources.items():
        mine = DOCS.filter(pc.equal(DOCS["source"], source))
        if source == "lone":
            assert (about.held_out, about.train_docs, about.held_out_docs) == ("train", 1, 1)
            continue
        assert about.held_out == "hash" and about.train_docs + about.held_out_docs == len(mine)
        assert about.train_bytes + about.held_out_bytes == size(mine["text"])
        assert 0.03 < about.held_out_bytes / size(mine["text"]) <= 0.1


def test_partitions_change_nothing_and_the_seed_does() -> None:
    first = draw(batches(DOCS, 1), 0, 2000, 500)
    order = np.random.default_rng(1).permutation(len(DOCS))
    again = draw(batches(DOCS.take(order), 7), 0, 2000, 500)
    assert again.train.to_pylist() == first.train.to_pylist()
    assert again.held_out.to_pydict() == first.held_out.to_pydict() and again.sources == first.sources
    assert draw(batches(DOCS, 1), 1, 2000, 500).train.to_pylist() != first.train.to_pylist()


def test_limits_are_kept_in_proportion() -> None:
    sample = draw(batches(DOCS, 4), 0, 3000, 400)
    assert 2900 < size(sample.train) <= 3000
    web, code = sample.sources["web"], sample.sources["code"]
    assert web.train_bytes > 5 * code.train_bytes > 0
    assert web.held_out_bytes <= 400 and code.held_out_bytes <= 400
    texts = set(DOCS["text"].to_pylist())
    assert sum(text not in texts for text in sample.train.to_pylist()) <= 3  # the last of each source is cut


def test_of_a_split_its_own_validation_documents() -> None:
    sample = draw(batches(DOCS, 2, split=True), 0, MUCH, MUCH)
    held = [text for text in DOCS["text"].to_pylist() if text.endswith("7")]
    assert set(held) <= set(sample.held_out["text"].to_pylist())
    assert not set(held) & set(sample.train.to_pylist())
    assert sample.sources["code"].held_out == "validation" and sample.sources["lone"].held_out == "train"


def test_no_text_is_an_error() -> None:
    with pytest.raises(WorkError, match="no text to train on"):
        draw(batches(documents(["", ""]), 1), 0, 100, 100)
