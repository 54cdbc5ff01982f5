"""A file that names documents: which these are, in any table that has their ids."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder

MOST = 1_000_000  # documents in one file
COLUMNS = ("doc_id", "source_id", "locator", "url")
FIELDS = (*COLUMNS, "id")  # of a record that names a document, the first that is there and not empty


def read_names(file: Folder) -> tuple[str, ...]:
    """The documents that a file names: a `doc_id` in hex, the input's own id, a locator or a URL each.

    One a line, `#` before a remark; in `.jsonl` a string or an object a line; in `.csv` and `.tsv` a row under a
    header; of objects and rows the first of `doc_id`, `source_id`, `locator`, `url`, `id`. Raises `UserError` for a
    missing file, one that names nothing, and a record that names nothing.
    """
    try:
        text = file.read().decode("utf-8-sig", "replace")
    except FileNotFoundError:
        raise UserError(
            f"{file}: not found; give a file with a doc_id, an own id or a URL on each line"
        ) from None
    kind = file.name.rpartition(".")[2].lower()
    if kind in ("jsonl", "ndjson"):
        names = _objects(text, file)
    elif kind in ("csv", "tsv"):
        names = _rows(text, file, "\t" if kind == "tsv" else ",")
    else:
        names = (line.strip() for line in text.split("\n") if not line.startswith("#"))
    found = tuple(dict.fromkeys(name for name in names if name))
    if not found or len(found) > MOST:
        raise UserError(f"{file}: {len(found)} documents named; 1 to {MOST:,} can be taken down at once")
    return found


def _objects(text: str, file: Folder) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise UserError(
                f"{file}: line {number}: not JSON; each line must be a string or an object"
            ) from None
        name = _first(value) if isinstance(value, dict) else _name(value)
        if not name:
            raise UserError(f"{file}: line {number}: names no document; one of {', '.join(FIELDS)} is wanted")
        yield name


def _rows(text: str, file: Folder, delimiter: str) -> Iterator[str]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    if not set(reader.fieldnames or ()) & set(FIELDS):
        raise UserError(f"{file}: line 1: no header with one of {', '.join(FIELDS)}")
    try:
        for row in reader:
            name = _first(row)
            if not name:
                raise UserError(f"{file}: line {reader.line_num}: names no document")
            yield name
    except csv.Error as error:
        raise UserError(f"{file}: line {reader.line_num}: {error}") from None


def _first(record: dict[str, object]) -> str:
    return next(filter(None, (_name(record.get(field)) for field in FIELDS)), "")


def _name(value: object) -> str:
    """A string or a number as a name; empty if it is neither."""
    named = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).strip() if named else ""


def matches(table: pa.Table, named: Sequence[str]) -> pa.Array:
    """Which rows of a table with `COLUMNS` are named."""
    texts = pa.array(named, pa.string())
    identities = [bytes.fromhex(name) for name in named if is_id(name)]
    match = pc.is_in(table["doc_id"], value_set=pa.array(identities, pa.binary(16)))
    for column in COLUMNS[1:]:
        match = pc.or_(match, pc.is_in(table[column], value_set=texts))
    return match


def is_id(name: str) -> bool:
    """Whether a name is a `doc_id` in hex."""
    return len(name) == 32 and all(character in "0123456789abcdef" for character in name)
