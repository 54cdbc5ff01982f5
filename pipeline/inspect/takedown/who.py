"""Which documents a request means: rows of the ledger that its names match, and their copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.engine.requested_documents import COLUMNS, is_id, matches
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.schemas.documents import ID
from corpusmill.schemas.ledger import KEPT, LEDGER

_READ = [*COLUMNS, "source", "outcome", "stage", "duplicate_of", "cluster_id"]
_ROWS = pa.schema([LEDGER.field(name) for name in _READ])


@dataclass
class Who:
    """`sources`: each document's source, None where no ledger tells it. `kept`: those that should be in the shards.
    `copies_stay`: documents that are kept, of clusters that lose a member, and that the request does not mean."""

    sources: dict[bytes, str | None] = field(default_factory=dict)
    kept: set[bytes] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    copies_stay: list[bytes] = field(default_factory=list)
    removed: list[dict[str, str]] = field(
        default_factory=list
    )  # of the documents meant: which stage, copy of whom


def who(ledger: Folder | None, named: Sequence[str], cluster: bool, scheduler: Scheduler) -> Who:
    """The documents that the names mean; with `cluster` also every one of a duplicate cluster with them.

    Without a ledger names are taken for ids, and anything else raises `UserError`.
    """
    if ledger is None:
        return _by_id(named, cluster)
    paths = [e.path for e in ledger.list() if e.path.endswith(".parquet") and "/" not in e.path]
    label = "takedown: ledger"
    rows = _joined(scheduler.map(partial(_named, ledger, tuple(named)), paths, label))
    found = {value for name in COLUMNS for value in _texts(rows[name])}
    result = Who(unknown=[name for name in named if name not in found])
    clusters, originals = (_ids(rows[name]) for name in ("cluster_id", "duplicate_of"))
    if clusters or originals:
        ask = partial(_related, ledger, clusters, originals, _ids(rows["doc_id"]))
        related = _joined(scheduler.map(ask, paths, label))
        if cluster:
            rows = pa.concat_tables([rows, related])
        else:
            mine = set(_ids(rows["doc_id"]))
            kept = related.filter(pc.equal(related["outcome"], KEPT))
            result.copies_stay = sorted(set(_ids(kept["doc_id"])) - mine)
    for row in rows.to_pylist():
        result.sources[row["doc_id"]] = row["source"]
        if row["outcome"] == KEPT:
            result.kept.add(row["doc_id"])
        else:
            said = {"doc_id": row["doc_id"].hex(), "outcome": row["outcome"], "stage": row["stage"] or ""}
            if row["duplicate_of"] is not None:
                said["duplicate_of"] = row["duplicate_of"].hex()
            if said not in result.removed:
                result.removed.append(said)
    return result


def _by_id(named: Sequence[str], cluster: bool) -> Who:
    other = next((name for name in named if not is_id(name)), None)
    if other is not None or cluster:
        wanted = "--cluster" if other is None else f"'{other}'"
        raise UserError(
            f"{wanted}: needs the ledger of a run; give --run DIR, or name documents by doc_id alone"
        )
    return Who(sources={bytes.fromhex(name): None for name in named})


def _named(ledger: Folder, named: tuple[str, ...], path: str) -> pa.Table:
    rows = parse_table((ledger / path).read(), _READ)
    return rows.filter(matches(rows, named)).cast(_ROWS)


def _related(
    ledger: Folder, clusters: list[bytes], originals: list[bytes], mine: list[bytes], path: str
) -> pa.Table:
    """Rows of these clusters; the documents of which some of `mine` are copies; copies of `mine`."""
    rows = parse_table((ledger / path).read(), _READ)
    ids, of = rows["doc_id"], rows["duplicate_of"]
    match = pc.is_in(rows["cluster_id"], value_set=pa.array(clusters, ID))
    match = pc.or_(match, pc.is_in(ids, value_set=pa.array(originals, ID)))
    match = pc.or_(match, pc.is_in(of, value_set=pa.array([*mine, *originals], ID)))
    return rows.filter(match).cast(_ROWS)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([_ROWS.empty_table(), *tables])


def _ids(column: pa.ChunkedArray) -> list[bytes]:
    return sorted(set(column.drop_null().to_pylist()))


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [value.hex() if isinstance(value, bytes) else value for value in column.drop_null().to_pylist()]
