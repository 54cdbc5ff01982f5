"""All of a shard set for one tool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, get_args

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.shard.export.sidecars import dali, webshart
from corpusmill.pipeline.shard.export.tokens import datatrove, megatron
from corpusmill.pipeline.shard.read import open_set
from corpusmill.schemas.shards import Shard, ShardIndex, TextShard

Target = Literal["megatron", "datatrove", "dali", "webshart"]

_TOKENS: dict[str, Callable[[Folder, ShardIndex, Folder], list[str]]] = {
    "megatron": megatron,
    "datatrove": datatrove,
}
_SIDECARS: dict[str, Callable[[Folder, Shard | TextShard, Folder], str]] = {
    "dali": dali,
    "webshart": webshart,
}


class _Task(NamedTuple):
    """A (source, split) to copy, or a tar to index; `place` is the folder of its index."""

    place: str
    whole: ShardIndex | None
    shard: Shard | TextShard | None


def export(shards: Folder, out: Folder, to: str, scheduler: Scheduler) -> list[str]:
    """Write the shard set in `shards`, or of the run there, for the tool `to` below `out`; the paths of the files, sorted.

    Megatron-LM: `<source>-<split>.bin` and `.idx`. datatrove: `<source>-<split>/*.ds`. DALI and webshart: an index for
    every tar, in folders as those of the shards, so that `out` may be the folder of the shards itself.
    Raises `UserError` for another tool, no shards there, shards without what the tool reads, or token files in the folder
    of the shards: `run` owns it, and deletes there what it did not write.
    """
    if to not in get_args(Target):
        hint = nearest(to, get_args(Target))
        raise UserError(f"--to: '{to}': allowed: {', '.join(get_args(Target))}{hint}")
    tasks: list[_Task] = []
    opened = open_set(shards)
    shards = opened.folder
    if to in _TOKENS and out.within(shards):
        raise UserError(
            f"{out}: {to} does not go into the folder of the shards, {shards}; only {', '.join(_SIDECARS)} may; give another OUT"
        )
    for listed in opened.sets:
        if to in _SIDECARS:
            tasks += [_Task(listed.place, None, shard) for shard in listed.index.shardlist]
        elif isinstance(listed.index, ShardIndex):
            tasks.append(_Task(listed.place, listed.index, None))
    if to in _TOKENS and not tasks:
        raise UserError(
            f"{shards}: no token shards there, only text; {to} reads tokens: set shard.format: tokens or both"
        )
    made = scheduler.map(partial(_one, shards, out, to), tasks, f"export to {to}")
    files = sorted(path for paths in made for path in paths)
    out.sweep(files)  # what an interrupted export had begun of them
    return files


def _one(shards: Folder, out: Folder, to: str, task: _Task) -> list[str]:
    if task.whole is not None:
        return _TOKENS[to](shards / task.place, task.whole, out)
    assert task.shard is not None
    return [f"{task.place}/{_SIDECARS[to](shards / task.place, task.shard, out / task.place)}"]
