"""Evaluation files: which there are, and what records they hold in the formats in which such sets are distributed."""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import orjson

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import parse_table

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
FORMATS = (*TABLES, ".txt", ".md")
COMPRESSED = {".gz", ".zst", ".bz2", ".xz"}
_BLANK_LINE = re.compile(r"\n[ \t\r\f\v]*\n")


class EvalFile(NamedTuple):
    """One file, with the checksum of its bytes as stored."""

    file: Folder
    xxh3: str

    @property
    def kind(self) -> str:
        """The suffix of its format, lower case, without that of a compression."""
        return kind_of(self.file.name)

    @property
    def stem(self) -> str:
        """Its name without suffixes: the name of the set, unless a field gives one."""
        name = self.file.name
        for suffix in reversed(PurePosixPath(name).suffixes[-2:]):
            if suffix.lower() in COMPRESSED or suffix.lower() in FORMATS:
                name = name.removesuffix(suffix)
        return name


def kind_of(name: str) -> str:
    """The suffix of a file's name below that of its compression."""
    path = PurePosixPath(name.lower())
    return PurePosixPath(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def find_files(against: Sequence[str]) -> list[EvalFile]:
    """The files that paths, folders (their tables, at any depth), globs and URLs name, sorted by URL, each read once
    for its checksum.

    Raises `UserError` where nothing is there, and for a file whose kind is not known.
    """
    found: dict[str, Folder] = {}
    for place in against:
        files = list(_named(place))
        if not files:
            raise UserError(
                f"decontaminate.against: {place}: no such file, and no folder with evaluation files"
                f" ({', '.join(TABLES)}, also compressed; texts by name)"
            )
        found |= {file.url: file for file in files}
    return [EvalFile(found[url], checksum(_bytes(found[url]))) for url in sorted(found)]


def _named(place: str) -> Iterator[Folder]:
    folder = Folder(place)
    if folder.local and glob.has_magic(place) and not folder.exists():
        for name in sorted(glob.glob(place, recursive=True)):  # noqa: PTH207 (absolute and relative alike)
            yield from _named(glob.escape(name) if glob.has_magic(name) else name)
        return
    if folder.exists():
        if kind_of(folder.name) not in FORMATS:
            raise UserError(
                f"decontaminate.against: {place}: unknown file type; allowed:"
                f" {', '.join(FORMATS)}, also with {', '.join(sorted(COMPRESSED))}"
            )
        yield folder
        return
    # Plain texts of a folder are its README and its licence rather than sets.
    tables = [entry for entry in folder.list() if kind_of(entry.path) in TABLES]
    # A task of which no item was scored has an empty one, beside those of others.
    yield from (folder / entry.path for entry in [one for one in tables if one.size] or tables)


def _bytes(file: Folder) -> bytes:
    try:
        return file.read()
    except FileNotFoundError:
        raise UserError(f"{file}: removed before it could be read") from None


def records(source: EvalFile) -> list[dict[str, Any]]:
    """The records of a file: JSON objects, rows of a table, or `{"text": ...}`.

    A text file is cut at blank lines, or, without any, at each line. Raises `UserError`, one line, for a file that
    cannot be read or holds nothing, with the place of the mistake.
    """
    where = source.file.url
    stored = _bytes(source.file)
    if checksum(stored) != source.xxh3:
        raise UserError(f"{where}: changed while it was read; run again")
    data = _decompressed(where, stored)
    if source.kind == ".parquet":
        rows = _parquet(where, data)
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not UTF-8 at byte {error.start}") from None
        if source.kind in (".jsonl", ".ndjson"):
            rows = _json_lines(where, text)
        elif source.kind == ".json":
            rows = _json(where, text)
        elif source.kind in (".csv", ".tsv"):
            rows = _csv(where, text, "," if source.kind == ".csv" else "\t")
        else:
            pieces = _BLANK_LINE.split(text) if _BLANK_LINE.search(text.strip()) else text.splitlines()
            rows = [{"text": piece.strip()} for piece in pieces if piece.strip()]
    if not rows:
        raise UserError(f"{where}: holds no evaluation items; give a file that does, or leave it out")
    return rows


def _decompressed(where: str, data: bytes) -> bytes:
    unpack = _UNPACK.get(PurePosixPath(where.lower()).suffix)
    try:
        return unpack(data) if unpack is not None else data
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{where}: damaged: {error or type(error).__name__}") from None
    except Exception as error:  # zstandard's own, which is imported only where it is needed
        raise UserError(f"{where}: damaged: {str(error).splitlines()[0]}") from None


def _zstd(data: bytes) -> bytes:
    """All frames; the library's own reader takes an end in the middle of one for the end of the data."""
    import zstandard

    frames = []
    while data:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        frames.append(decoder.decompress(data))
        if not decoder.eof:
            raise EOFError("it ends in the middle of a frame")
        data = decoder.unused_data
    return b"".join(frames)


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress, ".zst": _zstd, ".bz2": bz2.decompress, ".xz": lzma.decompress,
}  # fmt: skip


def _json_lines(where: str, text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(f"{where}:{number}: not JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise UserError(f"{where}:{number}: must be a JSON object, is {type(row).__name__}")
        rows.append(row)
    return rows


def _json(where: str, text: str) -> list[dict[str, Any]]:
    """An array of objects, or an object that holds one (`{"data": [...]}`)."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}:{error.lineno}: not JSON: {error.msg}") from None
    if isinstance(value, dict):
        lists = [entry for entry in value.values() if isinstance(entry, list)]
        value = lists[0] if len(lists) == 1 else [value]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise UserError(f"{where}: must be a JSON array of objects")
    return value


def _csv(where: str, text: str, delimiter: str) -> list[dict[str, Any]]:
    csv.field_size_limit(1 << 30)
    try:
        return [
            {key: value for key, value in row.items() if key}
            for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        ]
    except csv.Error as error:
        raise UserError(f"{where}: not CSV: {error}") from None


def _parquet(where: str, data: bytes) -> list[dict[str, Any]]:
    import pyarrow as pa

    try:
        rows: list[dict[str, Any]] = parse_table(data).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{where}: not Parquet: {str(error).splitlines()[0]}") from None
    return rows
