"""Planted documents: what should become of them by a label file, and what did.

The file is JSON: `kinds` maps a kind to `{"expected": ..., "ids": [...]}`, where an id is a record's own id
or its locator, and expected is `filter`, `dedup`, `redact`, `quarantine`, `keep` or `repair`. Optional:
`documents` maps an id to details (`jaccard5` of a near copy, `spans` of personal data, `garbled` text to be
repaired), and `broken` lists the lines of one file that must, or must not, be quarantined.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.report.excerpts import fetch
from corpusmill.pipeline.report.survey import read_columns
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED

EXPECTED = ("filter", "dedup", "redact", "quarantine", "keep", "repair")
STAGE_OF = {"filter": "filter", "dedup": "dedup"}
REPAIR_CHARS = 1 << 20


def load_labels(path: str) -> dict[str, Any]:
    """The label file; raises `UserError` when it is missing or has another form."""
    where = f"report.labels: {path}"
    try:
        labels: Any = json.loads(Folder(path).read())
    except FileNotFoundError:
        raise UserError(
            f"{where}: no such file; give the JSON of planted documents, or leave the key out"
        ) from None
    except ValueError:
        raise UserError(f"{where}: not JSON") from None
    kinds = labels.get("kinds") if isinstance(labels, dict) else None
    if not isinstance(kinds, dict):
        raise UserError(f'{where}: must hold {{"kinds": {{kind: {{"expected": ..., "ids": [...]}}}}}}')
    for kind, entry in kinds.items():
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("ids"), list)
            or entry.get("expected") not in EXPECTED
        ):
            raise UserError(
                f"{where}: kinds.{kind}: must have ids (a list) and expected (one of {', '.join(EXPECTED)})"
            )
    return dict(labels)


def judge(
    labels: dict[str, Any], scheduler: Scheduler, ledger: Folder, ingested: Folder, partitions: list[str],
    similarity: float | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Per kind: planted, caught, removed otherwise, missed, and which ids were missed."""
    groups = _groups(labels, similarity)
    wanted = sorted({name for group in groups for name in group["ids"]})
    rows: dict[str, dict[str, Any]] = {}
    for part in scheduler.map(partial(_rows, ledger, wanted), partitions, "labels"):
        for name, row in part.items():
            rows.setdefault(name, row)
    ids = sorted({row["doc_id"] for row in rows.values()})
    # Either of two copies may stay: a planted copy that others were removed for is caught too.
    survivors: set[bytes] = set().union(
        *scheduler.map(partial(_survivors, ledger, ids), partitions, "labels")
    )
    details = labels.get("documents") or {}
    repaired = [rows[n]["doc_id"] for g in groups if g["expected"] == "repair" for n in g["ids"] if n in rows]
    texts = fetch(scheduler, ingested, partitions, dict.fromkeys(repaired, (0, REPAIR_CHARS)), "labels")
    return [_judged(group, rows, survivors, details, texts) for group in groups]


def _groups(labels: dict[str, Any], similarity: float | None) -> list[dict[str, Any]]:
    """Kinds in the file's order; near copies on either side of the similarity that the run asks for."""
    details = labels.get("documents") or {}
    groups: list[dict[str, Any]] = []
    for kind, entry in labels["kinds"].items():
        ids = [str(name) for name in entry["ids"]]
        graded = {n: details[n]["jaccard5"] for n in ids if "jaccard5" in details.get(n, {})}
        if entry["expected"] == "dedup" and similarity is not None and graded:
            near = [n for n in ids if graded.get(n, 1.0) >= similarity]
            far = [n for n in ids if graded.get(n, 1.0) < similarity]
            groups.append({"kind": f"{kind}, Jaccard ≥ {similarity:g}", "expected": "dedup", "ids": near})
            groups.append({"kind": f"{kind}, Jaccard < {similarity:g}", "expected": "not dedup", "ids": far})
        else:
            groups.append({"kind": kind, "expected": entry["expected"], "ids": ids})
    broken = labels.get("broken")
    if isinstance(broken, dict) and isinstance(broken.get("lines"), list):
        file = str(broken.get("file", "")).rsplit("/", 1)[-1]
        for expected, kind in (("quarantine", "broken line"), ("keep", "good line among broken ones")):
            ids = [
                f"{file}#{line['line'] - 1}" for line in broken["lines"] if line.get("expected") == expected
            ]
            groups.append({"kind": kind, "expected": expected, "ids": ids})
    return [group for group in groups if group["ids"]]


def _rows(ledger: Folder, wanted: list[str], name: str) -> dict[str, dict[str, Any]]:
    """Id as the label file gives it -> its row in the ledger of one partition."""
    columns = ["doc_id", "source_id", "locator", "outcome", "stage", "rule", "edits"]
    table = read_columns(ledger / f"{name}.parquet", columns)
    names = pa.array(wanted, pa.string())
    keys = {
        "source_id": table["source_id"],
        "locator": table["locator"],
        "file": pc.replace_substring_regex(table["locator"], r"^.*/", ""),
    }
    found: dict[str, dict[str, Any]] = {}
    for key in keys.values():
        hits = pc.indices_nonzero(pc.fill_null(pc.is_in(key, names), False))
        for own, row in zip(key.take(hits).to_pylist(), table.take(hits).to_pylist(), strict=True):
            row["edits"] = Counter(e["kind"] for e in row["edits"] or () if e["stage"] == "redact")
            found.setdefault(own, row)
    return found


def _survivors(ledger: Folder, ids: list[bytes], name: str) -> set[bytes]:
    column = read_columns(ledger / f"{name}.parquet", ["duplicate_of"])["duplicate_of"]
    hits = column.filter(pc.is_in(column, pa.array(ids, column.type)))
    return {i for i in pc.unique(hits).to_pylist() if i is not None}


def _judged(
    group: dict[str, Any], rows: dict[str, dict[str, Any]], survivors: set[bytes], details: dict[str, Any],
    texts: dict[bytes, str],
) -> dict[str, Any]:  # fmt: skip
    caught, elsewhere, missed = [], Counter[str](), []
    for name in group["ids"]:
        row = rows.get(name)
        if row is None:
            missed.append({"id": name, "outcome": "not in the ledger", "rule": None})
        elif _as_expected(group["expected"], row, row["doc_id"] in survivors, details.get(name, {}), texts):
            caught.append(name)
        elif row["outcome"] == REMOVED and group["expected"] not in ("keep", "not dedup"):
            elsewhere[row["stage"]] += 1
        else:
            missed.append({"id": name, "outcome": row["outcome"], "rule": row["rule"]})
    return {
        **{name: group[name] for name in ("kind", "expected")}, "planted": len(group["ids"]),
        "caught": len(caught), "elsewhere": dict(sorted(elsewhere.items())), "missed": missed,
    }  # fmt: skip


def _as_expected(
    expected: str, row: dict[str, Any], survivor: bool, detail: dict[str, Any], texts: dict[bytes, str]
) -> bool:
    removed_at = row["stage"] if row["outcome"] == REMOVED else None
    if expected == "dedup":
        return removed_at == "dedup" or survivor
    if expected == "not dedup":
        return removed_at != "dedup"
    if expected == "quarantine":
        return bool(row["outcome"] == QUARANTINED)
    if expected == "redact":
        planted = Counter(span["kind"] for span in detail.get("spans", ()))
        return bool(row["edits"]) and all(row["edits"][kind] >= count for kind, count in planted.items())
    if expected == "keep":
        return row["outcome"] == KEPT and not row["edits"]
    if expected == "repair":
        text = texts.get(row["doc_id"])
        return text is not None and not any(part["value"] in text for part in detail.get("garbled", ()))
    return removed_at == STAGE_OF[expected]
