"""One corpus, one result: for any cut into partitions, ranges and chunks, any order, any number of kills."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pipeline.cluster import Workers
from pipeline.dedup.substrings import blocks, cut, run
from pipeline.progress import Progress
from schemas.errors import WorkError
from schemas.recipe import Cluster
from schemas.storage import Folder
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, words
from tests.pipeline.dedup.substrings.helpers import Corpus, Found, search

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


def files_of(found: Found) -> dict[str, bytes]:
    """All that the search wrote, intermediate files included."""
    return {entry.path: (found.folder / entry.path).read() for entry in found.folder.list()}


def test_the_corpus_is_hard(corpus: list[Doc], expected: Found) -> None:
    assert expected.spans == Corpus(corpus, N, *ORDER.values()).spans()
    assert expected.counters["substrings_cut"] > 50 and expected.counters["longest_repeat"] > 90
    written = {path.split("/")[2] for path in files_of(expected) if path.startswith("scratch")}
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
    assert files_of(found) == files_of(expected)


@pytest.mark.parametrize("room", [1, 17, 200])
def test_any_number_of_ranges_and_chunks(
    corpus: list[Doc], expected: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """What is cut up in a large corpus is found alike in a small one."""
    for name in ("ANCHOR_COST", "BLOCK_COST", "WINDOW_COST"):
        monkeypatch.setattr(run, name, (16 << 20) // room)
    monkeypatch.setattr(blocks, "UNIT_COST", (16 << 20) // room)
    monkeypatch.setattr(cut, "UNIT_COST", (16 << 20) // room)
    serial = Serial()
    found = search(Folder(tmp_path), corpus, N, 2, scheduler=serial, **ORDER)
    same(found, expected)
    for label in ("repeated anchors", "first runs", "first windows"):
        assert serial.labels.count(f"dedup {label}") > (1 if room == 200 else 8)
    chunks = [path for path in files_of(found) if path.endswith(".records")]
    assert len(chunks) > (6 if room == 200 else 60)


def test_a_task_holds_what_its_budget_allows(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk has more units than the budget allows only if one document has."""
    held: list[tuple[int, int]] = []
    grouped = blocks.grouped

    def watch(units: Any, by: str, ranges: int) -> Any:
        held.append((len(units), len(set(units["row"].tolist()))))
        return grouped(units, by, ranges)

    for module in (blocks, cut):
        monkeypatch.setattr(module, "UNIT_COST", (16 << 20) // 30)
        monkeypatch.setattr(module, "grouped", watch)
    search(Folder(tmp_path), corpus, N, 2, **ORDER)
    assert all(size <= 30 or docs == 1 for size, docs in held)
    assert max(size for size, _ in held) > 30 and max(docs for _, docs in held) > 1


def test_on_dask_workers(corpus: list[Doc], expected: Found, tmp_path: Path) -> None:
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as workers:
        found = search(Folder(tmp_path), corpus, N, 3, scheduler=workers, **ORDER)
    assert files_of(found) == files_of(expected)


class Kill(Exception):
    """Stands for SIGKILL."""


class Dying(Serial):
    """Dies before the task of a given number."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.left = tasks

    def map(self, function: Any, items: Any, label: str, sizes: Any = None) -> list[Any]:
        def mortal(item: Any) -> Any:
            if self.left == 0:
                raise Kill
            self.left -= 1
            return function(item)

        return super().map(mortal, items, label, sizes)


def test_killed_at_any_task(corpus: list[Doc], expected: Found, tmp_path: Path) -> None:
    """One folder, killed again and again, one task further each time; then finished."""
    for tasks in range(100):
        try:
            found = search(Folder(tmp_path), corpus, N, 3, scheduler=Dying(tasks), **ORDER)
        except Kill:
            continue
        break
    assert tasks == 15
    same(found, expected)
    assert files_of(found) == files_of(expected)


def test_killed_inside_any_write(
    corpus: list[Doc], expected: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each single object is published, among them the moments between a file and its marker."""
    write = Folder.write
    left = [0]

    def mortal(folder: Folder, data: bytes) -> None:
        if "/in/" not in folder.path:
            if left[0] == 0:
                raise Kill
            left[0] -= 1
        write(folder, data)

    monkeypatch.setattr(Folder, "write", mortal)
    for kill in range(200):
        left[0] = kill
        try:
            found = search(Folder(tmp_path), corpus, N, 3, **ORDER)
        except Kill:
            continue
        break
    assert kill > 5
    assert files_of(found) == files_of(expected)


def test_finished_steps_are_not_run_again(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(Folder(tmp_path), corpus, N, 3, **ORDER)

    def refuse(*_: Any) -> Any:
        raise AssertionError("done before")

    monkeypatch.setattr("pipeline.dedup.spans.Kept.read", refuse)
    for module, name in ((blocks.groups, "settle"), (blocks.groups, "group"), (blocks.groups, "repeated")):
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
    generator = random.Random(seed)
    before = files_of(found)
    for path in generator.sample(sorted(before), 8):
        data = bytearray(before[path])
        damage = generator.choice(["delete", "truncate", "flip"])
        if damage == "delete" or not data:
            found.folder.delete([path])
        elif damage == "truncate" or path.endswith(".json"):
            (found.folder / path).write(bytes(data[: len(data) // 2]))
        else:
            data[generator.randrange(len(data))] ^= 0x40
            (found.folder / path).write(bytes(data))
    again = search(Folder(tmp_path), corpus, N, 3, **ORDER)
    assert files_of(again) == before == files_of(expected)


class Vandal(Serial):
    """Flips a bit in the middle of a file as soon as the step that wrote it is over."""

    def __init__(self, file: Folder, step: str) -> None:
        super().__init__()
        self.file, self.step = file, step

    def map(self, function: Any, items: Any, label: str, sizes: Any = None) -> list[Any]:
        results = super().map(function, items, label, sizes)
        if label == self.step:
            data = bytearray(self.file.read())
            data[len(data) // 2] ^= 1
            self.file.write(bytes(data))
            self.step = ""
        return results


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
