"""Intermediate files: fixed-width records cut in parts, each checksummed, and steps that run once.

A task publishes its files and then a marker that names them with their checksums and the key of what they
were made from. A step whose marker has the wanted key and whose files have the right bytes is not run again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pydantic import Field

from corpusmill.common.checkpoints import parse, seal, whole
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.schemas.dedup_results import RecordsFile
from corpusmill.schemas.manifest import PublishedFile, Strict

Records = npt.NDArray[Any]


class Slice(NamedTuple):
    """One part of one file."""

    path: str
    start: int
    size: int
    xxh3: str


class Part(NamedTuple):
    """Records `start` to `start + size` belong to part `number`."""

    number: int
    start: int
    size: int
    xxh3: str


# Parts are many (partitions times ranges): the driver holds 40 bytes for each, not an object.
PLACE = np.dtype([("number", "<i8"), ("start", "<i8"), ("count", "<i8"), ("xxh3", "V16")])
SLICE = np.dtype([("file", "<i4"), ("start", "<i8"), ("count", "<i8"), ("xxh3", "V16")])


class File(RecordsFile):
    """A published file and its parts: `PLACE` records in base64."""

    @staticmethod
    def of(file: PublishedFile, parts: Iterable[Part]) -> File:
        """A file with these parts."""
        rows = [(part.number, part.start, part.size, bytes.fromhex(part.xxh3)) for part in parts]
        return File(file=file, places=b64encode(np.array(rows, PLACE).tobytes()).decode())

    def table(self) -> Records:
        """The parts as `PLACE` records."""
        return np.frombuffer(b64decode(self.places), PLACE)

    @property
    def parts(self) -> list[Part]:
        """The parts one by one: for files of few."""
        rows = self.table().tolist()
        return [Part(number, start, size, seal.hex()) for number, start, size, seal in rows]


class Slices(Sequence[Slice]):
    """Slices of many files, 36 bytes each; travels with the names of its own files only."""

    def __init__(self, paths: Sequence[str], rows: Records) -> None:
        self.paths, self.rows = paths, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Slices(self.paths, self.rows[index])
        file, start, count, seal = self.rows[index]
        return Slice(self.paths[file], int(start), int(count), bytes(seal).hex())

    def __reduce__(self) -> Any:
        used, rows = np.unique(self.rows["file"], return_inverse=True)
        mine = self.rows.copy()
        mine["file"] = rows
        return Slices, (tuple(self.paths[file] for file in used), mine)

    def joined(self, other: Slices) -> Slices:
        """These and then those of `other`, both of the same files."""
        assert self.paths is other.paths
        return Slices(self.paths, np.concatenate([self.rows, other.rows]))

    @property
    def records(self) -> int:
        """Records in all of them."""
        return int(self.rows["count"].sum())


class Done(Strict):
    """The marker of a finished step; `name` is where it lies."""

    key: str
    name: str = ""
    files: dict[str, File]
    counters: dict[str, int] = Field(default_factory=dict)


def once(work: Folder, name: str, key: str, step: Callable[[], Done]) -> Done:
    """What `step` made for `key`, now or in an earlier run; its marker is written last."""
    done = read_marker(work, name)
    if (
        done is not None
        and done.key == key
        and whole(work, (f.file for f in done.files.values()), read_files=True)
    ):
        return done
    done = step().model_copy(update={"name": name})
    write_marker(work, name, done)
    return done


def write_marker(work: Folder, name: str, done: Done) -> None:
    """Record that the step `name` is finished: a line with the checksum of what follows, then that."""
    publish_bytes(work, f"{name}.json", seal(done.model_dump_json().encode()))


def read_marker(work: Folder, name: str) -> Done | None:
    """What the step `name` published; None if it is not finished, or its marker is not as it was written."""
    return parse(Done, work / f"{name}.json", sealed=True)


def write(work: Folder, path: str, records: Records, numbers: npt.NDArray[np.int64] | None = None) -> File:
    """Publish `records`; `numbers`, ascending, says which part each belongs to."""
    content = records.tobytes()
    data = memoryview(content)
    width = records.dtype.itemsize
    parts = []
    if numbers is not None and len(numbers):
        starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]]).tolist()
        for start, stop in zip(starts, [*starts[1:], len(records)], strict=True):
            part = checksum(data[start * width : stop * width])
            parts.append(Part(int(numbers[start]), start, stop - start, part))
    return File.of(publish_bytes(work, path, content, rows=len(records)), parts)


def read(work: Folder, file: PublishedFile, dtype: np.dtype[Any]) -> Records:
    """A whole file; raises `WorkError` if its bytes are not those published."""
    return _records(work, file.path, read_bytes(work, file.path), file.xxh3, dtype)


def read_slices(work: Folder, slices: Iterable[Slice], dtype: np.dtype[Any]) -> Records:
    """The records of several slices, one after the other."""
    width, parts = dtype.itemsize, list(slices)
    data = read_ranges(work, ((part.path, part.start * width, part.size * width) for part in parts))
    found = [
        _records(work, part.path, some, part.xxh3, dtype) for part, some in zip(parts, data, strict=True)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype)


def read_chunks(work: Folder, slices: Iterable[Slice], dtype: np.dtype[Any], rows: int) -> Iterator[Records]:
    """The records of several slices, at most `rows` at a time; a changed slice is noticed at its end."""
    width = dtype.itemsize
    for part in slices:
        seen = xxhash.xxh3_128()
        for first in range(0, part.size, rows):
            count = min(rows, part.size - first)
            data = read_bytes(work, part.path, (part.start + first) * width, count * width)
            seen.update(data)
            yield np.frombuffer(data, dtype)
        if seen.hexdigest() != part.xxh3:
            raise _changed(work, part.path)


def read_bytes(work: Folder, path: str, start: int = 0, size: int | None = None) -> bytes:
    """A file or a range of it; raises `WorkError` if it is missing."""
    try:
        return (work / path).read() if size is None else (work / path).read_range(start, size)
    except FileNotFoundError as error:
        raise _missing(error) from None


def read_ranges(work: Folder, ranges: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
    """Ranges (path, offset, bytes) of files, in this order; raises `WorkError` if one is missing."""
    try:
        yield from work.read_ranges(ranges)
    except FileNotFoundError as error:
        raise _missing(error) from None


def _missing(error: FileNotFoundError) -> WorkError:
    place = str(error).removesuffix(": not found")
    return WorkError(f"{place}: missing; run again to rebuild it (an index that lost files is incomplete)")


def _records(work: Folder, path: str, data: bytes, xxh3: str, dtype: np.dtype[Any]) -> Records:
    if checksum(data) != xxh3:
        raise _changed(work, path)
    return np.frombuffer(data, dtype)


def _changed(work: Folder, path: str) -> WorkError:
    return WorkError(f"{work / path}: its bytes changed since they were written; run again to rebuild it")


def by_part(dones: Sequence[Done], name: str) -> dict[int, Slices]:
    """Part number -> its slices in the files called `name` of all the steps, in their order."""
    files = [done.files[name] for done in dones if name in done.files]
    tables = [file.table() for file in files]
    numbers = np.concatenate([np.empty(0, np.int64), *(table["number"] for table in tables)])
    rows = np.empty(len(numbers), SLICE)
    rows["file"] = np.repeat(np.arange(len(files)), [len(table) for table in tables])
    for field in ("start", "count", "xxh3"):
        rows[field] = np.concatenate([rows[field][:0], *(table[field] for table in tables)])
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    cuts = np.flatnonzero(starts_of(numbers))
    paths = tuple(file.file.path for file in files)
    ends = np.r_[cuts, len(numbers)][1:]
    return {int(numbers[a]): Slices(paths, rows[a:b]) for a, b in zip(cuts, ends, strict=True)}


def hashes_of(slices: Iterable[Slice]) -> list[str]:
    """Checksums, for the key of a step that reads these slices."""
    return [part.xxh3 for part in slices]


def starts_of(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each row of sorted columns differs from the one before it."""
    new = np.ones(len(columns[0]), bool)
    if len(new) > 1:
        new[1:] = False
        for column in columns:
            new[1:] |= column[1:] != column[:-1]
    return new


# `np.unique` and `np.isin` hash integers since NumPy 2.3, which takes twenty times as long as sorting some millions of them.


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Distinct values, ascending."""
    ordered = np.sort(values)
    return ordered[starts_of(ordered)]


def among(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value is one of `known`, ascending."""
    if not len(known):
        return np.zeros(len(values), bool)
    place = np.searchsorted(known, values).clip(max=len(known) - 1)
    found: npt.NDArray[np.bool_] = known[place] == values
    return found


def words(ids: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The big-endian halves of 16-byte ids."""
    data = ids.buffers()[1]
    if data is None or len(ids) == 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    pairs = np.frombuffer(data, ">u8", 2 * len(ids), 16 * ids.offset).reshape(-1, 2).astype(np.uint64)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def ids(hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> pa.Array:
    """16-byte ids of their halves."""
    data = np.stack([hi, lo], axis=1).astype(">u8").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(hi), [None, pa.py_buffer(data)])


def in_range(value: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Which of `ranges` equal ranges of 64-bit numbers each value lies in; ascending with the value."""
    return (((value >> np.uint64(32)) * np.uint64(ranges)) >> np.uint64(32)).astype(np.int64)
