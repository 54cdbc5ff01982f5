"""A corpus, an index of it that grows and shrinks, and what the index then has to tell."""

from __future__ import annotations

import random
from typing import Any

import pyarrow.parquet as pq

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.deduplication import Deduplication
from corpusmill.pipeline.dedup.stage import Dedup
from corpusmill.pipeline.engine.stage import Context
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, Result, dedup, edited, recipe, words


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


def add(
    root: Folder, name: str, docs: list[Doc], count: int = 2, scheduler: Serial | None = None, **params: Any
) -> Result:
    stage = Dedup(recipe(SOURCES, **PARAMS, **params, index=(root / "index").url))
    return dedup(root / name, docs, count, stage=stage, scheduler=scheduler)


def scratch(root: Folder, docs: list[Doc], name: str = "scratch") -> Result:
    """A run over `docs` that knows of no index."""
    return dedup(root / name, docs, 3, stage=Dedup(recipe(SOURCES, **PARAMS)))


def take(root: Folder, name: str, named: list[str], scheduler: Any = None) -> Result:
    stage = Dedup(recipe(SOURCES, **PARAMS, index=(root / "index").url))
    folder = root / name
    context = Context(stage.recipe, root, folder, [], {}, scheduler or Serial())
    files, counters = Deduplication(context, stage.params, stage.banding, stage.version, tuple(named)).run()
    return Result(folder, files, counters, [], [])


def changes(result: Result) -> dict[bytes, dict[str, Any]]:
    return {row["doc_id"]: row for row in pq.read_table(result.folder.url + "/changes.parquet").to_pylist()}


def moved(docs: list[Doc], before: Result, after: Result) -> dict[bytes, dict[str, Any]]:
    """What an index has to tell of `docs` that were in it, all of them in two runs from scratch: who went, who
    came back, and who now goes for another."""
    found = {}
    for doc in docs:
        was, now = (run.removed.get(doc.id, {}) for run in (before, after))
        if was.get("duplicate_of") == now.get("duplicate_of"):
            continue
        change = "restored" if not now else "survivor" if was else "removed"
        details = {
            "survivor": now.get("duplicate_of"),
            "rule": now.get("rule"),
            "jaccard": now.get("jaccard"),
        }
        found[doc.id] = {
            "doc_id": doc.id, "change": change, **details, "source": doc.source, "source_id": None,
            "locator": doc.name, "url": None,
        }  # fmt: skip
    return found
