"""A takedown equals a run without the documents, and leaves nothing of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from tests.pipeline.dedup.helpers import Doc, chain, edited, words
from tests.pipeline.dedup.index.indexed import add, changes, corpus, moved, scratch, take


@pytest.mark.parametrize("seed", range(4))
def test_a_takedown_equals_a_run_without_the_documents(root: Folder, seed: int) -> None:
    docs = corpus()
    add(root, "a", docs[:90], 2)
    add(root, "b", docs[90:], 2)
    generator = random.Random(seed)
    gone = generator.sample(docs, 30)
    named = [d.id.hex() if generator.random() < 0.5 else d.name for d in gone]
    result = take(root, "down", named)
    left = [d for d in docs if d not in gone]
    before, whole = scratch(root, docs, "before"), scratch(root, left)
    assert result.read("clusters.parquet") == whole.read("clusters.parquet")
    # What is taken down is nobody's change.
    assert changes(result) == moved(left, before, whole)
    with pytest.raises(UserError, match="were taken down since it was added"):
        add(root, "again", docs[:90], 2)
    # The index goes on as if they had never been there.
    again = add(root, "c", gone, 1)
    assert again.read("clusters.parquet") == before.read("clusters.parquet")


def test_a_takedown_may_remove_another(root: Folder) -> None:
    """Of a chain, each like the next alone, every second one stays; without the first, the others."""
    docs = [
        Doc(text, name, date=f"200{number}")
        for number, (name, text) in enumerate(zip("abcd", chain(random.Random(3)), strict=True))
    ]
    docs.append(Doc(docs[1].text, "copy of b", date="2009"))
    add(root, "first", docs[:2], 1)
    add(root, "second", docs[2:], 1)
    before, whole = scratch(root, docs, "before"), scratch(root, docs[1:])
    a, b, c, d, copy = (doc.id for doc in docs)
    assert before.kept.keys() == {a, c} and whole.kept.keys() == {b, d}
    result = take(root, "down", ["a"])
    assert result.read("clusters.parquet") == whole.read("clusters.parquet")
    found_changes = changes(result)
    assert found_changes == moved(docs[1:], before, whole)
    assert {doc: (row["change"], row["survivor"]) for doc, row in found_changes.items()} == {
        b: ("restored", None), c: ("removed", b), d: ("restored", None), copy: ("survivor", b),
    }  # fmt: skip


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
    nothing_left(root, identity)


def nothing_left(root: Folder, identity: bytes) -> None:
    halves = [int.from_bytes(identity[i : i + 8], "big").to_bytes(8, "little") for i in (0, 8)]
    sketches = {e.path: (root / "index" / e.path).read() for e in (root / "index").list()}
    for path, data in sketches.items():
        if path.startswith(("records/sketch", "records/sets", "records/names")) or path == "index.json":
            assert halves[0] not in data and identity not in data and b"secret" not in data, path


def entries(root: Folder) -> set[str]:
    return {entry.path for entry in (root / "index").list()}


@pytest.mark.parametrize("step", ["sketch", "sets", "names"])
@pytest.mark.parametrize("deleted", [0, 1])
def test_files_of_a_purge_killed_before_they_were_deleted(
    root: Folder, monkeypatch: pytest.MonkeyPatch, step: str, deleted: int
) -> None:
    """Killed after the new markers, with `deleted` of the step's old files gone: a repeat, or the next takedown, finds
    the rest."""
    docs = corpus()[:60]
    delete = Folder.delete

    def killed(folder: Folder, paths: Sequence[str] | None = None) -> None:
        if paths and paths[0].startswith(f"{step}/"):
            delete(folder, paths[:deleted])
            raise KeyboardInterrupt
        delete(folder, paths)

    expected, whole = root / "expected", root / "whole"
    for folder in (root, expected, whole):
        add(folder, "a", docs, 2)
    take(expected, "down", [docs[3].name])
    monkeypatch.setattr(Folder, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        take(root, "down", [docs[3].name])
    with pytest.raises(KeyboardInterrupt):
        take(whole, "down", [docs[3].name])
    monkeypatch.undo()
    assert entries(root) - entries(expected)
    take(root, "again", [docs[3].name])
    assert entries(root) == entries(expected)
    nothing_left(root, docs[3].id)
    take(whole, "another", [docs[4].name])
    nothing_left(whole, docs[4].id)
    take(expected, "another", [docs[4].name])
    statuses = "records/status/"  # the killed one is no change of its own
    assert {e for e in entries(whole) ^ entries(expected) if not e.startswith(statuses)} == set()
