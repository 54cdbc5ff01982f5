"""What transforms share."""

from __future__ import annotations

import pyarrow as pa

from corpusmill.common.ids import text_hash
from corpusmill.pipeline.engine.stage import with_texts
from tests.pipeline.corpus import documents


def test_texts_are_replaced_with_their_hashes_and_nothing_else_is() -> None:
    docs = documents(["a", "b", "c", "d"])
    chunked = pa.concat_tables([docs.slice(2), docs.slice(0, 2)])
    made = with_texts(chunked, {3: "é日", 0: ""})
    assert made["text"].to_pylist() == ["", "d", "a", "é日"]
    assert made["text_hash"].to_pylist() == [text_hash(text) for text in made["text"].to_pylist()]
    assert made.schema == docs.schema
    assert made.drop(["text", "text_hash"]) == chunked.drop(["text", "text_hash"])
    assert with_texts(docs, {}) is docs
    assert with_texts(docs.slice(1, 1), {0: "x"})["text"].to_pylist() == ["x"]
