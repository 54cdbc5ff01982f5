"""One corpus, one result: for any cut into partitions, any order, any number of kills."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import (
    candidates,
    deduplication,
    election,
    exact_similarity,
    key_groups,
    removals,
    sent_sets,
    shingle_sets,
    sketch,
)
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.quality import recall
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster
from tests.pipeline.dedup.helpers import Doc, Result, dedup, edited, words
from tests.pipeline.dedup.vandal import Dying, Mortal, Vandal, contents, damage_some, refuse, until_it_lives


@pytest.fixture(scope="module")
def corpus() -> list[Doc]:
    """400 documents: families of near-copies with edits of all sizes, exact copies, short and empty texts."""
    generator = random.Random(11)
    texts: list[str] = []
    for _ in range(60):
        text = " ".join(words(generator, generator.randint(20, 300)))
        texts.append(text)
        for _ in range(generator.randint(0, 6)):
            texts.append(edited(generator, generator.choice([text, texts[-1]]), generator.randint(0, 5)))
    texts += generator.choices(texts, k=400 - len(texts) - 10)
    texts += ["", "", "one", "one", "One", "a b", "a  b", "?", "?", ""]
    sources, dates = ["web", "books", "code"], [None, "2001", "2002-03", "1999-01-01"]
    return [Doc(t, f"f{i}", generator.choice(sources), generator.choice(dates)) for i, t in enumerate(texts)]


@pytest.fixture(scope="module")
def expected(corpus: list[Doc], tmp_path_factory: pytest.TempPathFactory) -> Result:
    return dedup(Folder(tmp_path_factory.mktemp("whole")), corpus, 3)


def same(result: Result, expected: Result) -> None:
    """Every output that does not name partitions, byte for byte."""
    assert result.read("clusters.parquet") == expected.read("clusters.parquet")
    for path in ("quality.json", "plan.json"):
        # The estimate comes from a sample of the partitions.
        mine, theirs = ({**json.loads(side.read(path)), "estimate": None} for side in (result, expected))
        assert mine == theirs, path
    assert result.removed == expected.removed and result.counters == expected.counters
    assert {x: row["cluster_id"] for x, row in result.kept.items()} == {
        x: row["cluster_id"] for x, row in expected.kept.items()
    }


def test_the_corpus_is_hard(expected: Result) -> None:
    counters = expected.counters
    assert counters["exact_removed"] > 50 and counters["near_removed"] > 50
    assert counters["largest_cluster"] > 8 and counters["verified"] < counters["candidates"]
    assert counters["compared_in_election"], (
        "some pair of a cluster is compared only when it is asked who stays"
    )


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_partitions(corpus: list[Doc], expected: Result, tmp_path: Path, count: int) -> None:
    same(dedup(Folder(tmp_path), corpus, count), expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_documents_and_tasks(
    corpus: list[Doc], expected: Result, tmp_path: Path, seed: int
) -> None:
    same(dedup(Folder(tmp_path), corpus, 4, shuffle=seed, reverse=True), expected)


def test_any_number_of_ranges(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut into ranges in a large corpus is found alike in a small one."""
    monkeypatch.setattr(Job, "budget", property(lambda job: 60_000))
    result = dedup(Folder(tmp_path), corpus, 3)
    plan = json.loads(result.read("plan.json"))
    assert plan["band_ranges"] > 5 and plan["text_ranges"] > 2
    assert result.read("clusters.parquet") == expected.read("clusters.parquet")
    for name in ("candidates", "verified", "exact_removed", "near_removed"):
        assert result.counters[name] == expected.counters[name]


@pytest.mark.parametrize("budget", [20_000, 200_000])
def test_files_put_together_before_they_are_shuffled(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """With too many slices for the driver, steps tell it nothing of their parts; the result is the same."""
    monkeypatch.setattr(deduplication, "MOST_SLICES", 0)
    monkeypatch.setattr(Job, "budget", property(lambda job: budget))
    known: list[int] = []
    steps = deduplication.Deduplication.steps

    def watched(*args: Any, **rest: Any) -> Any:
        dones = steps(*args, **rest)
        known.extend(len(file.places) for done in dones for file in done.files.values())
        return dones

    monkeypatch.setattr(deduplication.Deduplication, "steps", watched)
    result = dedup(Folder(tmp_path), corpus, 7)
    assert not any(known) and any("together" in label for label in result.labels)
    assert result.read("clusters.parquet") == expected.read("clusters.parquet")
    assert result.removed == expected.removed
    for name in ("candidates", "verified", "exact_removed", "near_removed", "clusters"):
        assert result.counters[name] == expected.counters[name]
    compacted = [e.path for e in (result.folder / "scratch/compact").list() if e.path.endswith(".bands")]
    assert (1 if budget > 100_000 else 2) <= len(compacted) < 8


def test_sets_are_sent_to_the_tasks_that_compare_them(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of others' partitions a task of comparison reads what was sent to it, each slice once, and of its own the sets
    in a few runs."""
    monkeypatch.setattr(deduplication, "MOST_SLICES", 0)
    read: list[tuple[str, int]] = []
    verify, read_range = exact_similarity.verify, Folder.read_range

    def watched(job: Job, item: Any) -> Any:
        def counted(folder: Folder, start: int, size: int) -> bytes:
            read.append((Path(folder.path).name, start))
            return read_range(folder, start, size)

        read.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "read_range", counted)
            done = verify(job, item)
        sent = [place for place in read if ".sent." in place[0]]
        assert len(sent) == len(set(sent)) == len(item.sent), "each slice once"
        sets = [place for place in read if place[0].endswith(".sets")]
        assert {name for name, _ in sets} <= {f"{item.index:06d}.sets"} and len(sets) <= 1
        return done

    monkeypatch.setattr(exact_similarity, "verify", watched)
    result = dedup(Folder(tmp_path), corpus, 7)
    assert read, "some pairs were compared"
    assert result.read("clusters.parquet") == expected.read("clusters.parquet")


@pytest.mark.parametrize("path", ["sets/000001.sent.0000", "sets/starts", "edges/000000.0000.partners"])
def test_damage_of_what_is_sent_is_noticed_and_mended(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(deduplication, "MOST_SLICES", 0)
    root = Folder(tmp_path)
    step = "shingle sets" if "sent" in path else "candidates"
    if path == "sets/starts":
        publish = sent_sets.publish_starts

        def damaged(job: Job, starts: list[int]) -> Any:
            file = publish(job, starts)
            (job.work / path).write(b"\1" + (job.work / path).read()[1:])
            return file

        with monkeypatch.context() as patch, pytest.raises(WorkError, match="its bytes changed"):
            patch.setattr(sent_sets, "publish_starts", damaged)
            dedup(root, corpus, 3)
    else:
        with pytest.raises(WorkError, match="its bytes changed"):
            dedup(root, corpus, 3, scheduler=Vandal(root / "dedup/scratch" / path, f"dedup {step}"))
    same(dedup(root, corpus, 3), expected)


@pytest.mark.usefixtures("forked_workers")
def test_on_dask_workers(corpus: list[Doc], expected: Result, tmp_path: Path) -> None:
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as workers:
        same(dedup(Folder(tmp_path), corpus, 3, scheduler=workers), expected)


def test_killed_at_any_task(corpus: list[Doc], expected: Result, tmp_path: Path) -> None:
    """One folder, killed again and again, one task further each time; then finished."""
    result, kills = until_it_lives(
        lambda tasks: dedup(Folder(tmp_path), corpus, 3, scheduler=Dying(tasks)), range(200)
    )
    assert kills == len(expected.labels)
    same(result, expected)


def test_killed_where_sets_are_sent(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above with files put together and sets sent in several files, a few tasks further each time."""
    monkeypatch.setattr(deduplication, "MOST_SLICES", 0)
    monkeypatch.setattr(Job, "budget", property(lambda job: 200_000))
    result, kills = until_it_lives(
        lambda tasks: dedup(Folder(tmp_path), corpus, 3, scheduler=Dying(tasks)), range(5, 400, 11)
    )
    assert kills > 3
    assert [e.path for e in (result.folder / "scratch/sets").list() if e.path.endswith(".sent.0001")]
    assert result.read("clusters.parquet") == expected.read("clusters.parquet")
    assert result.removed == expected.removed


def test_killed_inside_any_write(
    corpus: list[Doc], expected: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before changes of files, among them the moments between a file and its marker."""
    root = Folder(tmp_path)
    mortal = Mortal(monkeypatch, spared=root / "in")
    result, kills = until_it_lives(mortal.living(lambda: dedup(root, corpus, 3)), range(200))
    assert kills > 8
    same(result, expected)


def test_finished_steps_are_not_run_again(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Folder(tmp_path)
    first = dedup(root, corpus, 3)

    for module, name in ((sketch, "_sketch"), (candidates, "_edges"), (key_groups, "_heads"), (key_groups, "_settle"),
                         (shingle_sets, "_sets"), (exact_similarity, "_verify"), (election, "_route"), (election, "_elect"),
                         (removals, "_removals"), (recall, "_measure")):  # fmt: skip
        monkeypatch.setattr(module, name, refuse)
    same(dedup(root, corpus, 3), first)
    with pytest.raises(AssertionError, match="done before"):
        dedup(root, corpus, 3, similarity=0.7)
    with pytest.raises(AssertionError, match="done before"):
        dedup(root, corpus[:-1], 3)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_and_missing_intermediates_are_made_again(
    corpus: list[Doc], expected: Result, tmp_path: Path, seed: int
) -> None:
    root = Folder(tmp_path)
    dedup(root, corpus, 3)
    before = contents(root / "dedup/scratch")
    damage_some(root / "dedup/scratch", 6, seed)
    assert contents(root / "dedup/scratch") != before
    same(dedup(root, corpus, 3), expected)
    assert contents(root / "dedup/scratch") == before


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ("signatures", "sketch/000001.bands"), ("signatures", "sketch/000001.texts"),
        ("signatures", "sketch/000001.sample"), ("candidates", "edges/000000.0000.edges"),
        ("candidates", "edges/000000.0000.nodes"), ("exact copies", "text-heads/000000.heads"),
        ("clusters", "route/000001.members"), ("election", "elect/000000.fates"),
        ("survivors", "text-settle/000000.decided"),
        ("shingle sets", "sets/000001.sets"), ("shingle sets", "sets/000001.nodes"),
        ("exact similarity", "verify/000001.pairs"), ("measured recall", "quality.pairs"),
    ],
)  # fmt: skip
def test_damage_during_the_run_is_noticed_and_mended(
    corpus: list[Doc], expected: Result, tmp_path: Path, step: str, path: str
) -> None:
    root = Folder(tmp_path)
    with pytest.raises(WorkError, match="its bytes changed"):
        dedup(root, corpus, 3, scheduler=Vandal(root / "dedup/scratch" / path, f"dedup {step}"))
    same(dedup(root, corpus, 3), expected)
