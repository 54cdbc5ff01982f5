"""One corpus, one result: for any cut into partitions, ranges and chunks, any order, any number of kills."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.substrings import substring_deduplication, substring_job, substring_steps
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, words
from tests.pipeline.dedup.substrings.helpers import Corpus, Found, search
from tests.pipeline.dedup.vandal import Dying, Mortal, Vandal, contents, damage_some, refuse, until_it_lives

N = 20
ORDER: dict[str, Any] = {"priorities": {"books": 1}, "own": ["web", "books"]}


@pytest.fixture(scope="module")
def corpus() -> list[Doc]:
    """80 documents of passages, parts of passages, joins of them, repetitions and text of their own."""
    generator = random.Random(5)
    passages = [words(generator, generator.randint(10, 90)) for _ in range(12)]
    docs = []
    for i in range(80):
        text: list[str] = []
        for _ in range(generator.randint(0, 4)):
            passage = generator.choice(passages)
            start = generator.randrange(len(passage))
            text += passage[start:] if generator.random() < 0.5 else passage[: start + 1]
            text += words(generator, generator.choice([0, 0, 3, 30]))
        if i % 9 == 0:
            text += words(generator, generator.choice([1, 7, 25])) * 5
        docs.append(Doc(" ".join(text), f"{i}", generator.choice(["web", "books", "code"])))
    return docs


@pytest.fixture(scope="module")
def expected(corpus: list[Doc], tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(Folder(tmp_path_factory.mktemp("whole")), corpus, N, 3, **ORDER)


def same(found: Found, expected: Found) -> None:
    assert found.spans == expected.spans and found.counters == expected.counters


def test_the_corpus_is_hard(corpus: list[Doc], expected: Found) -> None:
    assert expected.spans == Corpus(corpus, N, *ORDER.values()).spans()
    assert expected.counters["substrings_cut"] > 50 and expected.counters["longest_repeat"] > 90
    written = {path.split("/")[2] for path in contents(expected.folder) if path.startswith("scratch")}
    assert written == {"scan", "repeats", "blocks", "settle", "windows", "elect", "cut"}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_partitions(corpus: list[Doc], expected: Found, tmp_path: Path, count: int) -> None:
    same(search(Folder(tmp_path), corpus, N, count, **ORDER), expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_documents_and_tasks(
    corpus: list[Doc], expected: Found, tmp_path: Path, seed: int
) -> None:
    shuffled = random.Random(seed).sample(corpus, len(corpus))
    same(search(Folder(tmp_path), shuffled, N, 4, scheduler=Serial(reverse=True), **ORDER), expected)


def test_order_of_tasks_changes_no_byte(corpus: list[Doc], expected: Found, tmp_path: Path) -> None:
    found = search(Folder(tmp_path), corpus, N, 3, scheduler=Serial(reverse=True), **ORDER)
    assert contents(found.folder) == contents(expected.folder)


@pytest.mark.parametrize("capacity", [1, 17, 200])
def test_any_number_of_ranges_and_chunks(
    corpus: list[Doc], expected: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    """What is cut up in a large corpus is found alike in a small one."""
    for name in ("ANCHOR_COST", "BLOCK_COST", "WINDOW_COST"):
        monkeypatch.setattr(substring_deduplication, name, (16 << 20) // capacity)
    monkeypatch.setattr(substring_steps, "UNIT_COST", (16 << 20) // capacity)
    serial = Serial()
    found = search(Folder(tmp_path), corpus, N, 2, scheduler=serial, **ORDER)
    same(found, expected)
    for label in ("repeated anchors", "first runs", "first windows"):
        assert serial.labels.count(f"dedup {label}") > (1 if capacity == 200 else 8)
    chunks = [path for path in contents(found.folder) if path.endswith(".records")]
    assert len(chunks) > (6 if capacity == 200 else 60)


def test_a_task_holds_what_its_budget_allows(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk has more units than the budget allows only if one document has."""
    held: list[tuple[int, int]] = []
    grouped = substring_steps.grouped

    def watch(units: Any, by: str, ranges: int) -> Any:
        held.append((len(units), len(set(units["row"].tolist()))))
        return grouped(units, by, ranges)

    monkeypatch.setattr(substring_steps, "UNIT_COST", (16 << 20) // 30)
    monkeypatch.setattr(substring_steps, "grouped", watch)
    search(Folder(tmp_path), corpus, N, 2, **ORDER)
    assert all(size <= 30 or docs == 1 for size, docs in held)
    assert max(size for size, _ in held) > 30 and max(docs for _, docs in held) > 1


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_on_dask_workers(corpus: list[Doc], expected: Found, tmp_path: Path) -> None:
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as workers:
        found = search(Folder(tmp_path), corpus, N, 3, scheduler=workers, **ORDER)
    assert contents(found.folder) == contents(expected.folder)


def test_killed_at_any_task(corpus: list[Doc], expected: Found, tmp_path: Path) -> None:
    """One folder, killed again and again, one task further each time; then finished."""
    found, kills = until_it_lives(
        lambda tasks: search(Folder(tmp_path), corpus, N, 3, scheduler=Dying(tasks), **ORDER), range(100)
    )
    assert kills == 15
    same(found, expected)
    assert contents(found.folder) == contents(expected.folder)


def test_killed_inside_any_write(
    corpus: list[Doc], expected: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before changes of files, among them the moments between a file and its marker."""
    root = Folder(tmp_path)
    mortal = Mortal(monkeypatch, spared=root / "in")
    found, kills = until_it_lives(mortal.living(lambda: search(root, corpus, N, 3, **ORDER)), range(200))
    assert kills > 5
    assert contents(found.folder) == contents(expected.folder)


def test_finished_steps_are_not_run_again(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(Folder(tmp_path), corpus, N, 3, **ORDER)

    monkeypatch.setattr("corpusmill.pipeline.dedup.job.Kept.read", refuse)
    for module, name in ((substring_job, "settle"), (substring_job, "group"), (substring_job, "repeated")):
        monkeypatch.setattr(module, name, refuse)
    same(search(Folder(tmp_path), corpus, N, 3, **ORDER), first)
    for change in ({"n": N + 1}, {"priorities": {"web": 3}}, {"own": None}, {"docs": corpus[:-1]}):
        changed: dict[str, Any] = {"docs": corpus, "n": N, "count": 3, **ORDER, **change}
        with pytest.raises(AssertionError, match="done before"):
            search(Folder(tmp_path), **changed)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_and_missing_files_are_made_again(
    corpus: list[Doc], expected: Found, tmp_path: Path, seed: int
) -> None:
    found = search(Folder(tmp_path), corpus, N, 3, **ORDER)
    before = contents(found.folder)
    damage_some(found.folder, 8, seed)
    assert contents(found.folder) != before
    again = search(Folder(tmp_path), corpus, N, 3, **ORDER)
    assert contents(again.folder) == before == contents(expected.folder)


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ("anchors", "scan/000001.anchors"), ("repeated anchors", "repeats/000000.flags"),
        ("repeated runs", "blocks/000001.000000.records"), ("repeated runs", "blocks/000001.000000.units"),
        ("first runs", "settle/000000.flags"), ("windows at their ends", "windows/000002.000000.records"),
        ("first windows", "elect/000000.flags"),
    ],
)  # fmt: skip
def test_damage_during_the_run_is_noticed_and_mended(
    corpus: list[Doc], expected: Found, tmp_path: Path, step: str, path: str
) -> None:
    vandal = Vandal(Folder(tmp_path) / "dedup/scratch/substrings" / path, f"dedup {step}")
    with pytest.raises(WorkError, match="its bytes changed"):
        search(Folder(tmp_path), corpus, N, 3, scheduler=vandal, **ORDER)
    same(search(Folder(tmp_path), corpus, N, 3, **ORDER), expected)
