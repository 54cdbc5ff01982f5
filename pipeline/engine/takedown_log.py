"""`takedowns.jsonl` in a folder of shards: which documents went, by which request; and whether one is under way.

The line of a request is what decides it. Before it, everything lies ready below `takedown/<request>/` and the shards
are the old ones; after it, what lies there is put in place. So a folder `takedown/<request>/` of a request that has its
line means that the shards are half replaced, until the same command, run again, has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import TAKEDOWNS, Takedown

if TYPE_CHECKING:
    import pyarrow as pa

    from corpusmill.pipeline.engine.stage import Partition, Scheduler

STAGING = "takedown"
PLAN = "plan.json"  # of a request: written when all else of it lies ready


class Log(NamedTuple):
    """The requests, and the ids of all of them, sorted."""

    entries: list[Takedown]
    taken: list[bytes]


def read_log(shards: Folder, read: Callable[[Folder], bytes] = Folder.read) -> Log:
    """What was ever taken down there, read by `read`; raises `WorkError` naming the line if it cannot be read."""
    file = shards / TAKEDOWNS
    try:
        lines = read(file).splitlines()
    except FileNotFoundError:
        return Log([], [])
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entry = Takedown.model_validate_json(line)
            ids = [bytes.fromhex(doc_id) for doc_id in entry.doc_ids]
        except (ValidationError, ValueError):
            raise WorkError(f"{file}: line {number}: not a takedown; restore the file") from None
        if any(len(doc_id) != 16 for doc_id in ids):
            raise WorkError(f"{file}: line {number}: an id that is not 32 hex digits; restore the file")
        entries.append(entry)
    return Log(entries, sorted({bytes.fromhex(doc_id) for entry in entries for doc_id in entry.doc_ids}))


def staged(shards: Folder) -> list[str]:
    """Requests that lie ready, decided or not."""
    paths = [entry.path.split("/") for entry in (shards / STAGING).list()]
    return sorted(parts[0] for parts in paths if parts[1:] == [PLAN])


def under_way(shards: Folder, read: Callable[[Folder], bytes] = Folder.read) -> str | None:
    """The folder of a request that was decided and is not finished: the shards are in between. The log is read by `read`."""
    ready = staged(shards)
    if not ready:
        return None
    decided = {entry.request for entry in read_log(shards, read).entries}
    return next((f"{STAGING}/{request}" for request in ready if request in decided), None)


def left(shards: Folder, docs: pa.Table) -> pa.Table:
    """The documents of a table (column `doc_id`) that were not taken down from these shards."""
    import pyarrow as pa
    import pyarrow.compute as pc

    taken = read_log(shards).taken
    if not taken:
        return docs
    return docs.filter(pc.invert(pc.is_in(docs["doc_id"], value_set=pa.array(taken, pa.binary(16)))))


def taken_of(shards: Folder, partitions: Sequence[Partition], scheduler: Scheduler) -> list[int]:
    """How many documents of each partition `left` leaves out; nothing is read where no takedown ever was."""
    if not read_log(shards).taken:
        return []
    return scheduler.map(partial(_count, shards), partitions, "shard: taken down")


def _count(shards: Folder, partition: Partition) -> int:
    docs = partition.read(["doc_id"])
    return len(docs) - len(left(shards, docs))


def publish_log(shards: Folder) -> list[PublishedFile]:
    """The log as a file of the stage, if there is one: a changed log makes the stage run again."""
    from corpusmill.pipeline.engine.publish import described

    try:
        data = (shards / TAKEDOWNS).read()
    except FileNotFoundError:
        return []
    return [described(TAKEDOWNS, data)]
