"""Rows of a task's data: JSONL, JSON, CSV, TSV or lines of text, each also compressed, or Parquet. What is no row is counted by its
reason."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum, sha256
from corpusmill.common.jsonl import not_there
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tasks import TaskData
from corpusmill.train.evaluate.tasks.read import Found

KINDS = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet")
BATCH = 1024  # rows of a Parquet file that are read at once
FIELD = 1 << 24  # characters of a field of a CSV file
csv.field_size_limit(FIELD)


class Row(NamedTuple):
    """`number`: its place in the data, damaged rows counted."""

    number: int
    columns: dict[str, Any]


class Rows(NamedTuple):
    """The rows of some files, the reasons why others are none, and a hash of the files' bytes."""

    rows: list[Row]
    skipped: Counter[str]
    hash: str


class Files(NamedTuple):
    """URLs of a task's rows, and of its examples."""

    rows: list[str]
    examples: list[str]


def read_rows(files: Sequence[str]) -> Rows:
    """All rows of the files, in order. Raises `UserError` for a file that is missing or of another kind, `WorkError` for one that
    is damaged as a whole."""
    rows, skipped, hashes, number = list[Row](), Counter[str](), list[str](), 0
    for file in files:
        data = read_file(Folder(file), file)
        hashes.append(checksum(data))
        for found in parsed(data, file):
            if isinstance(found, str):
                skipped[found] += 1
            else:
                rows.append(Row(number, found))
            number += 1
    return Rows(rows, skipped, hash_json(hashes))


def read_file(file: Folder, where: str) -> bytes:
    """The bytes of a file of rows; those that `corpusmill task-data` wrote are checked."""
    try:
        data = file.read()
    except FileNotFoundError:
        raise not_there(file, where) from None
    record = file.parent / f"{file.name.removesuffix('.jsonl')}.source.json"
    if file.name.endswith(".jsonl") and record.exists():
        known = TaskData.from_json(record.read(), record)
        if known.sha256 != sha256(data):
            raise UserError(
                f"{where}: is not what was fetched ({record.name} has another checksum); fetch it again, or"
                f" delete {record.name} if the change is yours"
            )
    return data


def parsed(data: bytes, where: str) -> Iterator[dict[str, Any] | str]:
    """The rows of a file's bytes, by its name; in place of one that is damaged, why."""
    name = where.lower()
    if name.endswith(".gz"):
        name = name.removesuffix(".gz")
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise WorkError(f"{where}: damaged gzip: {error}") from None
    kind = Path(name).suffix
    if kind == ".jsonl":
        yield from json_lines(data)
    elif kind == ".json":
        yield from json_list(data, where)
    elif kind == ".parquet":
        yield from parquet_rows(io.BytesIO(data), where)
    elif kind == ".txt":
        yield from ({"text": line} for line in text_of(data, where).splitlines() if line.strip())
    elif kind in (".csv", ".tsv"):
        yield from table(text_of(data, where), "," if kind == ".csv" else "\t", where)
    else:
        raise UserError(f"{where}: unknown kind of file; allowed: {', '.join(KINDS)}, each also .gz")


def parquet_rows(stream: BinaryIO, where: str) -> Iterator[dict[str, Any]]:
    """The rows of an open Parquet file. Raises `WorkError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(stream).iter_batches(BATCH):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkError(f"{where}: not a Parquet file that can be read: {reason}") from None


def json_lines(data: bytes) -> Iterator[dict[str, Any] | str]:
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip():
            yield json_row(line)


def json_row(line: bytes) -> dict[str, Any] | str:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "not JSON"
    return value if isinstance(value, dict) else "not a JSON object"


def json_list(data: bytes, where: str) -> Iterator[dict[str, Any] | str]:
    try:
        values = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error}; JSON lines have the name .jsonl") from None
    if not isinstance(values, list):
        raise UserError(f"{where}: not a list of objects")
    for value in values:
        yield value if isinstance(value, dict) else "not a JSON object"


def text_of(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 at byte {error.start}") from None


def table(text: str, delimiter: str, where: str) -> Iterator[dict[str, Any] | str]:
    """Rows of a table with a heading; those of TSV files have no quotes."""
    stream = io.StringIO(text, newline="")
    lines = (
        csv.reader(stream) if delimiter == "," else csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    try:
        heading = next(lines, None)
        if heading is None:
            return
        for line in lines:
            if not line:
                continue
            if len(line) != len(heading):
                yield "not as many fields as the heading has"
            else:
                yield dict(zip(heading, line, strict=True))
    except csv.Error as error:
        raise UserError(f"{where}:{lines.line_num}: {error}") from None


def files_of(found: Found, given: dict[str, list[str]], folders: Sequence[str]) -> Files:
    """Where a task's rows are: as given for its name (`NAME`, and `NAME.fewshot` for its examples), as its YAML says, or in one
    of the folders. Raises `UserError` if they are nowhere."""
    task = found.task
    own = [str(found.folder / file) if found.folder and "://" not in file else file for file in task.data]
    rows = given.get(task.task) or own or in_folders(task.task, folders)
    if not rows:
        fetch = f", or fetch them: corpusmill task-data {task.task} --out DIR, --data DIR" if task.hub else ""
        raise UserError(f"{task.task}: where are its rows? give them: --data {task.task}=FILE{fetch}")
    wanted = task.fewshot_config
    own = [str(found.folder / file) if found.folder and "://" not in file else file for file in wanted.data]
    name = f"{task.task}.fewshot"
    examples = given.get(name) or own or in_folders(name, folders)
    if task.num_fewshot and wanted.hub and not examples and not wanted.samples:
        raise UserError(
            f"{task.task}: where are its examples? give them: --data {name}=FILE, or fetch them with"
            f" corpusmill task-data {task.task} --out DIR, or leave them out: --num-fewshot 0"
        )
    return Files(rows, examples)


def in_folders(name: str, folders: Sequence[str]) -> list[str]:
    """The file of this name in the first folder that has one."""
    for folder in folders:
        for ending in (*KINDS, *(f"{kind}.gz" for kind in KINDS)):
            if (Folder(folder) / f"{name}{ending}").exists():
                return [(Folder(folder) / f"{name}{ending}").url]
    return []
