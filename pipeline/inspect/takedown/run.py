"""A takedown from its file to its report: which documents are meant (rows of the ledger that the names match, and their copies);
finish what is under way, find, prepare, decide, put in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum, named_id
from corpusmill.common.signing import Signer, signer
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.copies import copies_of
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.engine.requested_documents import COLUMNS, is_id, matches, read_names
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.takedown_log import read_log, under_way
from corpusmill.pipeline.inspect.locate import Finds, find
from corpusmill.pipeline.inspect.takedown.change import (
    Plan,
    Request,
    decide,
    discard,
    finish,
    prepare,
    read_plan,
    sweep,
)
from corpusmill.pipeline.shard.read import Opened, open_set, set_folder
from corpusmill.schemas.augment import MADE
from corpusmill.schemas.manifest import MANIFEST, StageManifest, hash_json
from corpusmill.schemas.recipe import LOCAL
from corpusmill.schemas.shards import INDEX
from corpusmill.schemas.tables import ID, KEPT, LEDGER

_READ = [*COLUMNS, "source", "outcome", "stage", "duplicate_of", "cluster_id"]
_ROWS = pa.schema([LEDGER.field(name) for name in _READ])


@dataclass
class Who:
    """`sources`: each document's source, None without a ledger. `kept`: those that should be in the shards.
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
            entry = {"doc_id": row["doc_id"].hex(), "outcome": row["outcome"], "stage": row["stage"] or ""}
            if row["duplicate_of"] is not None:
                entry["duplicate_of"] = row["duplicate_of"].hex()
            if entry not in result.removed:
                result.removed.append(entry)
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


@dataclass(frozen=True)
class Place:
    """Where the shards lie; the run and the ledger that they belong to, if these are known."""

    shards: Folder
    run: Folder | None
    ledger: Folder | None


def place_of(run: str | None, shards: str | None) -> Place:
    """Of a run (or the output of a stage's command), or else of a folder of shards. Raises `UserError` if there are
    none."""
    if run is not None:
        root = Folder(run)
        there = set_folder(root)
        if there is None:
            raise UserError(f"{run}: no shards there; give the folder of a run with shards, or --shards DIR")
        return Place(there, root, root / "ledger" if _there(root / "ledger") else None)
    found = Folder(str(shards))
    if not (found / INDEX).exists():
        raise UserError(f"{shards}: no shards there; give the folder that has the set's index.json")
    ledger = next((f for f in (found / "ledger", found.parent / "ledger") if _there(f)), None)
    return Place(found, ledger.parent if ledger is not None else None, ledger)


def _there(ledger: Folder) -> bool:
    return any(entry.path.endswith(".parquet") for entry in ledger.list())


def take_down(
    place: Place, file: Folder, cluster: bool, dry_run: bool, scheduler: Scheduler, log: Callable[[str], None]
) -> dict[str, Any]:
    """Take the documents that `file` names out of the shards; the result as JSON values (see `docs/takedown.md`).

    With `cluster` their duplicate clusters too. With `dry_run` nothing is written. Raises `UserError` if nothing that
    is named was ever seen, `WorkError` if the shards are damaged.
    """
    named, key = read_names(file), signer()
    names = hash_json([sorted(named), cluster])
    pending = under_way(place.shards)
    if pending is not None and dry_run:
        raise UserError(f"{place.shards / pending}: a takedown is unfinished; run its command again first")
    if pending is not None:
        plan = _finish(place.shards, pending.rpartition("/")[2], key, log)
        if plan is not None and plan.names == names:
            return {**plan.result, "resumed": True}
    opened = open_set(place.shards)
    meant = who(place.ledger, named, cluster, scheduler)
    _with_copies(meant, place, named)
    finds = find(opened.folder, meant.sources, _seed(place.shards), scheduler)
    taken = set(read_log(place.shards).taken)
    if meant.kept - finds.documents - taken:
        finds = find(
            opened.folder, meant.sources, None, scheduler
        )  # the order is another one: look everywhere
    result = _report(place, opened, named, meant, finds, taken)
    if not result["found"] and not result["already"]:
        raise UserError(f"{file}: none of the {len(named)} documents named there is known; {hint(place)}")
    if dry_run:
        return {**result, "dry_run": True}
    doc_ids = {i for i in meant.sources if place.ledger is not None} | finds.documents
    if not finds.tars and doc_ids <= taken:
        sweep(place.shards, "")
        return {**result, "shards": [], "emptied": [], "tokens": 0}
    request = hash_json([sorted(i.hex() for i in doc_ids), checksum(opened.data)])[:16]
    time = datetime.now(UTC).isoformat(timespec="seconds")
    plan = prepare(opened, finds, Request(request, names, time, tuple(sorted(doc_ids))), scheduler, result)
    decide(place.shards, plan)
    finish(place.shards, plan, key, log)
    return plan.result


def _with_copies(meant: Who, place: Place, named: Sequence[str]) -> None:
    """Add the copies that `augment` made of the documents meant, whose text is theirs, and copies that are named themselves."""
    if place.run is None:
        return
    ids = {raw for name in named if (raw := named_id(name)) is not None}
    for copy in copies_of(place.run / "augment", sorted({*meant.sources, *ids})):
        if copy.outcome == MADE and (copy.parent in meant.sources or copy.doc_id in ids):
            meant.sources[copy.doc_id] = copy.source
            meant.kept.add(copy.doc_id)
            meant.unknown = [name for name in meant.unknown if name != copy.doc_id.hex()]


def _finish(shards: Folder, request: str, key: Signer | None, log: Callable[[str], None]) -> Plan | None:
    """Put in place what a killed takedown had decided; None if the shards were written again since."""
    plan = read_plan(shards, request)
    if checksum((shards / INDEX).read()) not in (plan.before, plan.after):
        log(
            f"{shards}: a takedown was under way, but the shards were written again since, without its documents"
        )
        discard(shards, request)
        return None
    log(f"{shards}: finishing the takedown of {len(plan.result['doc_ids'])} documents that was under way")
    finish(shards, plan, key, log)
    return plan


def _seed(shards: Folder) -> int | None:
    """The seed of the documents' order, from the stage's manifest."""
    try:
        params = StageManifest.model_validate_json((shards / MANIFEST).read()).params
        return purpose_seed(int(params["seed"]), "shard")
    except (FileNotFoundError, ValidationError, KeyError, ValueError):
        return None


def state_of(place: Place) -> str:
    """What an interrupted takedown leaves, and what to do."""
    if under_way(place.shards) is None:
        return "the shards are as they were: run the same command again"
    return "the new shards are in place in part, and readers stop there: run the same command again, which finishes it"


def hint(place: Place) -> str:
    """What names a document there."""
    if place.ledger is None:
        return "without a ledger only a doc_id names one; give --run DIR"
    return "a doc_id (32 hex digits), the input's own id, a locator or a URL is wanted"


def _report(
    place: Place, opened: Opened, named: tuple[str, ...], meant: Who, finds: Finds, taken: set[bytes]
) -> dict[str, Any]:
    held = finds.documents
    there = set(meant.sources) if place.ledger is not None else held
    unknown = meant.unknown or [i.hex() for i in sorted(set(meant.sources) - there - taken)]
    tars = [opened.sets[number].path(tar) for number, tar in sorted(finds.tars)]
    return {
        "named": len(named),
        "found": len(there),
        "not_found": unknown,
        "in_shards": len(held),
        "already": len(taken & set(meant.sources) - held),
        "doc_ids": sorted(i.hex() for i in held),
        "not_in_shards": [row for row in meant.removed if bytes.fromhex(row["doc_id"]) not in held],
        "copies_stay": [i.hex() for i in meant.copies_stay if i not in taken],
        "shards": tars,
        "read": finds.read,
        "still_held": still_held(place),
    }


def still_held(place: Place) -> list[str]:
    """What else may hold the text: reported, and left alone."""
    found = []
    if place.run is not None:
        roots = {e.path.partition("/documents/")[0] for e in place.run.list() if "/documents/" in e.path}
        order = {name: rank for rank, name in enumerate(LOCAL)}
        for root in sorted(roots, key=lambda r: (order.get(r.rpartition("/")[2], 99), r)):
            found.append(
                f"{place.run / root}/documents: the documents of that stage, and what it read before them"
            )
        for name, what in (
            ("tokenizer", "tokens that were learned from its text, if it was in the sample"),
            (
                "report",
                "a report made before: `corpusmill report` writes it again; its examples may show the text",
            ),
        ):
            if any(True for _ in (place.run / name).list()):
                found.append(f"{place.run / name}: {what}")
    found.append(
        "checkpoints of models trained on these shards before, and what was exported or copied from them"
    )
    found.append(
        "the index of `dedup --index`, if there is one: `corpusmill dedup OUT --index DIR --takedown FILE`"
    )
    return found
