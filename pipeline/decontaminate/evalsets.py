"""Evaluation files and their items: which files there are, what records they hold in the formats in which such sets are
distributed, and which fields of a record are the question, the answers and the rest of one item.
"""

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

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.schemas.evaluation import question_hash

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
FORMATS = (*TABLES, ".txt", ".md")
COMPRESSED = {".gz", ".zst", ".bz2", ".xz"}
_BLANK_LINE = re.compile(r"\n[ \t\r\f\v]*\n")
# Usual names of each role, the first that a file has is taken. Compared without case.
NAMES: dict[str, tuple[str, ...]] = {
    "question": (
        "question", "query", "prompt", "ctx", "problem", "instruction", "input", "goal", "question_stem", "premise",
    ),
    "answer": (
        "answer", "answers", "best_answer", "correct_answer", "target", "solution", "canonical_solution", "output",
        "completion", "continuation", "response",
    ),
    "choices": ("choices", "endings", "options", "mc1_targets"),
    "correct": ("is_correct", "label", "answerkey", "answer_key", "answer_index", "answer_idx", "gold", "correct"),
    "passage": ("passage", "context", "article", "story", "support", "document"),
    "text": ("text", "content", "sentence", "sentence_good"),
    "set": ("eval_key",),
    "id": (
        "id", "_id", "eval_instance_index", "question_id", "qid", "task_id", "example_id", "ind", "idx", "pairid",
    ),
}  # fmt: skip
PARTS = ("question", "answer", "choices", "passage", "text")
LETTERS = "ABCDEFGHIJ"


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


class Item(NamedTuple):
    """One record, its texts by part."""

    set: str
    id: str
    file: int  # its place in the list of files
    record: int  # counted from 1
    question: str
    passage: str
    text: str
    answers: tuple[str, ...]  # right ones
    others: tuple[str, ...]  # wrong ones, or all where the file does not mark the right one
    choices: tuple[str, ...]  # those that are offered, in the file's order
    question_hash: str  # what was asked, in an item that `corpusmill evaluate` wrote


def roles_of(source: EvalFile, names: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """Role -> the field that plays it. Raises `UserError` if a field that was asked for, or any text, is not there."""
    known = {name.lower(): name for name in reversed(names)}
    roles = {}
    for role, usual in NAMES.items():
        field = next((known[name] for name in usual if name in known), None)
        if field is not None:
            roles[role] = field
    for entry in fields:
        role, _, field = entry.partition("=")
        if field not in names:
            raise UserError(
                f"{source.file.url}: no field '{field}' for {role}{nearest(field, names)} (it has:"
                f" {', '.join(sorted(names))})"
            )
        roles[role] = field
    if not any(role in PARTS for role in roles):
        raise UserError(
            f"{source.file.url}: none of its fields ({', '.join(sorted(names)) or 'none'}) is known as a question,"
            " answer, passage or text; name one, such as --fields question=FIELD"
        )
    return roles


def read_items(sources: Sequence[EvalFile], fields: Sequence[str]) -> list[Item]:
    """The items of all files, in order. Raises `UserError` for a file that cannot be read or has no known field."""
    found: list[Item] = []
    for place, source in enumerate(sources):
        rows = records(source)
        names = list(dict.fromkeys(name for row in rows for name in row))
        roles = roles_of(source, names, fields)
        before = len(found)
        found += [_item(row, roles, source.stem, place, record) for record, row in enumerate(rows, 1)]
        if not any(item.question or item.passage or item.text or item.answers for item in found[before:]):
            taken = ", ".join(f"{role}={field}" for role, field in roles.items())
            raise UserError(
                f"{source.file.url}: its fields hold no text ({taken}); name those that do with --fields"
            )
    return found


def _item(row: dict[str, Any], roles: dict[str, str], stem: str, place: int, record: int) -> Item:
    def value(role: str) -> Any:
        return row.get(roles[role]) if role in roles else None

    right, wrong = _answers(value("answer"), value("choices"), value("correct"))
    name, own = value("set"), value("id")
    return Item(
        set=str(name) if name not in (None, "") else stem,
        id=str(own) if own is not None else str(record),
        file=place, record=record,
        question=" ".join(_texts(value("question"))),
        passage="\n".join(_texts(value("passage"))),
        text="\n".join(_texts(value("text"))),
        answers=right, others=wrong, choices=tuple(_texts(value("choices"))), question_hash=question_hash(row) if "metrics" in row else "",
    )  # fmt: skip


def _texts(value: Any) -> list[str]:
    """The texts in a field: a text, a number, a list, or an object with `text` or `value` (SQuAD, TriviaQA)."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [str(value)]
    if isinstance(value, list | tuple):
        return [text for entry in value for text in _texts(entry)]
    if isinstance(value, dict):
        lowered = {str(name).lower(): entry for name, entry in value.items()}
        for name in ("text", "value", "choices", "answer", "spans"):
            if name in lowered:
                return _texts(lowered[name])
    return []


def _answers(answer: Any, choices: Any, correct: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(right ones, others). A list of `answer` names choices by their texts; a number, a letter or a choice's own label among `answer` or
    `correct` picks one; `correct: false` makes the record's answer a wrong one."""
    given = tuple(dict.fromkeys(_texts(answer)))
    offered = _texts(choices)
    if not offered:
        return ((), given) if correct in (False, "false", "False") else (given, ())
    if isinstance(answer, list) and given and all(text in offered for text in given):
        return given, tuple(text for text in offered if text not in given)
    labels = [str(label) for label in choices.get("label", [])] if isinstance(choices, dict) else []
    for key in (correct, answer):
        place = _place(key, labels, offered)
        if place is not None:
            return (offered[place],), tuple(t for i, t in enumerate(offered) if i != place)
    if given and not isinstance(answer, bool):
        return given, tuple(text for text in offered if text not in given)
    return (), tuple(offered)


def _place(key: Any, labels: list[str], offered: list[str]) -> int | None:
    """The choice that a key names, counted from 0: by its label, its text, its letter or its number."""
    if isinstance(key, bool) or key is None or isinstance(key, list | dict):
        return None
    text, count = str(key).strip(), len(offered)
    if text in labels and len(labels) == count:
        return labels.index(text)
    if text in offered:
        return offered.index(text)
    if len(text) == 1 and text.upper() in LETTERS[:count]:
        return LETTERS.index(text.upper())
    if text.isascii() and text.isdigit() and int(text) < count:
        return int(text)
    return None
