"""dedup(A), then B added, equals dedup(A and B), killed or not; what an index refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import candidates, sketch
from corpusmill.pipeline.dedup.stage import Dedup
from corpusmill.pipeline.engine.stage import Context
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, Result, partitions, recipe
from tests.pipeline.dedup.index.indexed import PARAMS, SOURCES, add, changes, corpus, moved, scratch, take
from tests.pipeline.dedup.vandal import Dying, until_it_lives


@pytest.mark.parametrize("cuts", [(75,), (1,), (149,), (50, 100), (20, 40, 60, 130)])
def test_adding_equals_starting_over(root: Folder, cuts: tuple[int, ...]) -> None:
    docs = corpus()
    edges = [0, *cuts, len(docs)]
    before = scratch(root, [], "nothing")
    for number, (first, last) in enumerate(pairwise(edges)):
        result = add(root, f"add{number}", docs[first:last], 1 + number % 3)
        whole = scratch(root, docs[:last], f"whole{number}")
        assert result.read("clusters.parquet") == whole.read("clusters.parquet")
        # What was just added is in the stage's own output.
        assert changes(result) == moved(docs[:first], before, whole)
        before = whole
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

    def watched(*args: Any) -> Any:
        signed.append(args[1].index)
        return made(*args)

    monkeypatch.setattr(sketch, "_sketch", watched)
    result = add(root, "b", docs[120:], 1)
    assert signed == [2], "only the new partition"
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")
    assert result.counters["compared"] < 0.6 * result.counters["candidates"]
    assert first.counters["compared"] == first.counters["candidates"]


def test_killed_at_any_task_and_done_again(root: Folder) -> None:
    docs = corpus()[:60]
    left, named = docs[:10] + docs[20:], [doc.name for doc in docs[10:20]]
    runs = scratch(root, docs[:40], "few"), scratch(root, docs, "whole"), scratch(root, left, "left")
    add(root, "a", docs[:40])
    killed(lambda tasks: add(root, "b", docs[40:], scheduler=Dying(tasks)), docs[:40], *runs[:2])
    killed(lambda tasks: take(root, "down", named, Dying(tasks)), left, *runs[1:])


def killed(change: Callable[[int], Result], docs: list[Doc], before: Result, after: Result) -> None:
    """A change of the index killed at every third task, made at last, and made once more."""
    made, kills = until_it_lives(change, range(0, 300, 3))
    assert kills > 10
    for result in (made, change(-1)):
        assert result.read("clusters.parquet") == after.read("clusters.parquet")
        assert changes(result) == moved(docs, before, after)


def test_a_change_made_again_tells_the_same(root: Folder) -> None:
    """Killed after the index took it, before the stage was finished: nothing of what changed is lost."""
    docs = corpus()
    add(root, "a", docs[:75])
    first = add(root, "b", docs[75:])
    listed = changes(first)
    assert listed
    (root / "b/dedup").delete()
    again = add(root, "b", docs[75:])
    assert changes(again) == listed and again.read("clusters.parquet") == first.read("clusters.parquet")
    named = [d.name for d in docs[:40]]
    listed = changes(take(root, "down", named))
    assert listed and changes(take(root, "down", named)) == listed


def test_what_is_there_already_is_refused(root: Folder) -> None:
    docs = corpus()
    add(root, "a", docs[:50])
    again = add(root, "again", docs[:50])
    assert again.kept and not changes(again), "the same addition made again is that addition"
    with pytest.raises(UserError, match=r"1 of 3 partitions are in the index already"):
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
    with pytest.raises(ValueError, match="an index stores no URLs"):
        recipe(url=True, index="x")


@pytest.mark.parametrize(
    ("asked", "message"),
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
    root: Folder, asked: dict[str, Any], message: str
) -> None:
    docs = corpus()
    add(root, "a", docs[:50])
    with pytest.raises(UserError) as caught:
        add(root, "b", docs[50:], **asked)
    assert str(caught.value).startswith(f"{root / 'index'}: {message}") and "\n" not in str(caught.value)


def test_what_the_refusal_advises_is_taken(root: Folder) -> None:
    """The index knows the bands, not who chose them: solved or by hand, it is the same index."""
    docs = corpus()
    add(root, "a", docs[:50])
    result = add(root, "b", docs[50:], 2, recall=0.999, bands=13, rows=7)
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")


def test_ranges_of_an_index_do_not_change_as_it_grows(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that outgrows a task is cut like a hot one."""
    docs = corpus()
    add(root, "a", docs[:100])
    monkeypatch.setattr(candidates, "records_per_range", lambda job: 10)
    result = add(root, "b", docs[100:])
    monkeypatch.undo()
    assert result.read("clusters.parquet") == scratch(root, docs).read("clusters.parquet")
