"""`corpusmill task-data`: the rows of a task from the Hugging Face Hub, as JSON lines beside a record of where they come from."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.hub import SCHEME, pin
from corpusmill.common.ids import sha256
from corpusmill.common.storage import Entry, Folder
from corpusmill.schemas.tasks import Hub, Task, TaskData
from corpusmill.train.evaluate.tasks.data import parquet_rows, parsed

CONFIG = "hub_config"  # column that is added where a task reads several configurations


class Part(NamedTuple):
    """A file to write, and where its rows are."""

    name: str
    hub: Hub


def fetch(task: Task, out: Folder) -> list[TaskData]:
    """Write the rows of a task, and of its examples, to `out`; what `evaluate --data OUT` finds.

    Raises `UserError` for a task without a data set, a data set that is not there or may not be read, and `WorkError` for a
    network that fails and for damaged files.
    """
    if task.hub is None:
        raise UserError(f"{task.task}: names no data set (hub); give its rows with --data {task.task}=FILE")
    parts = [Part(task.task, task.hub)]
    if task.fewshot_config.hub:
        parts.append(Part(f"{task.task}.fewshot", task.fewshot_config.hub))
    return [fetch_part(task, part, out) for part in parts]


def fetch_part(task: Task, part: Part, out: Folder) -> TaskData:
    source = Folder(pin(f"{SCHEME}{part.hub.repo}@{quote(part.hub.revision, safe='')}"))
    entries = chosen(part.hub, source)
    pieces, rows = list[bytes](), 0
    for entry in entries:
        for row in rows_of(source, entry):
            if isinstance(row, str):
                raise WorkError(f"{source / entry.path}: a row is {row}")
            if "*" in part.hub.config:
                row = {**row, CONFIG: entry.path.partition("/")[0]}
            pieces.append(orjson.dumps(row, default=plain, option=orjson.OPT_APPEND_NEWLINE))
            rows += 1
    data = b"".join(pieces)
    record = TaskData(
        task=task.task, file=f"{part.name}.jsonl", source=source.url, files=[entry.path for entry in entries],
        rows=rows, bytes=len(data), sha256=sha256(data), licence=task.licence, citation=task.citation,
    )  # fmt: skip
    (out / record.file).write(data)
    (out / f"{part.name}.source.json").write(record.to_json())
    return record


def chosen(hub: Hub, source: Folder) -> list[Entry]:
    """The files of a data set to read, in order. Raises `UserError` if there are none."""
    pattern = hub.files or f"{hub.config}/{hub.split}/*.parquet"
    steps = pattern.split("/")

    def fits(path: str) -> bool:
        names = path.split("/")
        return len(names) == len(steps) and all(map(fnmatchcase, names, steps))

    every = list(source.list())
    found = [entry for entry in every if fits(entry.path)]
    if not found:
        there = sorted({entry.path.rpartition("/")[0] or entry.path for entry in every})
        more = ", ..." if len(there) > 8 else ""
        raise UserError(f"{source}: has no {pattern}; there are: {', '.join(there[:8]) or 'no files'}{more}")
    return found


def rows_of(source: Folder, entry: Entry) -> Iterator[dict[str, Any] | str]:
    """The rows of a file; in place of one that is damaged, why."""
    file = source / entry.path
    if not entry.path.endswith(".parquet"):
        yield from parsed(file.read(), entry.path)
        return
    with file.open(size=entry.size) as stream:
        yield from parquet_rows(stream, str(file))


def plain(value: Any) -> Any:
    """What JSON has no type for: bytes as base64, others as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
