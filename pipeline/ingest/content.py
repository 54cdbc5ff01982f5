"""What planning learns by reading input files once: the hash of each, and the parts of large ones, which tasks read side by side."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpusmill.common.storage import Folder
from corpusmill.common.stores import WEB
from corpusmill.pipeline.engine.stage import MANY_BYTES, Scheduler
from corpusmill.pipeline.ingest.discover import InputFile, Known, can_be_cut
from corpusmill.pipeline.ingest.raw_file import RawFile, named_by_content
from corpusmill.pipeline.ingest.readers import format_of_file
from corpusmill.pipeline.ingest.readers.parquet_pages import first_byte
from corpusmill.pipeline.ingest.records import Reading
from corpusmill.pipeline.ingest.streams import codec_of
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams

BLANK_BYTES = 4_096  # a line of white space longer than this may count as a record that is too large
HEAD_BYTES = 4_096
# A file of more parts than this has larger ones, up to the size of a partition: many small partitions cost more than they bring.
MANY_PARTS, LARGER = 64, 4
FOOTER_BYTES = (
    16 << 20
)  # the longest that is read while planning; a file with a longer one is read by one task
_WHITE = b" \t\r\n"
TOGETHER, FILES_TOGETHER = 64 << 20, 1_000  # bytes and files that one task hashes, about
FileParts = list[tuple[int, int, str]]  # (first byte, first record, digest) of each part of a file
Parts = MutableMapping[str, FileParts]  # by InputFile.key


class Cutter(Protocol):
    """Finds the parts of a file while its bytes pass by."""

    def take(self, block: bytes) -> None:
        """The next bytes of the file."""

    def parts(self) -> list[tuple[int, int, str]]:
        """(first byte, number of its first record, xxh3_128) of each part; empty if the file cannot be cut. After the last byte."""


class LineCutter:
    """Cuts JSON Lines of `size` bytes at the first line that begins at or behind each multiple of `part_bytes`.

    Numbers of records are those of `readers/jsonl.py`: lines of white space do not count. Bytes that are appended to a file
    leave all of its parts but the last as they are.
    """

    def __init__(self, size: int, part_bytes: int) -> None:
        # What is left behind the last cut has half a part at least.
        self._targets = iter(range(part_bytes, size - part_bytes // 2 + 1, part_bytes))
        self._target = next(self._targets, None)
        self._at = self._records = 0
        self._white = 0  # bytes of the present line, if all so far are white space; else -1
        self._hash = xxhash.xxh3_128()
        self._first = (0, 0)  # byte and record of the present part
        self._parts: list[tuple[int, int, str]] = []
        self._possible = True

    def take(self, block: bytes) -> None:
        while self._target is not None and block:
            end = block.find(b"\n", max(0, self._target - 1 - self._at)) + 1
            if not end:
                break
            self._count(block[:end])
            self._cut()
            block = block[end:]
        self._count(block)

    def parts(self) -> list[tuple[int, int, str]]:
        whole = [*self._parts, (*self._first, self._hash.hexdigest())]
        return whole if self._possible and len(whole) > 1 else []

    def _cut(self) -> None:
        self._parts.append((*self._first, self._hash.hexdigest()))
        self._first, self._hash = (self._at, self._records), xxhash.xxh3_128()
        while self._target is not None and self._target <= self._at:
            self._target = next(self._targets, None)

    def _count(self, block: bytes) -> None:
        if not block:
            return
        self._hash.update(block)
        begins_white = self._white >= 0 and (block[0] in _WHITE or not self._at)
        code = np.frombuffer(block, np.uint8)
        ends = code == ord("\n")
        if begins_white or np.any(ends[:-1] & (code[1:] <= ord(" "))):
            self._count_lines(block)
        else:  # no line begins with white space
            self._records += int(np.count_nonzero(ends))
            self._white = 0 if block.endswith(b"\n") else -1
        self._at += len(block)

    def _count_lines(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        first = not self._at
        for line in lines:
            white = self._white >= 0 and _is_white(line, first)
            self._possible &= not white or self._white + len(line) <= BLANK_BYTES
            self._records += not white
            self._white, first = 0, False
        if self._white >= 0:
            self._white = self._white + len(rest) if _is_white(rest, first) else -1


def _is_white(line: bytes, first: bool) -> bool:
    if first and line[:2] in (
        codecs.BOM_UTF16_LE,
        codecs.BOM_UTF16_BE,
    ):  # where it is read, a wrong mark is left out
        return not line[2:].strip(_WHITE)
    line = line.strip(_WHITE)
    return not (line.removeprefix(codecs.BOM_UTF8) if first else line)


class RangeCutter:
    """Parts that begin at bytes known before: `begins` has (byte, number of the first record) of each."""

    def __init__(self, begins: Sequence[tuple[int, int]]) -> None:
        self.begins = begins
        self._hashes = [xxhash.xxh3_128() for _ in begins]
        self._part = self._at = 0

    def take(self, block: bytes) -> None:
        while block:
            last = self._part + 1 == len(self.begins)
            left = len(block) if last else self.begins[self._part + 1][0] - self._at
            self._hashes[self._part].update(block[:left])
            self._at += len(block[:left])
            block = block[left:]
            self._part += not last and self._at == self.begins[self._part + 1][0]

    def parts(self) -> list[tuple[int, int, str]]:
        return [(*begin, hash.hexdigest()) for begin, hash in zip(self.begins, self._hashes, strict=True)]


@dataclass(frozen=True)
class Wanted:
    """A file whose hash, `digest`, is wanted if it is not known, and its parts of `size` bytes and more, if not 0."""

    file: InputFile
    source: Source | None
    size: int
    digest: str


def contents(wanted: Sequence[Wanted]) -> list[tuple[str, FileParts | None]]:
    """(xxh3_128 (hex), parts if it can be cut) of each file, streamed; of a file of the Hub the hash that the Hub gives."""
    return [_content(one) for one in wanted]


def _content(one: Wanted) -> tuple[str, FileParts | None]:
    file = one.file
    if file.problem:
        return xxhash.xxh3_128_hexdigest(file.problem.encode()), None
    cutter = cutter_of(file, one.source, one.size) if one.size and one.source else None
    if named_by_content(file.tag):
        begins = cutter.begins if isinstance(cutter, RangeCutter) else ()
        return file.tag, [(*begin, file.tag) for begin in begins] or None
    if one.digest and not cutter:
        return one.digest, None
    digest = RawFile(Folder(file.url), file.size, file.tag).digest(cutter.take if cutter else None)
    return digest, cutter.parts() if cutter else None


def hash_inputs(
    files: Iterable[InputFile],
    known: Known,
    known_parts: Parts | None = None,
    sources: Mapping[str, Source] | None = None,
    size: int = 0,
    scheduler: Scheduler | None = None,
) -> dict[str, str]:
    """The hash of each file's content by `InputFile.key`, as `contents` gives it.

    A file whose size and change tag are those in `known` is not read again; afterwards `known` holds exactly
    the files given, and `known_parts` the parts, of `size` bytes and more, of those that can be cut. What is to be read is
    read by the workers of the `scheduler` where it is much.
    """
    files = list(files)
    found: dict[str, tuple[str, FileParts | None]] = {}
    asked: list[Wanted] = []
    for file in files:
        bytes_, tag, digest = known.get(file.key, (-1, "", ""))
        same = (bytes_, tag) == (file.size, file.tag) and bool(tag)
        earlier = (known_parts or {}).get(file.key) if same else None
        if earlier is not None and not file.problem:
            found[file.key] = digest, earlier
        else:
            asked.append(Wanted(file, (sources or {}).get(file.source), size, digest if same else ""))
    groups = _groups(asked)
    unread = sum(map(_unread, asked))
    if scheduler is not None and unread >= MANY_BYTES:
        sizes = [sum(map(_unread, group)) for group in groups]
        made = scheduler.map(contents, groups, "read of the input", sizes)
    else:
        made = [contents(group) for group in groups]
    answers = chain.from_iterable(made)
    found.update((one.file.key, answer) for one, answer in zip(asked, answers, strict=True))
    known.clear()
    known.update({file.key: (file.size, file.tag, found[file.key][0]) for file in files})
    if known_parts is not None:
        known_parts.clear()
        known_parts.update({file.key: parts for file in files if (parts := found[file.key][1]) is not None})
    return {file.key: found[file.key][0] for file in files}


def _unread(one: Wanted) -> int:
    return 0 if one.digest or one.file.problem or named_by_content(one.file.tag) else one.file.size


def _groups(asked: Sequence[Wanted]) -> list[list[Wanted]]:
    """Neighbours, as many as come to `TOGETHER` bytes or files."""
    groups: list[list[Wanted]] = []
    held = TOGETHER
    for one in asked:
        if held >= TOGETHER or len(groups[-1]) >= FILES_TOGETHER:
            groups.append([])
            held = 0
        groups[-1].append(one)
        held += _unread(one)
    return groups


def cutter_of(file: InputFile, source: Source, size: int) -> Cutter | None:
    """What cuts a file into parts of about `size` bytes, or more where that gives too many; None for a file that one task reads.

    Cut are JSON Lines as stored (neither compressed nor UTF-16) and Parquet, at its row groups, where any place of a file can
    be read: on this machine, in object stores, and Parquet on the Hub.
    """
    if not can_be_cut(file, size):
        return None
    if file.url.partition("://")[0] in WEB and not named_by_content(file.tag):
        return None
    largest = LARGER * size
    while file.size > MANY_PARTS * size and size < largest:
        size *= 2
    reading = Reading(file, source, IngestParams())
    try:
        kind = format_of_file(reading)
    finally:
        reading.close()
    if kind == "jsonl" and not named_by_content(file.tag):
        with Folder(file.url).open() as raw:
            head = raw.read(HEAD_BYTES)
        plain = codec_of(head) is None and b"\0" not in head
        marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return LineCutter(file.size, size) if plain and not marked else None
    if kind in ("parquet", "documents"):
        begins = _row_groups(file, size)
        return RangeCutter(begins) if len(begins) > 1 else None
    return None


def _row_groups(file: InputFile, size: int) -> list[tuple[int, int]]:
    """(first byte, number of the first row) of runs of row groups that come to `size` bytes; empty if the footer is no guide."""
    with Folder(file.url).open(size=file.size) as raw:
        raw.seek(-8, io.SEEK_END)
        tail = raw.read(8)
        if tail[4:] != b"PAR1" or int.from_bytes(tail[:4], "little") > FOOTER_BYTES:
            return []
        try:
            about = pq.ParquetFile(raw, pre_buffer=False).metadata
            groups = [about.row_group(number) for number in range(about.num_row_groups)]
            ranges = [_bytes_of(group) for group in groups]
        except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError):
            return []
    begins = [(0, 0)]
    end = row = 0
    for (begin, stop), group in zip(ranges, groups, strict=True):
        if not end <= begin < stop <= file.size or group.num_rows < 1:
            return []
        if begin - begins[-1][0] >= size and file.size - begin >= size // 2:
            begins.append((begin, row))
        end, row = stop, row + group.num_rows
    return begins


def _bytes_of(group: pq.RowGroupMetaData) -> tuple[int, int]:
    columns = [group.column(place) for place in range(group.num_columns)]
    return min(map(first_byte, columns)), max(first_byte(one) + one.total_compressed_size for one in columns)
