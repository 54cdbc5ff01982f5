"""dedup(A), then B added, equals dedup(A and B); a takedown equals a run without the document."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.dedup import candidates, sketch
from pipeline.dedup.index import store, takedown
from pipeline.dedup.run import Deduplication
from pipeline.dedup.stage import Dedup
from pipeline.stage import Context
from schemas.errors import UserError
from schemas.storage import Folder
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, Result, dedup, edited, recipe, words
from tests.pipeline.dedup.test_determinism import Dying, Kill


def corpus(seed: int = 21) -> list[Doc]:
    """150 documents: families of near-copies and copies, of all dates, so that any of them may be the best."""
    generator = random.Random(seed)
    texts: list[str] = []
    for _ in range(25):
        text = " ".join(words(generator, generator.randint(30, 200)))
        texts.append(text)
        for _ in range(generator.randint(0, 5)):
            texts.append(edited(generator, generator.choice([text, texts[-1]]), generator.randint(0, 4)))
    texts += [*generator.choices(texts, k=150 - len(texts) - 4), "", "", "one", "One"]
    generator.shuffle(texts)
    dates = [None, "2001", "2002-03", "1999-01-01", "2010"]
    return [
        Doc(t, f"f{i}", generator.choice(["web", "books"]), generator.choice(dates))
        for i, t in enumerate(texts)
    ]


PARAMS: dict[str, Any] = {"keep_order": ["date", "length"], "max_source_loss": 1.0, "planted": 0}
SOURCES = ["books", "web"]


def add(root: Folder, name: str, docs: list[Doc], count: int = 2, **params: Any) -> Result:
    stage = Dedup(recipe(SOURCES, **PARAMS, **params, index=(root / "index").url))
    return dedup(root / name, docs, count, stage=stage, **{"scheduler": params.pop("scheduler", None)})


def scratch(root: Folder, docs: list[Doc]) -> Result:
    return dedup(root / "scratch", docs, 3, stage=Dedup(recipe(SOURCES, **PARAMS)))


def take(root: Folder, name: str, named: list[str], scheduler: Any = None) -> Result:
    stage = Dedup(recipe(SOURCES, **PARAMS, index=(root / "index").url))
    folder = root / name
    context = Context(stage.recipe, root, folder, [], {}, scheduler or Serial())
    files, counters = Deduplication(context, stage.params, stage.banding, stage.version, tuple(named)).run()
    return Result(folder, files, counters, [], [])


def changes(result: Result) -> dict[bytes, dict[str, Any]]:
    return {row["doc_id"]: row for row in pq.read_table(result.folder.url + "/changes.parquet").to_pylist()}


def status(result: Result) -> dict[bytes, tuple[bool, bytes]]:
    rows = pq.read_table(result.folder.url + "/clusters.parquet").to_pylist()
    return {row["doc_id"]: (row["kept"], row["survivor"]) for row in rows}


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(autouse=True)
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RANGES", 4)  # each range is a task for every step


@pytest.mark.parametrize("cuts", [(75,), (1,), (149,), (50, 100), (20, 40, 60, 130)])
def test_adding_equals_starting_over(root: Folder, cuts: tuple[int, ...]) -> None:
    docs = corpus()
    edges = [0, *cuts, len(docs)]
    before: dict[bytes, tuple[bool, bytes]] = {}
    for number, (first, last) in enumerate(pairwise(edges)):
        result = add(root, f"add{number}", docs[first:last], 1 + number % 3)
        told = changes(result)
        now = status(result)
        old = {doc.id for doc in docs[:first]}
        for identity in old:
            was, is_ = before.get(identity, (True, b""))[0], now.get(identity, (True, b""))[0]
            assert (identity in told and told[identity]["change"] != "survivor") == (was != is_)
        assert told.keys() <= old, "what was just added is in the stage's own output"
        for identity, row in told.items():
            assert row["source"] in SOURCES and row["locator"].startswith("f")
            if row["change"] != "restored":
                assert row["survivor"] == now[identity][1] and row["jaccard"] >= 0.8
        before = now
    whole = scratch(root, docs)
    assert result.read("clusters.parquet") == whole.read("clusters.parquet")
    mine = {d.id for d in docs[edges[-2] :]}
    assert result.kept.keys() == whole.kept.keys() & mine
    for name in ("candidates", "verified", "exact_removed", "near_removed", "clusters", "source/web/docs"):
        assert result.counters[name] == whole.counters[name]


def test_old_texts_are_neither_read_nor_signed_again(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = corpus()
    first = add(root, "a", docs[:120])
    (root / "a/in").delete()  # the first crawl is gone
    signed: list[int] = []
    made = sketch._sketch
    monkeypatch.setattr(sketch, "_sketch", lambda *args: (signed.append(args[1].index), made(*args))[1])
    result = add(root, "b", docs[120:], 1)
    assert signed == [2], "only the new partition"
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")
    assert result.counters["compared"] < 0.6 * result.counters["candidates"]
    assert first.counters["compared"] == first.counters["candidates"]


@pytest.mark.parametrize("seed", range(4))
def test_a_takedown_equals_a_run_without_the_documents(root: Folder, seed: int) -> None:
    docs = corpus()
    add(root, "a", docs[:90], 2)
    before = status(add(root, "b", docs[90:], 2))
    generator = random.Random(seed)
    gone = generator.sample(docs, 30)
    named = [d.id.hex() if generator.random() < 0.5 else d.name for d in gone]
    result = take(root, "down", named)
    left = [d for d in docs if d not in gone]
    whole = scratch(root, left)
    assert result.read("clusters.parquet") == whole.read("clusters.parquet")
    told = changes(result)
    assert not told.keys() & {d.id for d in gone}, "what is taken down is nobody's change"
    back = {d.id for d in left if not before.get(d.id, (True, b""))[0] and d.id in whole.kept}
    assert {identity for identity, row in told.items() if row["change"] == "restored"} == back
    assert not any(row["change"] == "removed" for row in told.values())
    with pytest.raises(UserError, match="were taken down since it was added"):
        add(root, "again", docs[:90], 2)
    # The index goes on as if they had never been there.
    again = add(root, "c", gone, 1)
    assert again.read("clusters.parquet") == dedup(
        root / "all", docs, 2, stage=Dedup(recipe(SOURCES, **PARAMS))
    ).read("clusters.parquet")


def test_nothing_of_a_document_taken_down_is_left(root: Folder) -> None:
    generator = random.Random(1)
    text = " ".join(words(generator, 60))
    docs = [Doc(text, "secret"), Doc(edited(generator, text, 1), "near"), Doc("another one", "c")]
    add(root, "a", docs, 1)
    identity = docs[0].id
    files = {e.path: (root / "index" / e.path).read() for e in (root / "index").list()}
    halves = [int.from_bytes(identity[i : i + 8], "big").to_bytes(8, "little") for i in (0, 8)]
    assert any(halves[0] in data for data in files.values())
    take(root, "down", ["secret"])
    sketches = {e.path: (root / "index" / e.path).read() for e in (root / "index").list()}
    for path, data in sketches.items():
        if path.startswith(("records/sketch", "records/sets", "records/names")) or path == "index.json":
            assert halves[0] not in data and identity not in data and b"secret" not in data, path


def test_killed_at_any_task_and_done_again(root: Folder) -> None:
    docs = corpus()[:60]
    total = len(add(root / "whole", "a", docs[:40]).labels)
    total = max(total, len(add(root / "whole", "b", docs[40:]).labels))
    expected = status(add(root / "whole", "b2", docs[40:]))
    add(root, "a", docs[:40])
    for tasks in range(0, total, 3):
        stage = Dedup(recipe(SOURCES, **PARAMS, index=(root / "index").url))
        try:
            dedup(root / "b", docs[40:], 2, stage=stage, scheduler=Dying(tasks))
        except Kill:
            continue
    assert status(add(root, "b", docs[40:])) == expected
    taken = [d.name for d in docs[10:20]]
    for tasks in range(0, total, 3):
        try:
            take(root, "down", taken, Dying(tasks))
        except Kill:
            continue
    result = take(root, "down", taken)
    whole = scratch(root, docs[:10] + docs[20:])
    assert result.read("clusters.parquet") == whole.read("clusters.parquet")


def test_a_change_made_again_tells_the_same(root: Folder) -> None:
    """Killed after the index took it, before the stage was finished: nothing of what changed is lost."""
    docs = corpus()
    add(root, "a", docs[:75])
    first = add(root, "b", docs[75:])
    told = changes(first)
    assert told
    (root / "b/dedup").delete()
    again = add(root, "b", docs[75:])
    assert changes(again) == told and again.read("clusters.parquet") == first.read("clusters.parquet")
    named = [d.name for d in docs[:40]]
    told = changes(take(root, "down", named))
    assert told and changes(take(root, "down", named)) == told


def test_what_is_there_already_is_refused(root: Folder) -> None:
    docs = corpus()
    add(root, "a", docs[:50])
    again = add(root, "again", docs[:50])
    assert again.kept and not changes(again), "the same addition made again is that addition"
    with pytest.raises(UserError, match=r"1 of 3 partitions are in the index already"):
        from tests.pipeline.dedup.helpers import partitions

        parts = [*partitions(root / "again/in", docs[:50], 2)[:1], *partitions(root / "new", docs[50:], 2)]
        stage = Dedup(recipe(SOURCES, **PARAMS, index=(root / "index").url))
        stage.prepare(Context(stage.recipe, root, root / "x", parts, {}, Serial()))
    with pytest.raises(UserError, match=r"documents are in the index already, such as [0-9a-f]{32}"):
        add(root, "b", docs[40:60], 1)
    assert add(root, "b", docs[50:], 1).read("clusters.parquet") == scratch(root, docs).read(
        "clusters.parquet"
    )


def test_other_parameters_are_refused(root: Folder) -> None:
    docs = corpus()
    add(root, "a", docs[:50])
    with pytest.raises(UserError, match=r"made with dedup\.ngram 5, this run has 4"):
        add(root, "b", docs[50:], ngram=4)
    with pytest.raises(
        UserError, match=r"made with dedup\.containment none, this run has 0\.9; use the same"
    ):
        add(root, "b", docs[50:], containment=0.9)
    with pytest.raises(ValueError, match="an index holds no URLs"):
        recipe(url=True, index="x")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"recall": 0.999},
            "dedup.recall 0.999 at dedup.similarity 0.8 takes 18 bands x 5 rows, the index was made with 13 x 7,"
            " which find 0.9531 of the pairs at 0.8; give dedup.bands 13 and dedup.rows 7, or make a new index",
        ),
        (
            {"scratch_bytes_per_doc": 400},
            "dedup.recall 0.95 at dedup.similarity 0.8 within dedup.scratch_bytes_per_doc 400 takes",
        ),
        ({"bands": 20, "rows": 5}, "dedup.bands 20 and dedup.rows 5 were asked for, the index was made with 13 x 7"),
    ],
)  # fmt: skip
def test_other_bands_are_refused_in_the_words_of_who_asked(
    root: Folder, asked: dict[str, Any], told: str
) -> None:
    docs = corpus()
    add(root, "a", docs[:50])
    with pytest.raises(UserError) as caught:
        add(root, "b", docs[50:], **asked)
    assert str(caught.value).startswith(f"{root / 'index'}: {told}") and "\n" not in str(caught.value)


def test_what_the_refusal_advises_is_taken(root: Folder) -> None:
    """The index knows the bands, not who chose them: solved or by hand, it is the same index."""
    docs = corpus()
    add(root, "a", docs[:50])
    result = add(root, "b", docs[50:], 2, recall=0.999, bands=13, rows=7)
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")


def test_takedown_files(root: Folder) -> None:
    (root / "list").write(b"# a comment\n\nabc\n  http://x.org/a \nabc\n")
    assert takedown.wanted(root / "list") == ("abc", "http://x.org/a")
    with pytest.raises(UserError, match="0 documents named"):
        (root / "empty").write(b"# nothing\n")
        takedown.wanted(root / "empty")
    with pytest.raises(UserError, match="not found"):
        takedown.wanted(root / "missing")


def test_ranges_of_an_index_do_not_change_as_it_grows(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that outgrows a task is cut like a hot one."""
    docs = corpus()
    add(root, "a", docs[:100])
    monkeypatch.setattr(candidates, "records_per_range", lambda job: 10)
    result = add(root, "b", docs[100:])
    monkeypatch.undo()
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")
