"""Runs the ingest stage over files in a folder and gives all that came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.pipeline.engine.stage import check_conservation
from corpusmill.pipeline.ingest.records import Batch, Document, Event
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS, INGEST_DECISIONS


@dataclass
class Result:
    """All partitions of one ingest."""

    stage: Ingest
    names: list[str]
    tables: list[pa.Table]
    decisions: list[dict[str, Any]]
    counters: Counter[str]
    raw: list[int]
    repaired: list[dict[str, Any]]  # decisions on documents that were kept

    @property
    def docs(self) -> list[dict[str, Any]]:
        return pa.concat_tables(self.tables).to_pylist()

    @property
    def texts(self) -> list[str]:
        return [doc["text"] for doc in self.docs]

    @property
    def rules(self) -> list[str]:
        return [row["rule"] for row in self.decisions]

    def locators(self) -> list[str]:
        return [doc["locator"] for doc in self.docs]


def one_by_one(events: Iterable[Event]) -> Iterator[Event]:
    """The events, those of columns with each row as the document that it is."""
    for event in events:
        if isinstance(event, Batch) and event.sizes is not None:
            yield from (Document(**row) for row in event.table.to_pylist())
        else:
            yield event


def ingest(*paths: Path | str, params: dict[str, Any] | None = None, **source: Any) -> Result:
    """Ingest one source named `s`; checks conservation, ids, hashes and schemas on the way."""
    config = {"paths": [str(path) for path in paths], **source}
    return ingest_recipe({"name": "t", "sources": {"s": config}, "ingest": params or {}})


def ingest_recipe(config: dict[str, Any]) -> Result:
    stage = Ingest(Recipe.model_validate(config))
    result = Result(stage, [], [], [], Counter(), [], [])
    for unit in stage.units():
        unit_bytes = 0
        for name, outcome, raw in stage.read(unit):
            assert outcome.kept.schema == DOCUMENTS
            assert outcome.decisions.schema == INGEST_DECISIONS
            gone = [row for row in outcome.decisions.to_pylist() if row["outcome"] != "kept"]
            repaired = [row for row in outcome.decisions.to_pylist() if row["outcome"] == "kept"]
            assert {row["doc_id"] for row in repaired} <= set(outcome.kept["doc_id"].to_pylist())
            rows = len(outcome.kept) + len(gone)
            check_conservation(name, outcome.counters.get("records", 0), outcome)
            assert rows == outcome.counters.get("records", 0)
            result.names.append(name)
            result.tables.append(outcome.kept)
            result.decisions += gone
            result.repaired += repaired
            result.counters.update(outcome.counters)
            result.raw.append(raw)
            unit_bytes += raw
        assert unit_bytes == unit.size
    everything = [*result.docs, *result.decisions]
    ids = [row["doc_id"] for row in everything]
    assert len(set(ids)) == len(ids), "a record appears twice"
    for row in everything:
        assert row["doc_id"] == doc_id(row["source"], row["locator"])
    for doc in result.docs:
        assert doc["text_hash"] == text_hash(doc["text"])
        assert doc["text"].strip()
    return result
