"""The stage: what it publishes, the same bytes for any partitions and workers, and its notes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.document_hash import read_validation_groups, split_of
from corpusmill.pipeline.split import measure
from corpusmill.pipeline.split.stage import Split
from corpusmill.schemas.recipe import Cluster, Recipe
from corpusmill.schemas.split import SplitParams
from tests.pipeline.corpus import Here, contents, context, documents, partitions, recipe, words

SOURCES = ["web", "books", "lone"]


def corpus() -> pa.Table:
    long = documents(["x" * (50 + i) for i in range(300)], "web", {i: f"c{i % 40}" for i in range(0, 300, 3)})
    shared = documents(["y" * 60 for _ in range(100)], "books", {i: f"c{i % 40}" for i in range(0, 100, 5)})
    lone = documents(["only one"], "lone")
    return pa.concat_tables([long, shared, lone])


def with_urls(docs: pa.Table, hosts: int) -> pa.Table:
    urls = [f"https://www.host{i % hosts}.org/{i}" if i % 5 else None for i in range(len(docs))]
    return docs.set_column(docs.column_names.index("url"), "url", pa.array(urls, pa.string()))


def run(
    tmp: Path,
    docs: pa.Table,
    parts: int = 3,
    shuffle: int | None = None,
    scheduler: Any = None,
    **params: Any,
) -> Folder:
    made = recipe(SOURCES, split={"validation_share": 0.1, **params})
    published = partitions(Folder(tmp / "redact"), docs, parts, shuffle)
    files, counters = Split(made).run(
        context(Folder(tmp), made, "split", published, scheduler or Here(reverse=bool(shuffle)))
    )
    assert {"validation.parquet", "split.json"} <= {file.path for file in files}
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
    summary = json.loads((split / "split.json").read())
    for source in SOURCES:
        mine = pc.equal(docs["source"], source).to_numpy()
        size = pc.binary_length(docs["text"]).to_numpy()
        for name, part in (("validation", mine & mask), ("train", mine & ~mask)):
            answer = summary["sources"][source][name]
            assert (answer["docs"], answer["bytes"]) == (int(part.sum()), int(size[part].sum()))
            assert answer["groups"] == len(set(clusters[part]))
        if source != "lone":
            assert summary["wanted_bytes"][source] == np.ceil(0.1 * size[mine].sum())
            share = summary["sources"][source]["validation"]["bytes"] / size[mine].sum()
            assert 0.1 <= share < 0.25
    assert summary["sources"]["lone"]["validation"]["docs"] == 0
    assert summary["sources"]["lone"]["train"]["docs"] == 1
    assert summary["by"] == "cluster" and summary["largest_component"] is None
    assert summary["notes"] == ["lone: no validation: all of it is one component, which cannot be parted"]


@pytest.mark.parametrize("number", [8, 200])
def test_by_domain_no_host_is_parted(tmp_path: Path, number: int) -> None:
    docs = with_urls(corpus(), number)
    split = run(tmp_path, docs, by="domain")
    mask = split_of(docs, read_validation_groups(split))
    assert mask.any() and not mask.all()
    for column in ("cluster_id", "url"):
        values = docs[column].to_pylist()
        keys = [v and (v if column == "cluster_id" else v.split("/")[2]) for v in values]
        both = {k for k, m in zip(keys, mask, strict=True) if m} & {
            k for k, m in zip(keys, mask, strict=True) if not m
        }
        assert both <= {None}
    summary = json.loads((split / "split.json").read())
    # Each of eight hosts, with its clusters, has more than a tenth of the text, which the notes report.
    giant = any("hang together by host and duplicate cluster" in note for note in summary["notes"])
    assert giant == (number == 8)
    largest = summary["largest_component"]
    size = pc.binary_length(docs["text"]).to_numpy()
    assert largest["hosts"] == (1 if giant else 3) and (largest["bytes"] >= 0.1 * size.sum()) == giant


@pytest.mark.parametrize("by", ["cluster", "domain"])
def test_partitions_and_their_order_change_no_byte(tmp_path: Path, by: str) -> None:
    docs = with_urls(corpus(), 500)
    first = contents(Path(str(run(tmp_path / "1", docs, 1, by=by))))
    assert set(first) == {"validation.parquet", "split.json", "similarity.json"}
    assert contents(Path(str(run(tmp_path / "2", docs, 2, by=by)))) == first
    assert contents(Path(str(run(tmp_path / "7", docs, 7, shuffle=4, by=by)))) == first


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 250), st.integers(1, 40), st.sampled_from([5, 60]), st.integers(0, 2**32 - 1),
    st.sampled_from([{}, {"validation_share": 0.4}, {"validation_tokens": 60}, {"min_documents": 9}]),
    st.sampled_from(["cluster", "domain"]), st.integers(1, 4),
)  # fmt: skip
def test_how_many_documents_are_reported_changes_no_byte(
    count: int, clusters: int, hosts: int, seed: int, params: dict[str, Any], by: str, parts: int
) -> None:
    """What partitions leave out of their answer is asked for where it is needed, and nothing leaks or is lost."""
    draw = np.random.default_rng(seed)
    rows = [
        (
            str(draw.choice(["web", "books"])),
            int(draw.integers(clusters)) if draw.random() < 0.3 else None,
            int(draw.integers(hosts)) if draw.random() < 0.3 else None,
            int(draw.integers(1, 60)),
        )
        for _ in range(count)
    ]
    docs = documents(
        ["x" * row[3] for row in rows], "web", {i: str(r[1]) for i, r in enumerate(rows) if r[1] is not None}
    )
    urls = [None if r[2] is None else f"http://h{r[2]}.org/" for r in rows]
    for name, values in (("source", [r[0] for r in rows]), ("url", urls)):
        docs = docs.set_column(docs.column_names.index(name), name, pa.array(values, pa.string()))
    made: list[dict[str, bytes]] = []
    for few in (1, 1000):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(measure, "FEW", few)
            number = parts if few == 1 else 1
            split = run(Path(folder), docs, number, seed, by=by, similarity_mb=0, **params)
            made.append(contents(Path(str(split))))
            mask = split_of(docs, read_validation_groups(split))
            reported = json.loads((split / "split.json").read())["sources"]
    assert made[0] == made[1]
    assert sum(side["docs"] for one in reported.values() for side in one.values()) == len(rows)
    assert sum(one["validation"]["bytes"] for one in reported.values()) == sum(
        row[3] for row, v in zip(rows, mask, strict=True) if v
    )
    for column in (1, 2) if by == "domain" else (1,):
        keys = [row[column] for row in rows]
        assert not {k for k, m in zip(keys, mask, strict=True) if m} & {
            k for k, m in zip(keys, mask, strict=True) if not m and k is not None
        }


class Listening(Here):
    """Keeps the results of the partitions."""

    results: tuple[measure.Measured, ...] = ()

    def map(self, function: Any, items: Any, label: str, sizes: Any = None) -> Any:
        found = super().map(function, items, label, sizes)
        self.results = tuple(found) if label == "split" else self.results
        return found


def test_few_are_reported_also_of_sources_that_document_partitions_brought_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of `corpusmill split out/redacted/documents` has one source, of another name."""
    monkeypatch.setattr(measure, "FEW", 1)
    parts = partitions(Folder(tmp_path / "redact"), documents(["x" * 50] * 1000), 2)
    made = []
    for source in ("web", "input"):
        one = recipe([source], split={"validation_share": 0.1, "similarity_mb": 0})
        scheduler = Listening()
        Split(one).run(context(Folder(tmp_path / source), one, "split", parts, scheduler))
        assert 100 < sum(len(part.alone) for part in scheduler.results) < 200
        made.append(contents(tmp_path / source / "split"))
    assert made[0] == made[1]


def test_partitions_of_several_row_groups(tmp_path: Path) -> None:
    """A partition of more than 16,384 documents comes in chunks."""
    texts = [f"alpha beta gamma delta {i % 9_000} epsilon" for i in range(20_000)]
    docs = with_urls(documents(texts, "web", {i: str(i % 50) for i in range(0, 20_000, 11)}), 3_000)
    first = contents(Path(str(run(tmp_path / "1", docs, 1, by="domain"))))
    assert contents(Path(str(run(tmp_path / "3", docs, 3, shuffle=1, by="domain")))) == first
    found = json.loads(first["similarity.json"])
    assert found["compared"] == found["validation_documents"] > 100 and found["jaccard"]["max"] == 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_workers_change_no_byte(tmp_path: Path) -> None:
    texts = [words(60, i) for i in range(200)]
    docs = with_urls(pa.concat_tables([documents(texts, "web"), documents(texts[:50], "books")]), 60)
    made = {}
    for workers in (0, 1, 2, 4):
        with Workers(Cluster(workers=workers)) as scheduler:
            folder = run(tmp_path / str(workers), docs, 5, scheduler=scheduler, by="domain")
        made[workers] = contents(Path(str(folder)))
    assert made[0] == made[1] == made[2] == made[4]


def test_seed_of_the_recipe_is_used(tmp_path: Path) -> None:
    docs = corpus()
    made = [recipe(SOURCES, seed=seed, split={"validation_share": 0.1}) for seed in (0, 1)]
    parts = partitions(Folder(tmp_path / "redact"), docs, 2)
    for number, one in enumerate(made):
        Split(one).run(context(Folder(tmp_path / str(number)), one, "split", parts))
    first, second = (read_validation_groups(Folder(tmp_path / n / "split")) for n in "01")
    assert first != second


@pytest.mark.parametrize("field", sorted(SplitParams.model_fields))
def test_parameters_are_in_the_key(field: str) -> None:
    assert field in Split(recipe()).key_params() and "seed" in Split(recipe()).key_params()


def test_the_shingles_compared_are_in_the_key_unless_nothing_is() -> None:
    dedup = {"ngram": 7, "preset": "datatrove", "similarity": 0.7}

    def key(**params: Any) -> dict[str, Any]:
        return Split(recipe(dedup=dedup, split=params)).key_params()

    wanted = {"shingle": "word", "ngram": 7, "preset": "datatrove", "threshold": 0.7}
    assert key()["similarity"] == wanted
    assert "similarity" not in key(similarity_mb=0)


def test_an_unknown_source_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"split.per_source: 'boks' is not a source; did you mean 'books'\?"
    ) as error:
        Split(recipe(SOURCES, split={"per_source": {"boks": {"only": "train"}}}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "params",
    [
        {"validation_mb": 1, "validation_tokens": 1},
        {"per_source": {"web": {"validation_mb": 1, "validation_share": 0.1}}},
        {"per_source": {"web": {"only": "train", "validation_share": 0.1}}},
        {"per_source": {"web": {"only": "both"}}},
        {"by": "page"},
        {"validation_share": 1.0},
    ],
)
def test_what_contradicts_itself_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"allowed|remove|Input should be"):
        SplitParams.model_validate(params)


def test_parameters_survive_json_and_old_recipes_are_read() -> None:
    full = {
        "validation_tokens": 9,
        "per_source": {"web": {"validation_mb": 2, "min_documents": 3}},
        "by": "domain",
    }
    params = SplitParams.model_validate(full)
    assert SplitParams.model_validate_json(params.model_dump_json()) == params
    old = SplitParams.model_validate({"validation_share": 0.03, "min_documents": 2})
    assert old.target("web") == (0.03, None, 2, None)
    made = Recipe.model_validate({"name": "old", "sources": {"web": {"paths": ["x"]}}})
    assert made.split.target("web") == (0.02, None, 1, None)
