"""Lists of files (`files_from` of a source): text with a path or URL on each line, or a table with a column of them.

A list on this machine may name files anywhere. One that comes from elsewhere may name only what is elsewhere: http(s), object stores,
the Hub, and files below its own folder; else whoever writes it could have any file of this machine read. What cannot be read (also: a
row without a name, a file that is not there) becomes one quarantined record, or ends the run before any work with
`unreadable_files: stop`.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import without_query
from corpusmill.common.http_files import Unreachable
from corpusmill.common.hub import SCHEME, parse, pin
from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.discover import Files, InputFile, address, file_at, format_of
from corpusmill.pipeline.ingest.lines import lines
from corpusmill.pipeline.ingest.local_files import Found
from corpusmill.pipeline.ingest.raw_file import RawFile
from corpusmill.pipeline.ingest.readers import read_file
from corpusmill.pipeline.ingest.records import Batch, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged, Stream
from corpusmill.schemas.input_options import FileList
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams

KEY: Final = "files_from"
LINE_BYTES = 1 << 16  # of a name
# Where a list may lead besides its own folder and, if it is local, this machine.
ALLOWED = ("http", "https", "s3", "s3a", "gs", "az", "abfs", "abfss", "hf")
_NO_FIELD = "\0"  # no column of a table is called so: all but the files' names is metadata
DROPPED = "metadata_dropped"
DEAD = 3
UNREACHABLE = Found("", 0, "", "its server cannot be reached")


class Row(NamedTuple):
    """What a list has for one file: its number, the name as it stands there, JSON of the other columns, why there is no name."""

    number: str
    name: str
    metadata: str = ""
    problem: str = ""
    counted: tuple[str, ...] = ()


class Named(NamedTuple):
    """A row with the place that it leads to, and the path by which the file is known."""

    row: Row
    file: Folder
    path: str
    problem: str = ""


def find_inputs(
    name: str, source: Source, revisions: MutableMapping[str, str] | None = None, hashes: MutableMapping[str, str] | None = None
) -> list[InputFile]:  # fmt: skip
    """The files of a source: those of its paths, and those that its list names, each once, sorted by path.

    `revisions` receives the commits of data sets of the Hub, `hashes` the xxh3_128 of the list's bytes by its path. Raises
    `UserError` for a path where nothing is, and for a list that is not there or names no file.
    """
    files = Files(name, source)
    files.find(revisions)
    if source.files_from is not None:
        found = list(named(name, source.files_from, revisions, hashes))
        for one, entry in zip(found, _look_up_all(found), strict=True):
            files.add(one.file, entry, KEY, one.row.metadata, one.row.counted)
    return files.sorted()


def named(
    name: str, listing: FileList, revisions: MutableMapping[str, str] | None = None, hashes: MutableMapping[str, str] | None = None
) -> Iterator[Named]:  # fmt: skip
    """What a list of the source `name` names, in its order, none of it looked up. Raises `UserError` as `find_inputs` does."""
    where = f"sources.{name}.{KEY}: {without_query(listing.path)}"
    try:
        place = Folder(pin(listing.path, revisions) if listing.path.startswith(SCHEME) else listing.path)
        found = file_at(place)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if found is None or found.problem:
        raise UserError(
            f"{where}: {(found and found.problem) or 'no such file'}; give a text file with a path or URL on each line, or a table"
            " with file_column"
        )
    if hashes is not None:
        hashes[without_query(listing.path)] = RawFile(place, found.size).digest()
    commits = _Commits(revisions)
    empty = True
    for row in _rows(name, listing, place, found):
        empty = False
        yield _resolved(row, place, commits)
    if empty:
        raise UserError(f"{where}: it names no file; write a path or URL on each line")


def _rows(name: str, listing: FileList, place: Folder, found: Found) -> Iterator[Row]:
    kind = format_of(address(place))
    file = InputFile(name, found.path, place.url, found.size, found.tag, kind)
    if listing.file_column is None:
        yield from _lines(file, place)
        return
    columns = {f"{name}_column": _NO_FIELD for name in ("id", "url", "date")}
    source = Source.model_validate({"paths": [place.url], "text_column": listing.file_column, **columns})
    reading = Reading(file, source, IngestParams())
    dropped = 0
    for event in read_file(reading):
        lost, dropped = reading.counters[DROPPED] - dropped, reading.counters[DROPPED]
        if isinstance(event, Rejected):
            yield Row(event.record, "", problem=f"{event.rule}: {event.detail}")
            continue
        for one in event.table.to_pylist() if isinstance(event, Batch) else [event._asdict()]:
            metadata = one.get("metadata") or ""
            counted = (DROPPED,) if lost and not metadata else ()
            lost -= len(counted)
            yield Row(str(one["record"]), str(one["text"]), metadata, counted=counted)


def _lines(file: InputFile, place: Folder) -> Iterator[Row]:
    """The lines of a text that are neither empty nor comments."""
    raw = RawFile(place, file.size)
    try:
        for number, (_, line, size) in enumerate(lines(Stream(raw, file.path), LINE_BYTES)):
            if line is None:
                yield Row(str(number), "", problem=f"a line of {size} bytes is no name")
                continue
            try:
                text = line.decode("utf-8-sig" if not number else "utf-8").strip()
            except UnicodeDecodeError:
                yield Row(str(number), "", problem="the line is not UTF-8")
                continue
            if text and not text.startswith("#"):
                yield Row(str(number), text)
    except Damaged as damage:
        yield Row("end", "", problem=f"{damage.rule}: {damage.detail}")
    finally:
        raw.close()


class _Commits:
    """Pins data sets of the Hub, asking once for each revision, whether it is there or not."""

    def __init__(self, known: MutableMapping[str, str] | None) -> None:
        self._known = {} if known is None else known
        self._failed: dict[str, str] = {}

    def __call__(self, url: str) -> str:
        revision = parse(url.removeprefix(SCHEME)).shown
        if revision not in self._failed:
            try:
                return pin(url, self._known)
            except (UserError, WorkError) as error:
                self._failed[revision] = str(error)
        raise ValueError(self._failed[revision])


def _resolved(row: Row, place: Folder, commits: _Commits) -> Named:
    """Where a row of the list at `place` leads to; with the problem, if it may not or cannot be read."""
    alone = f"{address(place).rpartition('/')[2]}:{row.number}"  # of a row that names no file: nothing else is called so
    no_file = _beside(place) / alone
    if row.problem or not row.name.strip():
        return Named(row, no_file, alone, f"the list: {row.problem or 'no name'}")
    try:
        file, path = _place_of(row.name, place, commits)
    except (ValueError, UserError) as error:
        return Named(row, no_file, alone, str(error))
    return Named(row, file, path)


def _place_of(name: str, place: Folder, commits: _Commits) -> tuple[Folder, str]:
    """(the file, the path by which it is known); raises `ValueError` with the reason why it may not be read."""
    scheme, sep, rest = name.partition("://")
    if sep and scheme in ALLOWED:
        file = Folder(commits(name) if scheme == "hf" else name)
        return file, address(file)
    if sep and scheme != "file":
        allowed = ", ".join(("file", *ALLOWED) if place.local else ALLOWED)
        raise ValueError(f"unknown kind of URL '{scheme[:20]}://'; allowed: {allowed}")
    if sep or name.startswith("/"):
        if not place.local:
            raise ValueError(
                "a local file, named by a list that is not local; such lists name URLs and files beside them"
            )
        name = f"/{rest.lstrip('/')}" if sep else name
    if place.local:
        above = f"{_beside(place).url.rstrip('/')}/"
        file = Folder(os.path.normpath(name if name.startswith("/") else above + name))
        return file, file.url.removeprefix(above) if file.url.startswith(above) else file.path
    path = posixpath.normpath(name)
    if path.startswith(".."):
        raise ValueError(
            "a relative name that leads out of the list's folder; such lists name URLs and files beside them"
        )
    return _beside(place) / path, path


def _beside(place: Folder) -> Folder:
    """The folder of a list; its address may have a query."""
    return Folder(without_query(place.url)).parent


def _look_up_all(found: list[Named]) -> Iterator[Found]:
    """Size and tag of each, or its problem; those that are not local at the same time."""
    remote = next((one.file for one in found if not one.file.local), None)
    look = partial(look_up, failures=Counter())
    if remote is None:
        yield from map(look, found)
    else:
        yield from remote.at_once(look, found)


def look_up(one: Named, failures: Counter[str] | None = None) -> Found:
    """Size and tag of a file that a list names, or the problem with it.

    `failures` counts by server how often it could not be reached: after `DEAD` times it is not asked any more.
    """
    failures = Counter() if failures is None else failures
    if one.problem:
        return Found(one.path, 0, "", one.problem)
    try:
        entry = file_at(one.file) if failures[one.file.root] < DEAD else UNREACHABLE
    except Unreachable:
        failures[one.file.root] += 1
        entry = UNREACHABLE
    except (UserError, WorkError) as error:
        return Found(one.path, 0, "", str(error))
    if entry is None:
        folder = one.file.local and Path(one.file.url).is_dir()
        problem = "a folder; a list names files" if folder else "in the list, but there is no such file"
        return Found(one.path, 0, "", problem)
    return entry._replace(path=one.path)
