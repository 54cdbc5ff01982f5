"""A takedown's new set: prepared beside the old one, decided by one line of the log, then put in place.

Killed before the line, the set is the old one; after it, it is in between, `verify` says so and readers stop at a
checksum, and the same command (or any other takedown) puts the rest in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.signing import Signer
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.record import update_record
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.takedown_log import PLAN, STAGING
from corpusmill.pipeline.inspect.locate import Finds
from corpusmill.pipeline.inspect.takedown.rewrite import Rewrite, Rewritten, rewrite
from corpusmill.pipeline.shard.plan import by_kind, counted, publish_index
from corpusmill.pipeline.shard.read import Opened
from corpusmill.schemas.manifest import MANIFEST, PublishedFile, StageManifest, Strict
from corpusmill.schemas.shards import (
    INDEX,
    TAKEDOWNS,
    Index,
    SetEntry,
    Shard,
    ShardIndex,
    Takedown,
    TextShard,
)


class Plan(Strict):
    """What lies ready: `files` (paths in the set) replace those there, in this order; `removed` go. `before`, `after`:
    checksums of the set's list, by which a plan that something else has overtaken is known. `result`: what is reported."""

    request: str
    names: str
    before: str
    after: str
    files: list[PublishedFile]
    removed: list[str]
    result: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """Documents to take out of a set. `names`: hash of what named them; `time`: when."""

    key: str
    names: str
    time: str
    doc_ids: tuple[bytes, ...]


def staging(shards: Folder, request: str) -> Folder:
    """The folder of a request."""
    return shards / STAGING / request


def read_plan(shards: Folder, request: str) -> Plan:
    """Raises `WorkError` if it cannot be read."""
    file = staging(shards, request) / PLAN
    try:
        return Plan.model_validate_json(file.read())
    except ValidationError:
        raise WorkError(
            f"{file}: not the plan of a takedown; delete {file.parent}, give the command again"
        ) from None


def prepare(
    opened: Opened, finds: Finds, request: Request, scheduler: Scheduler, result: dict[str, Any]
) -> Plan:
    """Everything that the new set has and the old one has not, below the request's folder, the plan last. `result`
    gets `shards` (tars written again), `emptied` (tars that are no more), `tokens` (that went)."""
    shards = opened.folder
    folder = staging(shards, request.key)
    sweep(shards, request.key)
    new = folder / "new"
    tasks = [_task(opened, place, request, doc_ids, new) for place, doc_ids in sorted(finds.tars.items())]
    sizes = [task.shard.filesize for task in tasks]
    written = dict(
        zip(sorted(finds.tars), scheduler.map(rewrite, tasks, "takedown: tars", sizes), strict=True)
    )
    for task, done in zip(tasks, written.values(), strict=True):
        if set(done.gone) != {doc_id.hex() for doc_id in task.gone}:
            raise WorkError(
                f"{task.place / task.shard.url}: documents found before are not there; run verify on it"
            )
    files = [file for done in written.values() for file in done.files]
    entries, indexes, removed = _lists(opened, written, new, files)
    top = opened.top.model_copy(update=by_kind(entries))
    tokens = sum(e.ntokens for e in opened.top.sets) - sum(e.ntokens for e in top.sets)
    result["shards"] = [task.path for task in tasks]
    result["emptied"] = [path for path in removed if path.endswith(".tar")]
    result["tokens"] = tokens
    entry = Takedown(
        request=request.key, time=request.time, doc_ids=sorted(i.hex() for i in request.doc_ids),
        shards=result["shards"], tokens=tokens,
    )  # fmt: skip
    log = publish_bytes(new, TAKEDOWNS, _log(shards) + entry.model_dump_json().encode() + b"\n")
    files += [log, publish_bytes(new, INDEX, top.to_json())]
    manifest = _manifest(shards, files, removed, indexes, new)
    plan = Plan(
        request=request.key, names=request.names, before=checksum(opened.data), after=files[-1].xxh3,
        files=[*files, *manifest], removed=removed, result=result,
    )  # fmt: skip
    (folder / PLAN).write(plan.to_json())
    return plan


def _task(
    opened: Opened, place: tuple[int, int], request: Request, doc_ids: Iterable[bytes], new: Folder
) -> Rewrite:
    listed = opened.sets[place[0]]
    shard = listed.index.shardlist[place[1]]
    index = (
        listed.index.model_copy(update={"shardlist": []}) if isinstance(listed.index, ShardIndex) else None
    )
    gone, path = frozenset(doc_ids), listed.path(place[1])
    return Rewrite(request.key, opened.folder / listed.place, index, shard, gone, new, path)


def _lists(
    opened: Opened, written: dict[tuple[int, int], Rewritten], new: Folder, files: list[PublishedFile]
) -> tuple[list[SetEntry], list[Index], list[str]]:
    """(the lines of the new set; every index as it is then, also one without a tar; what is no more). The changed
    indexes are published in `new` and added to `files`."""
    entries: list[SetEntry] = []
    indexes: list[Index] = []
    removed: list[str] = []
    for number, listed in enumerate(opened.sets):
        mine = {tar: done.shard for (place, tar), done in written.items() if place == number}
        if not mine:
            entries.append(listed.entry)
            indexes.append(listed.index)
            continue
        left: list[Shard | TextShard | None] = [*listed.index.shardlist]
        for tar, shard in mine.items():
            left[tar] = shard
        removed += [f"{listed.path(tar)}{end}" for tar in mine if left[tar] is None for end in ("", ".idx")]
        shardlist = [shard for shard in left if shard is not None]
        update = {"shardlist": shardlist, **type(listed.index).totals(shardlist)}
        indexes.append(listed.index.model_copy(update=update))
        if shardlist:
            file, entry = publish_index(new, listed.entry.index, indexes[-1])
            files.append(file)
            entries.append(entry)
        else:
            removed.append(listed.entry.index)
    return entries, indexes, removed


def _manifest(
    shards: Folder, files: list[PublishedFile], removed: list[str], indexes: Sequence[Index], new: Folder
) -> list[PublishedFile]:
    """The stage's manifest for the new set, published, if the set has one. Its key stays: what the stage was to do is
    what it was."""
    try:
        manifest = StageManifest.model_validate_json((shards / MANIFEST).read())
    except (FileNotFoundError, ValidationError):
        return []
    changed = {file.path: file for file in files}
    kept = [changed.pop(f.path, f) for f in manifest.files if f.path not in removed]
    update = {"files": [*kept, *changed.values()], "counters": manifest.counters | counted(indexes)}
    return [publish_bytes(new, MANIFEST, manifest.model_copy(update=update).to_json())]


def decide(shards: Folder, plan: Plan) -> None:
    """The line of the log: from now on the documents are taken down."""
    (shards / TAKEDOWNS).write((staging(shards, plan.request) / "new" / TAKEDOWNS).read())


def finish(shards: Folder, plan: Plan, signer: Signer | None, log: Callable[[str], None]) -> None:
    """Put in place what lies ready, lists after what they name, then the manifest, then the run's record; any part of it may be
    done. `signer`: of the record, if it is to be signed."""
    folder = staging(shards, plan.request)
    shards.delete([MANIFEST])  # no reader may take the set for finished
    for file in plan.files:
        if file.path != MANIFEST:
            _place(folder / "new" / file.path, shards / file.path)
    shards.delete(plan.removed)
    for file in plan.files:
        if file.path == MANIFEST:
            _place(folder / "new" / MANIFEST, shards / MANIFEST)
    update_record(shards, signer, log)
    shards.sweep()  # a link that a copy makes of what is there already stays under its temporary name
    discard(shards, plan.request)


def discard(shards: Folder, request: str) -> None:
    """Delete a request's folder, the plan first: without it nothing is under way."""
    folder = staging(shards, request)
    folder.delete([PLAN])
    folder.delete()
    (shards / STAGING).delete([])  # the empty folder, where a store has such


def sweep(shards: Folder, request: str) -> None:
    """Delete what other requests left, of which none may be under way."""
    found = {entry.path.split("/")[0] for entry in (shards / STAGING).list()}
    for other in sorted(found - {request}):
        discard(shards, other)


def _place(source: Folder, target: Folder) -> None:
    """A copy by the store itself, which readers see whole or not at all; through here where it cannot."""
    with contextlib.suppress(Exception):
        source.store.copy(source.path, target.path, overwrite=True)
        return
    with source.open() as stream, target.create() as out:
        while data := stream.read(4 << 20):
            out.write(data)


def _log(shards: Folder) -> bytes:
    try:
        return (shards / TAKEDOWNS).read()
    except FileNotFoundError:
        return b""
