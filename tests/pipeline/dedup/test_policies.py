"""Which documents of a group stay: the declared order, `keep`, `remove_only_from`, and the other keys (URL,
words)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.election import slots
from corpusmill.pipeline.dedup.stage import Dedup
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Context
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, Result, dedup, docs_of, edited, partitions, recipe, words


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def family(seed: int = 0) -> list[Doc]:
    """One text twice, a near-copy of it three times, another near-copy once; and a text on its own twice."""
    generator = random.Random(seed)
    text = " ".join(words(generator, 300))
    near, other = edited(generator, text, 3), edited(generator, text, 4)
    alone = " ".join(words(generator, 300))
    return docs_of([text, text, near, near, near, other, alone, alone, "a text of its own"])


def groups(result: Result) -> dict[bytes, list[dict[str, Any]]]:
    found: dict[bytes, list[dict[str, Any]]] = {}
    for row in pq.read_table(result.folder.url + "/clusters.parquet").to_pylist():
        found.setdefault(row["cluster_id"], []).append(row)
    return found


@pytest.mark.parametrize(
    ("keep", "left"), [("one", 3), ("none", 1), ("all", 9), ("1", 3), ("2", 5), ("3", 6), ("5", 8), ("9", 9)]
)
@pytest.mark.parametrize("count", [1, 3])
def test_so_many_of_each_group_stay(root: Folder, keep: str, left: int, count: int) -> None:
    docs = family()
    result = dedup(root, docs, count, keep=keep, max_source_loss=1.0)
    assert len(result.kept) == left
    assert docs[-1].id in result.kept
    clusters = groups(result)
    assert sorted(len(rows) for rows in clusters.values()) == [2, 6]
    for rows in clusters.values():
        assert len({row["survivor"] for row in rows if row["kept"]} - {row["doc_id"] for row in rows}) == 0


def test_of_two_that_stay_the_second_is_another_text(root: Folder) -> None:
    docs = family()
    result = dedup(root, docs, keep="2", max_source_loss=1.0)
    texts = {row["text"] for row in result.kept.values()}
    assert len(texts & {doc.text for doc in docs[:6]}) == 2


def test_with_none_kept_each_names_another_of_its_group(root: Folder) -> None:
    docs = family()
    result = dedup(root, docs, 2, keep="none", max_source_loss=1.0)
    of = {doc.id: doc.text for doc in docs}
    for identity, row in result.removed.items():
        assert row["duplicate_of"] in of
        if row["rule"] == "dedup.exact":
            assert of[identity] == of[row["duplicate_of"]]


def test_clusters_alone_are_an_output(root: Folder) -> None:
    result = dedup(root, family(), keep="all")
    assert not result.removed and all(row["kept"] for rows in groups(result).values() for row in rows)
    [large] = [rows for rows in groups(result).values() if len(rows) == 6]
    assert {row["survivor"] for row in large} == {large[0]["cluster_id"]}
    assert all(0.8 <= row["jaccard"] <= 1 for row in large) and min(row["jaccard"] for row in large) < 1


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(0, 8),
)
def test_slots_deal_out_what_stays(texts: list[tuple[int, int, int]], keep: int) -> None:
    """Of each group `keep` stay if there are as many, protected ones counted; with none, only what is alone."""
    import numpy as np

    survivor = np.array([min(first, i) for i, (first, _, _) in enumerate(texts)], np.int64)
    survivor = survivor[survivor]  # groups one deep
    survivor[survivor[survivor] != survivor] = 0
    documents = np.array([n for _, n, _ in texts], np.int64)
    own = survivor == np.arange(len(texts))
    protected = np.where(own, [min(n, p) for _, n, p in texts], 0).astype(np.int64)
    found = slots(float(keep), survivor, documents, protected)
    for first in np.flatnonzero(own):
        group = survivor == first
        total, safe = int(documents[group].sum()), int(protected[group].sum())
        stay = safe + np.minimum(found[group], (documents - protected)[group]).sum()
        assert stay == (total if total == 1 else max(safe, min(keep, total)))


def test_only_the_named_source_loses_documents(root: Folder) -> None:
    generator = random.Random(1)
    text = " ".join(words(generator, 300))
    near = edited(generator, text, 3)
    docs = [Doc(text, "a", "ours"), Doc(text, "b", "ours"), Doc(near, "c", "ours"), Doc(text, "d", "crawl"),
            Doc(near + " longer than all", "e", "crawl"), Doc("something else", "f", "crawl")]  # fmt: skip
    result = dedup(root, docs, 2, remove_only_from=["crawl"], max_source_loss=1.0)
    assert result.removed.keys() == {docs[3].id, docs[4].id}
    assert all(row["duplicate_of"] in {d.id for d in docs[:3]} for row in result.removed.values())


def test_an_unknown_source_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"dedup\.remove_only_from: 'crawl' is not a source"):
        Dedup(recipe(["web"], remove_only_from=["crawl"]))


def test_a_document_like_a_protected_one_goes_though_that_one_is_like_another(root: Folder) -> None:
    """Two protected near-copies both stay; what is like the second alone goes for the second."""
    generator = random.Random(3)
    text = words(generator, 400)
    chain = []
    for step in range(3):
        for i in range(8 if step else 0):
            text[(3 * i + step) * 16 % 400] = words(generator, 1)[0]
        chain.append(" ".join(text))
    docs = [
        Doc(chain[0] + " much longer", "a", "ours"),
        Doc(chain[1], "b", "ours"),
        Doc(chain[2], "c", "web"),
    ]
    result = dedup(root, docs, remove_only_from=["web"], num_perm=256, recall=0.999, max_source_loss=1.0)
    assert {doc: row["duplicate_of"] for doc, row in result.removed.items()} == {docs[2].id: docs[1].id}


def test_order_can_be_turned_round(root: Folder) -> None:
    text = " ".join(words(random.Random(4), 300))
    docs = [Doc(text + " x" * n, str(n), date=f"200{n}") for n in (2, 1, 3)]
    for order, winner in ((["-length"], 1), (["length"], 3), (["-date"], 3), (["date"], 1)):
        result = dedup(root / order[0], docs, keep_order=order, max_source_loss=1.0)
        assert result.kept.keys() == {next(d.id for d in docs if d.name == str(winner))}


def test_the_highest_number_in_metadata_stays(root: Folder) -> None:
    text = " ".join(words(random.Random(5), 300))
    values: list[Any] = [None, 0.5, -3, 7.25, "high", True]
    docs = [Doc(text, str(i), metadata=json.dumps({"score": v})) for i, v in enumerate(values)]
    docs.append(Doc(text, "none"))
    result = dedup(root, docs, 2, keep_order=["metadata:score"])
    assert result.kept.keys() == {docs[3].id}
    lowest = dedup(root / "low", docs, 2, keep_order=["-metadata:score"])
    assert lowest.kept.keys() == {docs[2].id}


def test_the_highest_signal_stays(root: Folder) -> None:
    text = " ".join(words(random.Random(6), 300))
    docs = docs_of([text] * 4)
    parts = partitions(root / "in", docs, 2)
    stage = Dedup(recipe(keep_order=["signal:quality.score"]))

    def run() -> set[bytes]:
        context = Context(stage.recipe, root, root / "dedup", parts, {}, Serial())
        stage.prepare(context)
        return {
            row["doc_id"]
            for part in parts
            for row in stage.transform(root / "dedup", part.name)(part.read()).kept.to_pylist()
        }

    with pytest.raises(UserError, match="put filter before it"):
        run()
    for part, scores in zip(parts, ([0.1, 0.9], [None, 0.4]), strict=True):
        ids = [row["doc_id"] for row in part.read(["doc_id"]).to_pylist()]
        table = pa.table(
            {"doc_id": pa.array(ids, pa.binary(16)), "quality.score": pa.array(scores, pa.float32())}
        )
        publish_table(part.folder, f"signals/{part.name}.parquet", table)
    assert run() == {docs[1].id}
    stage = Dedup(recipe(keep_order=["signal:quality.other"]))
    with pytest.raises(UserError, match=r"signal:quality.other is not measured; stored are quality.score"):
        run()


def test_documents_with_one_url_leave_one(root: Folder) -> None:
    docs = [
        Doc("first version of the page", "a", url="https://Example.org/page/", date="2001"),
        Doc("second version, another text", "b", url="http://example.org:80/page#part", date="2003"),
        Doc("another page", "c", url="https://example.org/Page"),
        Doc("no address at all", "d"),
        Doc("second version, another text", "e", url="https://example.org/elsewhere", date="2002"),
    ]
    result = dedup(root, docs, 2, url=True, keep_order=["-date"], max_source_loss=1.0)
    assert {d: (row["rule"], row["duplicate_of"]) for d, row in result.removed.items()} == {
        docs[0].id: ("dedup.url", docs[1].id), docs[4].id: ("dedup.exact", docs[1].id),
    }  # fmt: skip
    assert result.counters["url_removed"] == 1


def test_what_goes_for_its_url_takes_nothing_along(root: Folder) -> None:
    """The document removed by URL is no copy of anything in the next pass."""
    docs = [
        Doc("a page of text", "a", url="u://x/1", date="2009"), Doc("news", "b", url="u://x/1", date="2010"),
        Doc("a page of text", "c", date="2008"),
    ]  # fmt: skip
    result = dedup(root, docs, url=True, keep_order=["-date"], max_source_loss=1.0)
    assert result.removed.keys() == {docs[0].id} and docs[2].id in result.kept


def test_same_words_are_copies_when_asked(root: Folder) -> None:
    docs = docs_of(["Hello, World!", "hello world", "HELLO -- world", "world hello", "...", "!!!", "..."])
    plain = dedup(root / "plain", docs, minhash=False)
    assert plain.removed.keys() == {docs[6].id} or plain.removed.keys() == {docs[4].id}
    result = dedup(root / "same", docs, 2, minhash=False, normalized=True)
    rules = sorted(row["rule"] for row in result.removed.values())
    assert rules == ["dedup.exact", "dedup.normalized", "dedup.normalized"]


def test_a_cluster_above_the_set_size_stops_the_run(root: Folder) -> None:
    generator = random.Random(8)
    text = " ".join(words(generator, 400))
    docs = docs_of([edited(generator, text, 2) for _ in range(12)])
    with pytest.raises(WorkError, match=r"12 different texts, more than dedup\.max_cluster 10"):
        dedup(root, docs, max_cluster=10, max_source_loss=1.0)
    assert pq.read_table(root.url + "/dedup/clusters.parquet").num_rows == 12


def test_hot_buckets_are_cut_bounded_and_reported(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 texts that share every band: the task that holds them is cut, and the pairs are the same."""
    from corpusmill.pipeline.dedup import candidates

    generator = random.Random(9)
    common = " ".join(words(generator, 600))
    docs = docs_of([f"{common} {' '.join(words(generator, 2))}" for _ in range(2000)])
    params: dict[str, Any] = {"max_source_loss": 1.0, "planted": 20}
    whole = dedup(root / "whole", docs, 3, **params)
    held: list[int] = []
    edges = candidates._shared

    def watched(bands: Any, ends: bool) -> Any:
        held.append(len(bands))
        return edges(bands, ends)

    monkeypatch.setattr(candidates, "records_per_range", lambda job: 3_000)
    monkeypatch.setattr(candidates, "_shared", watched)
    parted = dedup(root / "parted", docs, 3, **params)
    assert max(held) < 3 * 3_000 and len(held) > 8
    assert parted.read("clusters.parquet") == whole.read("clusters.parquet")
    for name in ("candidates", "verified", "near_removed", "largest_bucket"):
        assert parted.counters[name] == whole.counters[name]
    assert parted.counters["candidates"] <= candidates.WINDOW * 2000 * parted.counters["bands"]
    hot = json.loads(parted.read("quality.json"))["hot_buckets"]
    assert hot[0]["documents"] > 1_000 and bytes.fromhex(hot[0]["example"]) in {d.id for d in docs}


def excerpt(generator: random.Random, page: str, length: int) -> str:
    found = page.split()
    start = generator.randrange(len(found) - length)
    return " ".join(found[start : start + length])


def test_a_short_copy_inside_a_long_page_goes_when_asked(root: Folder) -> None:
    generator = random.Random(10)
    pages = [" ".join(words(generator, 2_000)) for _ in range(8)]
    parts = [excerpt(generator, page, generator.randint(40, 300)) for page in pages for _ in range(4)]
    half = [f"{part} {' '.join(words(generator, len(part.split())))}" for part in parts[:8]]
    docs = docs_of([*parts, *pages, *half])
    assert not dedup(root / "plain", docs, 3).removed
    result = dedup(root / "inside", docs, 3, containment=0.95, max_source_loss=1.0)
    assert result.removed.keys() == {d.id for d in docs[:32]}
    of = {d.id: d.text for d in docs}
    for identity, row in result.removed.items():
        assert row["rule"] == "dedup.containment" and of[identity] in of[row["duplicate_of"]]
        assert row["jaccard"] < 0.3 and row["value"] >= 0.95
    assert result.counters["contained_removed"] == 32


def test_a_protected_excerpt_does_not_take_the_page(root: Folder) -> None:
    generator = random.Random(11)
    page = " ".join(words(generator, 1_000))
    docs = [Doc(excerpt(generator, page, 200), "a", "ours"), Doc(page, "b", "web"),
            Doc(excerpt(generator, page, 100), "c", "web")]  # fmt: skip
    result = dedup(root, docs, containment=0.9, remove_only_from=["web"], max_source_loss=1.0)
    assert result.removed.keys() == {docs[2].id}
