"""The hard cases, each one a corpus that a published tool got wrong, through the whole stage."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.stage import Dedup, remove
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.stage import Context
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.tables import DECISIONS, DOCUMENTS
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import (
    Doc,
    chain,
    dedup,
    docs_of,
    edited,
    partitions,
    recipe,
    table,
    words,
)  # fmt: skip

NEARDUP = Path(__file__).resolve().parents[4] / "shared/data/neardup/mccormick_minhash"


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_distinct_short_documents_all_stay(root: Folder) -> None:
    """Documents shorter than the shingle: all deleted by one tool, all but one by another."""
    generator = random.Random(0)
    result = dedup(root, docs_of([" ".join(words(generator, 3)) for _ in range(100)]), 3)
    assert not result.removed and result.counters["clusters"] == 0


def test_identical_short_documents_leave_one(root: Folder) -> None:
    result = dedup(root, docs_of(["three word text"] * 100), 3)
    assert len(result.removed) == 99 and result.counters["exact_removed"] == 99
    assert result.counters["largest_cluster"] == 100
    assert {row["rule"] for row in result.removed.values()} == {"dedup.exact"}
    assert {row["jaccard"] for row in result.removed.values()} == {1.0}


def test_short_documents_that_differ_in_case_are_near_copies(root: Folder) -> None:
    result = dedup(root, docs_of(["Three word text.", "three WORD text"]))
    [decision] = result.removed.values()
    assert decision["rule"] == "dedup.minhash" and decision["jaccard"] == 1.0


def test_texts_without_words_are_no_near_copies_but_equal_ones_are_copies(root: Folder) -> None:
    result = dedup(root, docs_of(["", "", "", "!!", "??", "...", "a real text"]))
    assert len(result.removed) == 2 and result.counters["exact_removed"] == 2
    assert result.counters["without_words"] == 6


def test_chain_does_not_take_its_far_end(root: Folder) -> None:
    docs = docs_of(chain(random.Random(3)))
    for doc, date in zip(docs, ["2001", "2002", "2003", "2004"], strict=True):
        doc.date = date
    result = dedup(root, docs, keep_order=["date"], max_source_loss=1.0, num_perm=256, recall=0.999)
    a, b, c, d = (doc.id for doc in docs)
    assert result.kept.keys() == {a, c}
    assert {x: row["duplicate_of"] for x, row in result.removed.items()} == {b: a, d: c}
    assert all(0.8 <= row["jaccard"] < 0.9 for row in result.removed.values())
    assert {row["cluster_id"] for row in result.kept.values()} == {a}, "near-copies that stay share a cluster"


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_templates_with_different_bodies_stay(root: Folder, share: float) -> None:
    """Shared boilerplate, different bodies: a public corpus lost 743,779 documents of the kind as one."""
    generator = random.Random(1)
    common = words(generator, int(400 * share))
    texts = [" ".join(common + words(generator, 400 - len(common))) for _ in range(300)]
    result = dedup(root, docs_of(texts), 2)
    assert not result.removed


def test_source_that_would_vanish_stops_the_run(root: Folder) -> None:
    """80 % boilerplate and more is similar by any measure: the run stops instead of emptying the source."""
    generator = random.Random(1)
    common = words(generator, 380)
    texts = [" ".join(common + words(generator, 20)) for _ in range(60)]
    good = docs_of([" ".join(words(generator, 50)) for _ in range(30)], "good")
    expected = (
        r"source 'forms' would lose 59 of 60 documents \(98%\) .* dedup\.max_source_loss 0\.9;"
        r" see .*clusters\.parquet, then raise"
    )
    with pytest.raises(WorkError, match=expected):
        dedup(root, docs_of(texts, "forms") + good)
    assert pq.read_table(root.url + "/dedup/clusters.parquet").num_rows == 60
    allowed = dedup(root / "all", docs_of(texts, "forms") + good, max_source_loss=1.0)
    assert allowed.counters["near_removed"] == allowed.counters["source/forms/removed"] == 59
    assert allowed.counters["source/good/removed"] == 0
    assert dedup(root / "few", docs_of(texts[:19], "forms") + good).counters["near_removed"] == 18


def test_exact_copies_do_not_stop_the_run(root: Folder) -> None:
    assert len(dedup(root, docs_of(["one and the same"] * 50)).removed) == 49


def test_one_huge_document_joins_no_crowd(root: Folder) -> None:
    """A saturated signature has the least value everywhere; it must be like nothing but its own copy."""
    generator = random.Random(2)
    huge = " ".join(words(generator, 625_000))
    texts = [huge, *(" ".join(words(generator, 200)) for _ in range(200)), edited(generator, huge, 50)]
    assert len(huge.encode()) > 4_900_000
    result = dedup(root, docs_of(texts), 3)
    assert result.counters["largest_cluster"] == 2 and len(result.removed) == 1


def test_a_copy_of_what_goes_names_what_stays(root: Folder) -> None:
    generator = random.Random(4)
    first = " ".join(words(generator, 300))
    second = edited(generator, first, 3)
    docs = [Doc(first + " x", "a"), Doc(first + " x", "b"), Doc(second, "c"), Doc(second, "d")]
    result = dedup(root, docs)
    [(kept, row)] = result.kept.items()
    assert row["text"] == first + " x", "the longest stays"
    rules = {result.removed[d.id]["rule"] for d in docs[2:]}
    assert rules == {"dedup.minhash"}, "removed for their likeness to what stays, which is not their own text"
    assert all(row["duplicate_of"] == kept for row in result.removed.values())
    assert result.counters["exact_removed"] == 1 and result.counters["near_removed"] == 2


@pytest.mark.parametrize(
    ("order", "winner"),
    [
        (["source_priority", "length", "date", "doc_id"], "d"),
        (["length", "source_priority"], "c"),
        (["date"], "b"),
        (["doc_id"], None),
        ([], None),
    ],
)
def test_survivor_follows_the_declared_order(root: Folder, order: list[str], winner: str | None) -> None:
    generator = random.Random(5)
    text = " ".join(words(generator, 400))
    docs = [
        Doc(text, "a", "low"),
        Doc(text + " b", "b", "low", date="1999-12-31T23:59:59Z"),
        Doc(text + " much longer", "c", "low", date="2020-01"),
        Doc(text + " d", "d", "high", date="2000"),
        Doc(text + " e", "e", "high", date="2001-02-03"),
    ]
    result = dedup(root, docs, keep_order=order, max_source_loss=1.0, stage=Dedup(
        recipe(["low", "high"], {"high": 3, "low": -1}, keep_order=order)
    ))  # fmt: skip
    [kept] = result.kept
    expected = next((d.id for d in docs if d.name == winner), None) or min(d.id for d in docs)
    assert kept == expected
    assert result.counters["source/low/removed"] + result.counters["source/high/removed"] == 4


def test_exact_alone_and_minhash_alone(root: Folder) -> None:
    generator = random.Random(6)
    text = " ".join(words(generator, 300))
    docs = docs_of([text, text, edited(generator, text, 3), "", ""])
    only = dedup(root / "exact", docs, minhash=False)
    assert only.counters["exact_removed"] == 2 and only.counters["near_removed"] == 0
    assert "dedup candidates" not in only.labels
    near = dedup(root / "near", docs, exact=False)
    assert near.counters["exact_removed"] == 0
    assert near.counters["near_removed"] == 2, "empty texts are no near-copies"
    assert {row["rule"] for row in near.removed.values()} == {"dedup.minhash"}
    neither = dedup(root / "none", docs, exact=False, minhash=False)
    assert not neither.removed


def test_kept_documents_are_otherwise_untouched(root: Folder) -> None:
    generator = random.Random(7)
    texts = [" ".join(words(generator, 100)) for _ in range(5)]
    docs = docs_of([*texts, edited(generator, texts[0], 1)])
    result = dedup(root, docs)
    before = {row["doc_id"]: row for row in table(docs).to_pylist()}
    for identity, row in result.kept.items():
        cluster = row.pop("cluster_id")
        assert row == {name: value for name, value in before[identity].items() if name != "cluster_id"}
        assert (cluster is None) == (row["text"] in texts[1:])
    assert result.outcomes[0].kept.schema == DOCUMENTS and result.outcomes[0].decisions.schema == DECISIONS
    [decision] = result.removed.values()
    assert decision["failed"] == [
        {"stage": "dedup", "rule": "dedup.minhash", "value": decision["jaccard"], "threshold": 0.8}
    ]


def test_no_documents_and_empty_partitions(root: Folder) -> None:
    assert dedup(root / "a", [], 1).counters["clusters"] == 0
    assert len(dedup(root / "b", docs_of(["x y z", "x y z"]), 5).removed) == 1


def test_similarity_one_removes_equal_shingle_sets_only(root: Folder) -> None:
    generator = random.Random(8)
    text = " ".join(words(generator, 3000))
    result = dedup(root, docs_of([text, text.upper(), edited(generator, text, 1)]), similarity=1.0)
    assert len(result.removed) == 1


def test_foreign_removals_are_refused(root: Folder) -> None:
    docs = docs_of(["one text", "one text", "another"])
    result = dedup(root, docs)
    removals = pq.read_table(result.folder.url + "/removals/00000.parquet")
    with pytest.raises(WorkError, match="made for other documents"):
        remove(removals, "00000", DedupParams(), table(docs[2:]))


def test_impossible_promise_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"dedup\.recall"):
        load_stage("dedup", recipe(similarity=0.1, recall=0.999, num_perm=8))


def test_key_follows_priorities() -> None:
    keys = [Dedup(recipe(["a", "b"], {"a": p})).key_params() for p in (0, 1)]
    assert keys[0] != keys[1]


@pytest.mark.skipif(not NEARDUP.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize("size", [100, 1000, 2500])
def test_labelled_near_copies_are_found(root: Folder, size: int) -> None:
    lines = (NEARDUP / f"articles_{size}.train").read_text(encoding="utf-8").splitlines()
    articles = dict(line.split(" ", 1) for line in lines if line)
    pairs = (NEARDUP / f"articles_{size}.truth").read_text(encoding="utf-8").splitlines()
    truth = {frozenset(pair.split()) for pair in pairs if pair}
    docs = [Doc(text, name, "news") for name, text in articles.items()]
    names = {d.id: d.name for d in docs}
    result = dedup(root, docs, 3)
    found = {frozenset((names[x], names[row["duplicate_of"]])) for x, row in result.removed.items()}
    assert found == truth


def test_the_estimate_is_for_the_workers_that_the_run_has(root: Folder) -> None:
    class Three(Serial):
        count = 3

    lines: list[str] = []
    parts = partitions(root / "in", docs_of([f"one text, number {n}, of some words" for n in range(9)]), 2)
    stage = Dedup(recipe())
    stage.prepare(Context(stage.recipe, root, root / "dedup", parts, {}, Three(), lines.append))
    assert " on 3 workers" in "\n".join(lines)
