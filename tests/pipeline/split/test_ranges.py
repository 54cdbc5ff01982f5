"""Clusters that tasks count by range: the same split as where the driver lists them all, and little on the driver."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.split import ranges
from corpusmill.pipeline.split.choose import decide
from corpusmill.pipeline.split.stage import Split
from corpusmill.schemas.split import SplitParams
from tests.pipeline.corpus import Here, contents, context, documents, partitions, recipe

SOURCES = ["web", "books", "held", "kept"]


def corpus(web: int, books: int, clusters: int) -> pa.Table:
    """Clusters lie in several partitions and sources; some documents are alone."""
    names = {"web": web, "books": books, "held": 12, "kept": 12}
    tables = []
    for name, count in names.items():
        own = {i: f"c{i * 7 % clusters}" for i in range(count) if i % 4}
        tables.append(documents([f"{name} {'x' * (40 + i % 50)}" for i in range(count)], name, own))
    return pa.concat_tables(tables)


def split(tmp: Path, docs: pa.Table, parts: int, scheduler: Any = None, **params: Any) -> dict[str, bytes]:
    made = recipe(SOURCES, split={"similarity_mb": 0, **params})
    published = partitions(Folder(tmp / "redact"), docs, parts, None)
    Split(made).run(context(Folder(tmp), made, "split", published, scheduler or Here()))
    return contents(Path((Folder(tmp) / "split").url))


@given(
    st.integers(1, 120), st.integers(1, 60), st.integers(1, 50), st.integers(1, 4), st.integers(2, 30),
    st.sampled_from([{"validation_share": 0.02}, {"validation_share": 0.3, "min_documents": 3}, {"validation_mb": 0.001}]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_the_split_is_that_of_all_clusters_listed(
    web: int, books: int, clusters: int, parts: int, each: int, params: dict[str, Any]
) -> None:
    """For any number of ranges, sources that are validation or train alone among them."""
    docs = corpus(web, books, clusters)
    params = {**params, "per_source": {"held": {"only": "validation"}, "kept": {"only": "train"}}}
    with TemporaryDirectory() as one, TemporaryDirectory() as two, pytest.MonkeyPatch.context() as patch:
        listed = split(Path(one), docs, parts, **params)
        patch.setattr(ranges, "DOCUMENTS", each)
        assert split(Path(two), docs, parts, **params) == listed


def test_the_driver_gets_few_of_many_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = documents(["x" * 50] * 6000, "web", {i: f"c{i // 2}" for i in range(6000)})
    made = recipe(["web"], split={"validation_share": 0.02, "similarity_mb": 0})
    published = partitions(Folder(tmp_path / "redact"), docs, 3, None)
    at = context(Folder(tmp_path), made, "split", published, Here())
    rows = {}
    for each in (20_000_000, 1000):
        monkeypatch.setattr(ranges, "DOCUMENTS", each)
        choice, _ = decide(at, SplitParams(validation_share=0.02), purpose_seed(0, "split"))
        rows[each] = len(choice.made.units)
        assert (
            choice.sources()["web"]["train"]["groups"] + choice.sources()["web"]["validation"]["groups"]
            == 3000
        )
    assert rows[20_000_000] == 3000 and rows[1000] < 200
