"""A takedown equals a run without the documents, and leaves nothing of them."""

from __future__ import annotations

import random

import pytest

from schemas.errors import UserError
from schemas.storage import Folder
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
    told = changes(result)
    assert told == moved(docs[1:], before, whole)
    assert {doc: (row["change"], row["survivor"]) for doc, row in told.items()} == {
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
    sketches = {e.path: (root / "index" / e.path).read() for e in (root / "index").list()}
    for path, data in sketches.items():
        if path.startswith(("records/sketch", "records/sets", "records/names")) or path == "index.json":
            assert halves[0] not in data and identity not in data and b"secret" not in data, path
