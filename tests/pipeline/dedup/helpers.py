"""Small corpora as published partitions, a scheduler in this process, and the stage from end to end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.stage import Dedup
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Context, Outcome, Partition, Scheduler, check_conservation
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS
from tests.conftest import Serial


@dataclass
class Doc:
    """A document of a test; its id follows from source and name."""

    text: str
    name: str
    source: str = "web"
    date: str | None = None
    url: str | None = None
    metadata: str | None = None

    @property
    def id(self) -> bytes:
        return doc_id(self.source, self.name)


def docs_of(texts: Sequence[str], source: str = "web") -> list[Doc]:
    """Documents numbered in order."""
    return [Doc(text, f"a.jsonl#{i}", source) for i, text in enumerate(texts)]


def table(docs: Sequence[Doc]) -> pa.Table:
    """A document table."""
    rows = [
        {
            "doc_id": d.id, "source": d.source, "locator": d.name, "date": d.date, "text": d.text,
            "text_hash": text_hash(d.text), "url": d.url, "metadata": d.metadata,
        }
        for d in docs
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


def partitions(folder: Folder, docs: Sequence[Doc], count: int = 1) -> list[Partition]:
    """The documents, in order, in `count` partitions of about equal size."""
    found = []
    for index, rows in enumerate(np.array_split(np.arange(len(docs)), count)):
        part = table([docs[row] for row in rows])
        file = publish_table(folder, f"documents/{index:05d}.parquet", part)
        size = sum(len(docs[row].text.encode()) for row in rows)
        found.append(Partition(f"{index:05d}", folder, len(part), size, file.xxh3))
    return found


@dataclass
class Result:
    """What a run of the stage made."""

    folder: Folder
    files: list[PublishedFile]
    counters: dict[str, int]
    outcomes: list[Outcome]
    labels: list[str]

    @property
    def removed(self) -> dict[bytes, dict[str, Any]]:
        """doc_id -> decision."""
        return {row["doc_id"]: row for outcome in self.outcomes for row in outcome.decisions.to_pylist()}

    @property
    def kept(self) -> dict[bytes, dict[str, Any]]:
        """doc_id -> document."""
        return {row["doc_id"]: row for outcome in self.outcomes for row in outcome.kept.to_pylist()}

    def read(self, path: str) -> bytes:
        return (self.folder / path).read()


def recipe(
    sources: Sequence[str] = ("web",), priority: dict[str, int] | None = None, **params: Any
) -> Recipe:
    """A recipe whose only parameters are those of dedup."""
    described = {name: {"paths": ["x"], "priority": (priority or {}).get(name, 0)} for name in sources}
    return Recipe.model_validate({"name": "test", "sources": described, "dedup": params})


def dedup(
    root: Folder, docs: Sequence[Doc], count: int = 1, *, reverse: bool = False, stage: Dedup | None = None,
    shuffle: int | None = None, scheduler: Scheduler | None = None, **params: Any,
) -> Result:  # fmt: skip
    """The stage over `docs` in `count` partitions; every promise that holds for any input is checked here."""
    docs = list(docs)
    if shuffle is not None:
        random.Random(shuffle).shuffle(docs)
    parts = partitions(root / "in", docs, count)
    params.setdefault("planted", 20)
    stage = stage or Dedup(recipe(sorted({d.source for d in docs}) or ["web"], **params))
    folder = root / "dedup"
    serial = scheduler or Serial(reverse)
    files, counters = stage.prepare(Context(stage.recipe, root, folder, parts, {}, serial))
    outcomes = []
    for part in parts:
        incoming = part.read()
        outcome = stage.transform(folder, part.name)(incoming)
        check_conservation("dedup", len(incoming), outcome)
        outcomes.append(outcome)
    result = Result(folder, files, counters, outcomes, getattr(serial, "labels", []))
    kept, removed = result.kept, result.removed
    assert kept.keys() | removed.keys() == {d.id for d in docs} and not kept.keys() & removed.keys()
    for doc, row in removed.items():
        assert row["duplicate_of"] != doc
        here = stage.params.index is None or row["duplicate_of"] in {d.id for d in docs}
        if stage.params.keep != "none" and here:
            assert row["duplicate_of"] in kept, "a removed document must name one that stays"
        if row["rule"] == "dedup.url":
            assert row["jaccard"] is None and row["value"] is None
            continue
        if row["rule"] == "dedup.containment":
            assert row["value"] >= row["threshold"] == stage.params.containment
        else:
            assert row["jaccard"] >= stage.params.similarity
            equal = row["rule"] in ("dedup.exact", "dedup.normalized")
            assert row["value"] == row["jaccard"]
            assert row["threshold"] == (1.0 if equal else stage.params.similarity)
        if stage.params.keep != "none" and here:
            assert row["cluster_id"] == kept[row["duplicate_of"]]["cluster_id"]
    if stage.params.index is None:
        assert counters["exact_removed"] + counters["near_removed"] + counters["url_removed"] == len(removed)
    for file in files:
        assert len(result.read(file.path)) == file.bytes
    return result


def words(generator: random.Random, count: int) -> list[str]:
    """Random made-up words, hardly ever the same twice."""
    return ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(count)]


def edited(generator: random.Random, text: str, edits: int) -> str:
    """The text with `edits` words replaced, at even distances."""
    found = text.split()
    for i in range(edits):
        found[(2 * i + 1) * len(found) // (2 * edits)] = words(generator, 1)[0]
    return " ".join(found)


def chain(generator: random.Random) -> list[str]:
    """A, B, C, D of 400 words, each with 8 more words of the one before replaced: J about .82 with the next,
    .67 with the one after, .46 from A to D."""
    text = words(generator, 400)
    found = []
    for step in range(4):
        for i in range(8 if step else 0):
            text[(3 * i + step) * 16 % 400] = words(generator, 1)[0]
        found.append(" ".join(text))
    return found
