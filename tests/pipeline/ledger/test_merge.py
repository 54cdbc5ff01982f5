"""The ledger of a partition: one row a record, the last word, every edit and failed rule."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import decisions
from corpusmill.pipeline.ledger.stage import _merge_and_publish, merge
from corpusmill.schemas.tables import DOCUMENTS, INGEST_DECISIONS, LEDGER

IDS = {name: doc_id("s", name) for name in "abcd"}


def docs(names: str) -> pa.Table:
    rows = [
        {
            "doc_id": IDS[n],
            "source": "s",
            "source_id": n,
            "locator": n,
            "text": "é" + n,
            "text_hash": text_hash(n),
        }
        for n in names
    ]
    return pa.Table.from_pylist([{c: r.get(c) for c in DOCUMENTS.names} for r in rows], schema=DOCUMENTS)


def edit(stage: str, kind: str, offset: int) -> dict[str, object]:
    return {"stage": stage, "kind": kind, "offset": offset, "length": 3, "written": 7}


def test_merge() -> None:
    quarantined = pa.Table.from_pylist(
        [
            {
                **dict.fromkeys(INGEST_DECISIONS.names),
                "doc_id": IDS["d"],
                "outcome": "quarantined",
                "stage": "ingest",
                "rule": "ingest.bad",
                "source": "s",
                "locator": "d",
            }
        ],
        schema=INGEST_DECISIONS,
    )
    failed = [{"stage": "filter", "rule": "x.y", "value": 1.0, "threshold": 2.0}]
    filtered = decisions(
        [
            {"doc_id": IDS["b"], "outcome": "removed", "stage": "filter", "rule": "x.y", "value": 1.0,
             "threshold": 2.0, "failed": failed},
            {"doc_id": IDS["a"], "outcome": "kept", "stage": "filter", "edits": [edit("filter", "line", 0)]},
        ]
    )  # fmt: skip
    deduped = decisions(
        [{"doc_id": IDS["c"], "outcome": "removed", "stage": "dedup", "duplicate_of": IDS["a"], "jaccard": 0.9,
          "cluster_id": IDS["a"]}]
    )  # fmt: skip
    redacted = decisions(
        [{"doc_id": IDS["a"], "outcome": "kept", "stage": "redact", "edits": [edit("redact", "email", 5)]}]
    )
    ledger = merge(docs("abc"), quarantined, [filtered, deduped, redacted])
    assert ledger.schema == LEDGER
    rows = {row["source_id"] or "d": row for row in ledger.to_pylist()}
    assert [rows[n]["outcome"] for n in "abcd"] == ["kept", "removed", "removed", "quarantined"]
    assert rows["a"]["edits"] == [edit("filter", "line", 0), edit("redact", "email", 5)]
    assert (rows["a"]["stage"], rows["a"]["rule"], rows["a"]["text_bytes"]) == ("redact", None, 3)
    assert rows["b"]["failed"] == failed and rows["b"]["threshold"] == 2.0
    assert rows["c"]["duplicate_of"] == rows["c"]["cluster_id"] == IDS["a"] and rows["c"]["jaccard"] == 0.9
    assert rows["d"]["rule"] == "ingest.bad" and rows["d"]["text_bytes"] is None


def test_the_document_that_stays_has_its_cluster_too(tmp_path: Path) -> None:
    """No decision was taken on it: the last stage's documents say its cluster."""
    ingest, dedup, out = (Folder(tmp_path / name) for name in ("ingest", "dedup", "ledger"))
    publish_table(ingest, "documents/0.parquet", docs("abc"))
    publish_table(ingest, "decisions/0.parquet", INGEST_DECISIONS.empty_table())
    copy = {
        "doc_id": IDS["c"],
        "outcome": "removed",
        "stage": "dedup",
        "duplicate_of": IDS["a"],
        "cluster_id": IDS["a"],
    }
    publish_table(dedup, "decisions/0.parquet", decisions([copy]))
    kept = docs("ab")
    clusters = pa.array([IDS["a"], None], kept.schema.field("cluster_id").type)
    publish_table(
        dedup,
        "documents/0.parquet",
        kept.set_column(kept.schema.get_field_index("cluster_id"), "cluster_id", clusters),
    )
    _merge_and_publish(out, ingest, {"dedup": dedup}, "0")
    assert read_table(out / "0.parquet")["cluster_id"].to_pylist() == [IDS["a"], None, IDS["a"]]


def test_merge_of_nothing() -> None:
    empty = INGEST_DECISIONS.empty_table()
    assert len(merge(docs(""), empty, [decisions([])])) == 0
    (row,) = merge(docs("a"), empty, []).to_pylist()
    assert (row["outcome"], row["stage"], row["edits"]) == ("kept", "ingest", None)
