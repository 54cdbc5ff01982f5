"""Read one record again from its source file with ingest's readers: used to trace a document back to its source."""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.decoding import Undecodable, decode
from corpusmill.pipeline.ingest.discover import InputFile, address, file_at, format_in, root_of
from corpusmill.pipeline.ingest.file_lists import find_inputs, look_up, named
from corpusmill.pipeline.ingest.lines import lines
from corpusmill.pipeline.ingest.readers import archive_members, format_of_file, read_file, warc
from corpusmill.pipeline.ingest.readers.archive_records import ArchiveRecord, records
from corpusmill.pipeline.ingest.readers.jsonl import as_utf8, parse
from corpusmill.pipeline.ingest.records import Batch, Document, Event, Reading
from corpusmill.pipeline.ingest.streams import Damaged, codec_of, read_up_to
from corpusmill.pipeline.ingest.text_cleaning import clean
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams

HEAD_BYTES = 16
_SPACE = b" \t\r\n"  # of JSON


class Line(NamedTuple):
    """A line of a JSON Lines file: counted from 0, where its object begins in the decompressed file, its bytes and value."""

    number: int
    offset: int
    data: bytes
    value: dict[str, Any]


class RawFile:
    """One input file of a source, as ingest reads it with the run's parameters."""

    def __init__(self, file: InputFile, source: Source, params: IngestParams) -> None:
        self.file, self.source, self.params = file, source, params
        self.mended: tuple[str, ...] = ()  # encodings found in place of the ones expected, by the last `text`
        self._found = self._member() if file.member else Reading(file, source, params)
        reading = self._reading()
        try:
            self.compression = codec_of(reading.raw().read(HEAD_BYTES))
            self.format = format_of_file(reading)
        finally:
            reading.close()

    def text(self, record: str) -> str | None:
        """The text that the reader finds for a record, before anything is mended; None if it finds none."""
        reading = self._reading()
        found = next(filter(None, (_text(event, record) for event in self._events(reading, record))), None)
        prefix = "encoding_repaired/"
        self.mended = tuple(name.removeprefix(prefix) for name in reading.counters if name.startswith(prefix))
        return found

    def _events(self, reading: Reading, record: str) -> Iterator[Event]:
        if self.format not in ("warc", "arc", "wet"):
            yield from read_file(reading)
            return
        # Pages before the wanted one are not extracted, which would take most of the time.
        response = self.format != "wet"
        try:
            for found in records(reading, "response" if response else "conversion"):
                if isinstance(found, ArchiveRecord) and found.name == record:
                    if response:
                        yield warc.response(found, reading)
                    else:
                        yield Document(record, decode(found.content).text)
                    return
        except (Damaged, Undecodable):
            return
        finally:
            reading.close()

    def content(self) -> bytes:
        """The whole file, decompressed, if it is no longer than a record may be; b"" otherwise."""
        reading = self._reading()
        try:
            data = read_up_to(reading.stream(), reading.max_bytes)
        finally:
            reading.close()
        return data if len(data) <= reading.max_bytes else b""

    def line(self, record: str) -> Line | None:
        """The line that is a record of a JSON Lines file; None if it cannot be located (a file in UTF-16)."""
        reading = self._reading()
        try:
            stream = reading.stream()
            if as_utf8(stream) is not stream:
                return None
            seen = 0
            for number, (offset, line, _) in enumerate(lines(stream, reading.max_bytes)):
                if line is not None:
                    left = line.lstrip(_SPACE)
                    if not offset:
                        left = left.removeprefix(codecs.BOM_UTF8).lstrip(_SPACE)
                    data = left.rstrip(_SPACE)
                    if not data:
                        continue
                    if str(seen) == record:
                        value = parse(data, reading)
                        at = offset + len(line) - len(left)
                        return Line(number, at, data, value) if isinstance(value, dict) else None
                seen += 1
        except Damaged:
            return None
        finally:
            reading.close()
        return None

    def _reading(self) -> Reading:
        return replace(self._found, counters=Counter(), records=0, recognised=False, _raw=None, _notes=[])

    def _member(self) -> Reading:
        """The reading of a member of an archive; of an unreadable file if the archive has no such member."""
        archive = replace(self.file, path=self.file.path.removesuffix(f"!{self.file.member}"), member="")
        reading = Reading(archive, self.source, self.params)
        try:
            found = archive_members.find(reading, self.file.member)
        except Damaged:
            found = None
        finally:
            reading.close()
        if found is not None:
            return found
        missing = replace(self.file, problem="the archive has no such member")
        return Reading(missing, self.source, self.params, content=io.BytesIO)


def _text(event: Event, record: str) -> str | None:
    if isinstance(event, Document):
        return event.text if event.record == record else None
    if isinstance(event, Batch) and "record" in event.table.column_names:
        numbers = event.table["record"].combine_chunks()
        place = pc.index(numbers, pa.scalar(record, numbers.type)).as_py()
        return str(event.table["text"][place].as_py()) if place >= 0 else None
    return None


def find_file(
    name: str, source: Source, path: str, revisions: Mapping[str, str] | None = None
) -> InputFile | None:
    """The input file of that relative path, among the paths of a source and those that its list names; None if it is no longer
    there. `revisions`: the commits that revisions of data sets of the Hub were.

    Of a member of an archive it is the archive, with the member's name. Paths of the recipe, and of the list, are tried as
    they are first, so that a large folder need not be listed.
    """
    found = _file(name, source, path, revisions)
    at = path.find("!")
    while found is None and at >= 0:
        archive = _file(name, source, path[:at], revisions)
        if archive is not None and not archive.problem:
            found = replace(archive, path=path, member=path[at + 1 :])
        at = path.find("!", at + 1)
    return found


def _file(name: str, source: Source, path: str, revisions: Mapping[str, str] | None) -> InputFile | None:
    """The input file of that relative path that is a file itself."""
    for root in source.paths:
        for file in (Folder(root) / path, Folder(root)):
            plain = address(file)
            if plain.rpartition("/")[2] != path.rpartition("/")[2] or not f"/{plain}".endswith(f"/{path}"):
                continue
            with suppress(UserError):  # of the Hub: no such revision
                found = file_at(file)
                if found is not None and not (file.local and found.problem):
                    kind = format_in(source, plain)
                    return InputFile(name, path, file.url, found.size, found.tag, kind)
    if source.files_from is not None:
        with suppress(UserError):
            for one in named(name, source.files_from, dict(revisions or {})):
                if one.path == path and not one.problem and (found := look_up(one)) and not found.problem:
                    kind = format_in(source, address(one.file))
                    return InputFile(name, path, one.file.url, found.size, found.tag, kind)
    # A path that no longer exists must not hide the files of another.
    alone = [source.model_copy(update={"paths": [root], "files_from": None}) for root in source.paths]
    for some in (source, *alone, source.model_copy(update={"paths": []})):
        try:
            return next(file for file in find_inputs(name, some, dict(revisions or {})) if file.path == path)
        except (UserError, StopIteration):
            continue
    return None


def path_exists(path: str) -> bool:
    """Whether a local path of a recipe exists; of a glob, the part before its first wildcard."""
    return Path(root_of(path).url).exists()


def cleaned(texts: Sequence[str], repair: bool) -> list[str]:
    """What ingest makes of texts: mojibake mended (if `repair`), line ends as \\n, controls out."""
    array = pa.array(texts, pa.large_string())
    found: list[str] = clean(array, repair, Counter()).to_pylist()
    return found
