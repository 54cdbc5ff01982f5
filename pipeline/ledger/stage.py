"""Merges each partition's decisions into the ledger. The runner adds it after the last local stage."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DECISIONS, EDIT, FAILED_RULE, KEPT, LEDGER


class Ledger(GlobalStage):
    """One row for every record that ingest saw, in the order of ingest's partitions."""

    name = "ledger"
    version = "4"

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def key_params(self) -> dict[str, Any]:
        return {}

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        return quantity(manifest.counters["rows"], "row")

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Per partition: ingest's documents, the last stage's, and the decisions of all."""
        own, count, ingested = known.of(self.name), flow.partitions, flow.shape.text_bytes
        written = flow.records * own.row_bytes
        work = Work(
            self.name, count, {"mb": ingested / 1e6}, read_bytes=(ingested + flow.text_bytes) * known.stored,
            written_bytes=written, kept_bytes=written, gets=count * (len(flow.local) + 2), puts=count,
            worker_bytes=own.base_bytes + own.held * ingested / max(1.0, count),
            driver_bytes=count * known.task_bytes,
        )  # fmt: skip
        return Forecast([work], flow)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        ingest, *later = context.previous.items()
        manifest = StageManifest.model_validate_json((ingest[1] / "manifest.json").read())
        merge = partial(_merge_and_publish, context.folder, ingest[1], dict(later))
        files = context.scheduler.map(merge, manifest.partitions, "ledger")
        return files, {"rows": sum(file.rows or 0 for file in files)}


def _merge_and_publish(folder: Folder, ingest: Folder, later: dict[str, Folder], name: str) -> PublishedFile:
    documents = read_table(
        ingest / f"documents/{name}.parquet",
        columns=["doc_id", "source", "source_id", "locator", "url", "text"],
    )
    quarantined = read_table(ingest / f"decisions/{name}.parquet")
    decided = [read_table(stage / f"decisions/{name}.parquet") for stage in later.values()]
    rows = merge(documents, quarantined, decided)
    if later:  # a document that stays has its cluster beside it, since no decision was taken on it
        last = next(reversed(later.values()))
        rows = _with_clusters(
            rows, read_table(last / f"documents/{name}.parquet", columns=["doc_id", "cluster_id"])
        )
    return publish_table(folder, f"{name}.parquet", rows)


def _with_clusters(rows: pa.Table, kept: pa.Table) -> pa.Table:
    where = pc.index_in(rows["doc_id"], kept["doc_id"].combine_chunks())
    place = rows.schema.get_field_index("cluster_id")
    clusters = pc.coalesce(rows["cluster_id"], kept["cluster_id"].take(where))
    return rows.set_column(place, rows.schema.field(place), clusters)


def merge(documents: pa.Table, ingest_decisions: pa.Table, decided: list[pa.Table]) -> pa.Table:
    """The ledger of one partition.

    A document has one row per stage at most in `decided`; the last of them states the outcome, since nothing
    follows a removal. Edits and failed rules of all stages are gathered.
    """
    kept = pa.table(
        {
            **{name: documents[name] for name in ("doc_id", "source", "source_id", "locator", "url")},
            "text_bytes": pc.binary_length(documents["text"]).cast(pa.int64()),
        }
    )
    stays = pc.equal(ingest_decisions["outcome"], KEPT)  # with a text that was repaired
    rows = _first_rows(kept)
    for decisions in (ingest_decisions.filter(stays), *decided):
        rows = _overlay(rows, decisions.select(DECISIONS.names))
    return pa.concat_tables([rows, _quarantine_rows(ingest_decisions.filter(pc.invert(stays)))])


def _first_rows(kept: pa.Table) -> pa.Table:
    """Every document as kept, before any stage has decided."""
    length = len(kept)
    columns = {
        name: kept[name] if name in kept.column_names else pa.nulls(length, LEDGER.field(name).type)
        for name in LEDGER.names
    }
    columns["outcome"] = pa.array([KEPT] * length, pa.string())
    columns["stage"] = pa.array(["ingest"] * length, pa.string())
    return pa.table(columns, schema=LEDGER)


def _quarantine_rows(decisions: pa.Table) -> pa.Table:
    length = len(decisions)
    columns = [
        decisions[field.name].cast(field.type)
        if field.name in decisions.column_names
        else pa.nulls(length, field.type)
        for field in LEDGER
    ]
    return pa.Table.from_arrays(columns, schema=LEDGER)


def _overlay(rows: pa.Table, decisions: pa.Table) -> pa.Table:
    """`rows` with a stage's decisions laid over them, by doc_id."""
    where = pc.index_in(rows["doc_id"], decisions["doc_id"])
    hit = pc.is_valid(where)
    columns: dict[str, Any] = {}
    for field in LEDGER:
        old = rows[field.name]
        if field.name not in DECISIONS.names or field.name == "doc_id":
            columns[field.name] = old
            continue
        new = decisions[field.name].take(where)
        if field.name in ("failed", "edits"):
            columns[field.name] = _append(old, new, field.type)
        elif field.name == "cluster_id":
            columns[field.name] = pc.coalesce(new, old)  # a document keeps the cluster that dedup gave it
        else:
            columns[field.name] = pc.if_else(hit, new, old)
    return pa.table(columns, schema=LEDGER)


def _append(old: pa.ChunkedArray, new: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Lists joined row by row. Only rows with entries from both are handled in Python: they are few."""
    both = pc.and_(pc.is_valid(old), pc.is_valid(new))
    if not pc.any(both).as_py():
        return pc.coalesce(old, new)
    values = pc.coalesce(old, new).to_pylist()
    for index in pc.indices_nonzero(both).to_pylist():
        values[index] = old[index].as_py() + new[index].as_py()
    return pa.chunked_array([pa.array(values, kind)])


assert LEDGER.field("failed").type == pa.list_(FAILED_RULE) and LEDGER.field("edits").type == pa.list_(EDIT)

STAGE = Ledger
