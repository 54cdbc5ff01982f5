"""`corpusmill why`: everything that was decided about one document, with values and thresholds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.escape import spelled
from corpusmill.common.format import quantity
from corpusmill.common.ids import named_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.copies import Copy, copies_of
from corpusmill.pipeline.engine.layout import stage_params
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.filter.quality_signals.scores import SCORE, SECTION
from corpusmill.pipeline.inspect.weighed import Weighing, lines_of
from corpusmill.schemas.augment import MADE
from corpusmill.schemas.tables import KEPT, LEDGER, readable

SHOWN = 10  # documents of one id
NEAR = ("dedup.minhash", "dedup.containment")
# By preset, or else by kind of shingle.
COMPARED = {
    "code": "runs of {} tokens without comments: names by where they repeat, literals by kind",
    "short": "runs of {} characters inside words, whatever their order, case, digits and URLs",
    "datatrove": "runs of {} words, simplified as datatrove does",
    "word": "runs of {} words",
    "char": "runs of {} characters",
}


def ledger_folder(run: Folder) -> Folder:
    """The ledger of a run, or of a stage command's output; raises `UserError` if there is none."""
    for folder in (run / "ledger", run):
        if any(entry.path.endswith(".parquet") and "/" not in entry.path for entry in folder.list()):
            return folder
    raise UserError(
        f"{run}: no ledger there; give the folder of a finished run, such as --run runs/quickstart"
    )


def why(run: Folder, wanted: str) -> list[dict[str, Any]]:
    """The ledger rows whose doc_id (32 hex digits), source_id or locator is `wanted`, each with its signals; near-duplicates
    with what was `compared`, documents with a score over signals with what `weighed` most in it.

    Raises `UserError` when no row matches.
    """
    ledger = ledger_folder(run)
    found: list[dict[str, Any]] = []
    measured: list[str] | None = None  # folders of signals
    for entry in ledger.list():
        if not entry.path.endswith(".parquet"):
            continue
        data = (ledger / entry.path).read()
        hits = _matches(parse_table(data, ["doc_id", "source_id", "locator"]), wanted)
        if not hits:
            continue
        if measured is None:
            paths = (file.path.rpartition("/")[0] for file in run.list() if "signals/" in file.path)
            measured = sorted(set(paths))
        rows = parse_table(data).take(hits)
        signals = _signals([run / path / entry.path for path in measured], rows["doc_id"])
        found += [{**row, "signals": signals.get(row["doc_id"], {})} for row in rows.to_pylist()]
    ids = [row["doc_id"] for row in found]
    raw = named_id(wanted)
    for copy in copies_of(run / "augment", ids if raw is None else [*ids, raw]):
        if copy.doc_id == raw:
            found.append(_of_copy(copy))
        for row in found:
            if row["doc_id"] == copy.parent:
                row.setdefault("copies", []).append(
                    {"doc_id": copy.doc_id, "by": copy.by, "outcome": copy.outcome, "detail": copy.detail}
                )
    if not found:
        raise UserError(
            f"{wanted}: no such document in {run}: a doc_id (32 hex digits), the input's own id or a locator is wanted"
        )
    near = [row for row in found if row["rule"] in NEAR]
    compared = _compared(run) if near else None
    for row in near:
        row |= {"compared": compared} if compared else {}
    if any(row["signals"].get(SCORE) is not None for row in found):
        weighing = Weighing(run)
        for row in found:
            weighed = weighing.of(row["signals"])
            row |= {"weighed": weighed} if weighed else {}
    return [readable(row) for row in found]


def _compared(run: Folder) -> str | None:
    """What the Jaccard similarity of a run's near-duplicates is of, by the parameters of its `dedup`; None if they are not there."""
    params = stage_params(run, "dedup") or {}
    if "ngram" in params and "preset" in params:
        units = COMPARED.get(params["preset"]) or COMPARED[params["shingle"]]
        return units.format(params["ngram"])
    return None


def _of_copy(copy: Copy) -> dict[str, Any]:
    """What the account of `augment` says of a copy, as a row of the ledger with the `parent`."""
    made = copy.outcome == MADE
    about = f"a copy by {copy.by}" + ("" if made else f", {copy.outcome}: {copy.detail or 'the same text'}")
    return {
        **dict.fromkeys(LEDGER.names), "doc_id": copy.doc_id, "source": copy.source, "parent": copy.parent,
        "locator": f"{copy.parent.hex()}#{copy.by}", "outcome": KEPT if made else copy.outcome, "stage": "augment",
        "rule": None if made else f"augment.{copy.outcome}", "detail": about, "signals": {},
    }  # fmt: skip


def _matches(ids: pa.Table, wanted: str) -> list[int]:
    mask = pc.or_kleene(pc.equal(ids["source_id"], wanted), pc.equal(ids["locator"], wanted))
    raw = named_id(wanted)
    if raw is not None:
        mask = pc.or_kleene(mask, pc.equal(ids["doc_id"], pa.scalar(raw, ids["doc_id"].type)))
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return rows


def _signals(files: Sequence[Folder], doc_ids: pa.ChunkedArray) -> dict[bytes, dict[str, Any]]:
    """doc_id -> the measured values of a document of one partition, of every stage that measured."""
    values: dict[bytes, dict[str, Any]] = {}
    for file in files:
        try:
            table = parse_table(file.read())
        except FileNotFoundError:
            continue
        for row in table.filter(pc.is_in(table["doc_id"], value_set=doc_ids)).to_pylist():
            values.setdefault(row.pop("doc_id"), {}).update(row)
    return values


def explain_all(rows: Sequence[dict[str, Any]], wanted: str) -> str:
    """The rows of `why` in words: the first `SHOWN`, and how many more there are."""
    shown = [explain(row) for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        left = {str(row["source"]) for row in rows[SHOWN:]}
        shown.append(
            spelled(
                f"and {quantity(len(rows) - SHOWN, 'more document')} with the id {wanted}, of {', '.join(sorted(left))}"
            )
            + "; give the doc_id or the locator (in the first line of each) for one of them, --json for all"
        )
    return "\n".join(shown)


def explain(row: dict[str, Any]) -> str:
    """A ledger row in words, for a terminal: what a document brought along is on the line where it belongs."""
    lines = [f"{row['doc_id']}  {row['source']}  {row['locator']}"]
    if row["source_id"]:
        lines.append(f"  own id      {row['source_id']}")
    if row["url"]:
        lines.append(f"  url         {row['url']}")
    size = f", {quantity(row['text_bytes'], 'byte')} of text" if row["text_bytes"] is not None else ""
    if row["outcome"] == "kept":
        lines.append(f"  kept        by every stage{size}")
    else:
        limit = f" (value {_number(row['value'])}, threshold {_number(row['threshold'])})"
        limit = limit if row["value"] is not None else ""
        lines.append(f"  {row['outcome']:<11} at {row['stage']} by {row['rule']}{limit}{size}")
    weighed = lines_of(row["weighed"]) if row.get("weighed") else []
    first = str(row["rule"]).startswith(f"{SECTION}.")  # removed by it: the reason comes first
    if first:
        lines += weighed
    if row["detail"]:
        lines.append(f"  detail      {row['detail']}")
    if row.get("parent"):
        lines.append(f"  copy        of {row['parent']}")
    for copy in row.get("copies", ()):
        lines.append(f"  copy        {copy['doc_id']} by {copy['by']}: {copy['outcome']}")
    if row["duplicate_of"]:
        lines.append(f"  duplicate   of {row['duplicate_of']}, exact Jaccard {_number(row['jaccard'])}")
        if row.get("compared"):
            lines.append(f"  compared    {row['compared']}")
    if row["cluster_id"]:
        lines.append(f"  cluster     {row['cluster_id']}")
    for failed in row["failed"] or []:
        limit = "" if failed["threshold"] is None else f" against {_number(failed['threshold'])}"
        lines.append(f"  failed      {failed['rule']}: {_number(failed['value'])}{limit}")
    for edit in row["edits"] or []:
        lines.append(
            f"  edited      {edit['kind']}: {edit['length']} characters at {edit['offset']} ({edit['stage']})"
        )
    if not first:
        lines += weighed
    for name, value in row["signals"].items():
        lines.append(f"  signal      {name} = {_number(value)}")
    return "\n".join(map(spelled, lines))


def _number(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
