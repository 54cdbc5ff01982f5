"""A takedown's new set: prepared beside the old one, decided by one line of the log, then put in place.

Killed before the line, the set is the old one; after it, it is in between, `verify` says so and readers stop at a
checksum, and the same command (or any other takedown) puts the rest in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pipeline.publish import publish_bytes
from pipeline.shard.takedown.find import Finds, Listed, Opened
from pipeline.shard.takedown.log import PLAN, STAGING
from pipeline.shard.takedown.rewrite import Rewrite, Rewritten, rewrite
from pipeline.stage import Scheduler
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import MANIFEST, PublishedFile, StageManifest, Strict
from schemas.shards import INDEX, TAKEDOWNS, Shard, ShardIndex, ShardSetEntry, Takedown, TextShard
from schemas.storage import Folder


class Plan(Strict):
    """What lies ready: `files` (paths in the set) replace those there, in this order; `removed` go. `before`, `after`:
    checksums of the set's list, by which a plan that something else has overtaken is known. `result`: what is told."""

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
    gets `shards` (tars written anew), `emptied` (tars that are no more), `tokens` (that went)."""
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
    sets, removed = _lists(opened, written, new, files)
    tokens = sum(e.ntokens for e in opened.top.sets) - sum(
        e.ntokens for e in sets if isinstance(e, ShardSetEntry)
    )
    result["shards"] = [task.path for task in tasks]
    result["emptied"] = [path for path in removed if path.endswith(".tar")]
    result["tokens"] = tokens
    entry = Takedown(
        request=request.key, time=request.time, doc_ids=sorted(i.hex() for i in request.doc_ids),
        shards=result["shards"], tokens=tokens,
    )  # fmt: skip
    log = publish_bytes(new, TAKEDOWNS, _log(shards) + entry.model_dump_json().encode() + b"\n")
    token_sets = [e for e in sets if isinstance(e, ShardSetEntry)]
    text_sets = [e for e in sets if not isinstance(e, ShardSetEntry)]
    top = opened.top.model_copy(update={"sets": token_sets, "texts": text_sets})
    files += [log, publish_bytes(new, INDEX, _json(top))]
    manifest = _manifest(shards, files, removed, opened, sets, new)
    plan = Plan(
        request=request.key, names=request.names, before=checksum(opened.data), after=files[-1].xxh3,
        files=[*files, *manifest], removed=removed, result=result,
    )  # fmt: skip
    (folder / PLAN).write(_json(plan))
    return plan


def _task(
    opened: Opened, place: tuple[int, int], request: Request, doc_ids: Iterable[bytes], new: Folder
) -> Rewrite:
    listed = opened.sets[place[0]]
    shard = listed.index.shardlist[place[1]]
    index = (
        listed.index.model_copy(update={"shardlist": []}) if isinstance(listed.index, ShardIndex) else None
    )
    path = f"{listed.place}/{shard.url}".lstrip("/")
    return Rewrite(request.key, opened.folder / listed.place, index, shard, frozenset(doc_ids), new, path)


def _lists(
    opened: Opened, written: dict[tuple[int, int], Rewritten], new: Folder, files: list[PublishedFile]
) -> tuple[list[Any], list[str]]:
    """(the lines of the new set, what is no more); the new lists are published in `new` and added to `files`."""
    entries: list[Any] = []
    removed: list[str] = []
    for number, listed in enumerate(opened.sets):
        mine = {tar: done for (place, tar), done in written.items() if place == number}
        if not mine:
            entries.append(listed.entry)
            continue
        shardlist: list[Any] = []
        shards: list[Shard | TextShard] = [*listed.index.shardlist]
        for tar, shard in enumerate(shards):
            left = mine[tar].shard if tar in mine else shard
            if left is None:
                path = f"{listed.place}/{shard.url}".lstrip("/")
                removed += [path, f"{path}.idx"]
            else:
                shardlist.append(left)
        if not shardlist:
            removed.append(listed.entry.index)
            continue
        entries.append(_list(listed, shardlist, new, files))
    return entries, removed


def _list(listed: Listed, shardlist: Sequence[Any], new: Folder, files: list[PublishedFile]) -> Any:
    """The new list of a (source, split), published; its line in the set."""
    names = ["ndocs", "text_bytes", *(["ntokens"] if isinstance(shardlist[0], Shard) else [])]
    totals = {name: sum(getattr(shard, name) for shard in shardlist) for name in names}
    index = listed.index.model_copy(update={**totals, "shardlist": list(shardlist)})
    file = publish_bytes(new, listed.entry.index, _json(index), rows=index.ndocs)
    files.append(file)
    return listed.entry.model_copy(update={**totals, "index_xxh3": file.xxh3})


def _manifest(
    shards: Folder,
    files: list[PublishedFile],
    removed: list[str],
    opened: Opened,
    sets: Sequence[Any],
    new: Folder,
) -> list[PublishedFile]:
    """The stage's manifest for the new set, published, if the set has one. Its key stays: what the stage was to do is
    what it was."""
    try:
        manifest = StageManifest.model_validate_json((shards / MANIFEST).read())
    except (FileNotFoundError, ValidationError):
        return []
    changed = {file.path: file for file in files}
    kept = [changed.pop(f.path, f) for f in manifest.files if f.path not in removed]
    counters = dict(manifest.counters)
    for name, number in _counters(sets, new, opened).items():
        if name in counters:
            counters[name] = number
    update = {"files": [*kept, *changed.values()], "counters": counters}
    return [publish_bytes(new, MANIFEST, _json(manifest.model_copy(update=update)))]


def _counters(sets: Sequence[Any], new: Folder, opened: Opened) -> dict[str, int]:
    """What the stage counts, of the new set."""
    from pipeline.shard.read import read_index, read_texts

    counted = {"shards": 0, "blocks": 0, "tokens": 0, "documents": 0}
    for entry in opened.top.sets:  # a set that is no more
        counted[f"source/{entry.source}/{entry.split}_tokens"] = 0
        counted[f"source/{entry.source}/{entry.split}_documents"] = 0
    text_documents = text_shards = 0
    old = {listed.entry.index: listed.index for listed in opened.sets}
    for entry in sets:
        is_tokens = isinstance(entry, ShardSetEntry)
        try:
            index: Any = (read_index if is_tokens else read_texts)(new / entry.index)
        except FileNotFoundError:
            index = old[entry.index]
        if not is_tokens:
            text_documents, text_shards = text_documents + entry.ndocs, text_shards + len(index.shardlist)
            continue
        counted["shards"] += len(index.shardlist)
        counted["blocks"] += sum(shard.nsamples for shard in index.shardlist)
        counted["tokens"] += entry.ntokens
        counted["documents"] += entry.ndocs
        counted[f"source/{entry.source}/{entry.split}_tokens"] = entry.ntokens
        counted[f"source/{entry.source}/{entry.split}_documents"] = entry.ndocs
    return counted | {"text_documents": text_documents, "text_shards": text_shards}


def decide(shards: Folder, plan: Plan) -> None:
    """The line of the log: from now on the documents are taken down."""
    (shards / TAKEDOWNS).write((staging(shards, plan.request) / "new" / TAKEDOWNS).read())


def finish(shards: Folder, plan: Plan) -> None:
    """Put in place what lies ready, lists after what they name, the manifest last; any part of it may be done."""
    folder = staging(shards, plan.request)
    shards.delete(
        [MANIFEST] if (shards / MANIFEST).exists() else []
    )  # no reader may take the set for finished
    for file in plan.files:
        if file.path != MANIFEST:
            _place(folder / "new" / file.path, shards / file.path)
    shards.delete([path for path in plan.removed if (shards / path).exists()])
    for file in plan.files:
        if file.path == MANIFEST:
            _place(folder / "new" / MANIFEST, shards / MANIFEST)
    shards.sweep()  # a link that a copy makes of what is there already stays under its temporary name
    discard(shards, plan.request)


def discard(shards: Folder, request: str) -> None:
    """Away with a request's folder, the plan first: without it nothing is under way."""
    folder = staging(shards, request)
    if (folder / PLAN).exists():
        folder.delete([PLAN])
    folder.delete()
    (shards / STAGING).delete([])  # the empty folder, where a store has such


def sweep(shards: Folder, request: str) -> None:
    """Away with what other requests left, of which none may be under way."""
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


def _json(model: Strict) -> bytes:
    return (model.model_dump_json(indent=1) + "\n").encode()
