"""The stage on documents in memory: prepare over partitions, then the transform of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.stage import Decontaminate
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Context, Partition, check_conservation
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.corpus import Here, documents, partitions

QUESTION = (
    "Two spotted llamas carry seventeen baskets of ripe quinces over the northern bridge each Tuesday morning, how"
    " many baskets reach the village before the river floods again"
)  # 27 words, 15 n-grams
SHORT = "Which river floods the quince market at Oberwalden?"  # 8 words
ANSWER = "the little Emsa"
FILLER = (
    "The harbour of the town was built in the year of the great frost, and its walls are made of grey stone. "
)


class Ran(NamedTuple):
    """What came out, partitions one after the other."""

    kept: pa.Table
    decisions: list[dict[str, Any]]
    table: dict[str, Any]
    touched: list[dict[str, Any]]
    files: dict[str, str]  # path -> checksum of what prepare published
    matches: list[dict[str, Any]]
    counters: dict[str, int]

    @property
    def texts(self) -> list[str]:
        return self.kept["text"].to_pylist()

    def set(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.table["sets"] if entry["set"] == name)


def write_set(folder: Path, rows: Sequence[dict[str, Any]], name: str = "riddles.jsonl") -> Path:
    """An evaluation file of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def decontaminate(
    folder: Path, texts: Sequence[str] | pa.Table, against: Path, cuts: int = 1, scheduler: Any = None, **params: Any
) -> Ran:  # fmt: skip
    """Run the stage on texts, cut into partitions."""
    docs = texts if isinstance(texts, pa.Table) else documents(texts)
    recipe = Recipe.model_validate(
        {
            "name": "test", "sources": {"web": {"paths": ["x"]}},
            "decontaminate": {"against": [str(against)], **params},
        }
    )  # fmt: skip
    stage = Decontaminate(recipe)
    run = Folder(folder)
    parts: list[Partition] = partitions(run / "ingest", docs, cuts)
    context = Context(
        recipe, run, run / "decontaminate", parts, {"ingest": run / "ingest"}, scheduler or Here()
    )
    files, counters = stage.prepare(context)
    kept, decided = [], []
    for part in parts:
        table = part.read()
        outcome = stage.transform(context.folder, part.name)(table)
        check_conservation(part.name, len(table), outcome)
        assert outcome.kept.schema == table.schema
        kept.append(outcome.kept)
        decided += outcome.decisions.to_pylist()
        for name, count in outcome.counters.items():
            counters[name] = counters.get(name, 0) + count
    matches = [
        row for part in parts for row in read_table(context.folder / f"matches/{part.name}.parquet").to_pylist()
    ]  # fmt: skip
    return Ran(
        pa.concat_tables(kept), decided, json.loads((context.folder / "contamination.json").read()),
        [json.loads(line) for line in (context.folder / "touched_items.jsonl").read().splitlines()],
        {file.path: file.xxh3 for file in files}, matches, counters,
    )  # fmt: skip
