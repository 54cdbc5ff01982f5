"""The validation split: by cluster, by share, never a whole source, whatever the partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.split.choose import ROWS, choose, collect
from pipeline.split.stage import Split
from pipeline.splits import read_validation_groups, split_of
from schemas.ids import doc_id
from schemas.storage import Folder
from tests.pipeline.corpus import Here, contents, context, documents, partitions, recipe


def corpus() -> pa.Table:
    long = documents(["x" * (50 + i) for i in range(300)], "web", {i: f"c{i % 40}" for i in range(0, 300, 3)})
    shared = documents(["y" * 60 for _ in range(100)], "books", {i: f"c{i % 40}" for i in range(0, 100, 5)})
    lone = documents(["only one"], "lone")
    return pa.concat_tables([long, shared, lone])


def run(tmp: Path, docs: pa.Table, parts: int = 3, shuffle: int | None = None, **params: Any) -> Folder:
    made = recipe(["web", "books", "lone"], split={"validation_share": 0.1, **params})
    published = partitions(Folder(tmp / "redact"), docs, parts, shuffle)
    files, counters = Split(made).run(
        context(Folder(tmp), made, "split", published, Here(reverse=bool(shuffle)))
    )
    assert {file.path for file in files} == {"validation.parquet", "split.json"}
    assert counters["validation_groups"] == files[0].rows
    return Folder(tmp / "split")


def test_shares_are_met_and_no_cluster_is_parted(tmp_path: Path) -> None:
    docs = corpus()
    split = run(tmp_path, docs)
    mask = split_of(docs, read_validation_groups(split))
    clusters = np.array(
        [c or d for c, d in zip(docs["cluster_id"].to_pylist(), docs["doc_id"].to_pylist(), strict=True)]
    )
    assert not set(clusters[mask]) & set(clusters[~mask])
    summary = json.loads((split / "split.json").read())["sources"]
    for source in ("web", "books", "lone"):
        mine = pc.equal(docs["source"], source).to_numpy()
        size = pc.binary_length(docs["text"]).to_numpy()
        for name, part in (("validation", mine & mask), ("train", mine & ~mask)):
            said = summary[source][name]
            assert (said["docs"], said["bytes"]) == (int(part.sum()), int(size[part].sum()))
            assert said["groups"] == len(set(clusters[part]))
        if source != "lone":
            share = summary[source]["validation"]["bytes"] / size[mine].sum()
            assert 0.1 <= share < 0.25
    assert summary["lone"]["validation"]["docs"] == 0 and summary["lone"]["train"]["docs"] == 1


def test_partitions_and_their_order_change_no_byte(tmp_path: Path) -> None:
    docs = corpus()
    first = contents(Path(str(run(tmp_path / "1", docs, 1))))
    assert contents(Path(str(run(tmp_path / "2", docs, 2)))) == first
    assert contents(Path(str(run(tmp_path / "7", docs, 7, shuffle=4)))) == first


def test_another_seed_is_another_split(tmp_path: Path) -> None:
    rows = collect(*columns(corpus()))
    assert choose(rows, 0.1, 1, 1).groups != choose(rows, 0.1, 1, 2).groups


def columns(docs: pa.Table) -> tuple[Any, Any, Any, Any]:
    group = pc.coalesce(docs["cluster_id"], docs["doc_id"])
    return (
        docs["source"],
        group,
        pa.array([1] * len(docs), pa.int64()),
        pc.cast(pc.binary_length(docs["text"]), "int64"),
    )


def test_no_share_is_no_validation_and_least_counts_hold(tmp_path: Path) -> None:
    rows = collect(*columns(corpus()))
    assert len(choose(rows, 0.0, 5, 1).groups) == 0
    few = choose(rows, 1e-9, 4, 1)
    assert few.sources["web"]["validation"]["groups"] >= 4
    assert len(choose(ROWS.empty_table(), 0.5, 1, 1).groups) == 0


def test_one_huge_document_does_not_become_half_of_the_source() -> None:
    docs = documents(["h" * 100_000, *("s" * 10 for _ in range(20))])
    for seed in range(20):
        sizes = choose(collect(*columns(docs)), 0.02, 1, seed).sources["web"]["validation"]
        assert 0 < sizes["bytes"] < 50_000


def test_two_documents_give_one_to_validation() -> None:
    docs = documents(["a" * 90, "b" * 10])
    for seed in range(10):
        sources = choose(collect(*columns(docs)), 0.02, 1, seed).sources["web"]
        assert sources["validation"] == {"docs": 1, "bytes": 10, "groups": 1}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.integers(1, 1000)), max_size=60),
    st.floats(0, 0.99), st.integers(0, 4), st.integers(0, 99),
)  # fmt: skip
def test_whatever_comes_in_train_keeps_a_group_of_every_source(
    rows: list[tuple[str, int, int]], share: float, least: int, seed: int
) -> None:
    table = pa.table(
        {
            "source": pa.array([r[0] for r in rows], pa.string()),
            "group": pa.array([doc_id("g", str(r[1])) for r in rows], pa.binary(16)),
            "docs": pa.array([1] * len(rows), pa.int64()),
            "bytes": pa.array([r[2] for r in rows], pa.int64()),
        }
    )
    choice = choose(collect(*(table[c] for c in table.column_names)), share, least, seed)
    for name, splits in choice.sources.items():
        assert splits["train"]["groups"] >= 1
        assert sum(s["docs"] for s in splits.values()) == sum(r[0] == name for r in rows)
    assert choice.groups.to_pylist() == sorted(choice.groups.to_pylist())


def test_seed_of_the_recipe_is_used(tmp_path: Path) -> None:
    docs = corpus()
    made = [recipe(["web", "books", "lone"], seed=seed, split={"validation_share": 0.1}) for seed in (0, 1)]
    parts = partitions(Folder(tmp_path / "redact"), docs, 2)
    for number, one in enumerate(made):
        Split(one).run(context(Folder(tmp_path / str(number)), one, "split", parts))
    first, second = (read_validation_groups(Folder(tmp_path / n / "split")) for n in "01")
    assert first != second


@pytest.mark.parametrize("field", ["validation_share", "min_documents"])
def test_parameters_are_in_the_key(field: str) -> None:
    assert field in Split(recipe()).key_params() and "seed" in Split(recipe()).key_params()
