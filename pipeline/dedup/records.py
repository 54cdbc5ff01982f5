"""Intermediate files: fixed-width records cut in parts, each checksummed, and steps that run once.

A task publishes its files and then a marker that names them with their checksums and the key of what they
were made from. A step whose marker has the wanted key and whose files have the right bytes is not run again.
A location is `partition index << 32 | row`: an address inside one run, never an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, ValidationError

from pipeline.dedup.banding import Banding
from pipeline.publish import publish_bytes
from schemas.dedup import DedupParams
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import PublishedFile, Strict
from schemas.storage import Folder

Records = npt.NDArray[Any]

# 16-byte ids are two big-endian words, so that numbers sort as the bytes do.
TEXT = np.dtype(
    [("hi", "<u8"), ("lo", "<u8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("location", "<i8"), ("source", "<u8"),
     ("length", "<i8"), ("date", "<i8"), ("priority", "<i8"), ("shingles", "<i8")]
)  # fmt: skip
BAND = np.dtype([("key", "<u8"), ("text", "<u8"), ("location", "<i8")])
SAMPLE = np.dtype([("draw", "<u8"), ("hi", "<u8"), ("lo", "<u8"), ("location", "<i8")])
EDGE = np.dtype([("a", "<i8"), ("b", "<i8")])
SIMILARITY = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8")])
# A candidate text: where its shingle hashes begin in the partition's file of sets, how many, and their sum.
NODE = np.dtype([*TEXT.descr, ("start", "<i8"), ("size", "<i8"), ("sum", "<u8")])
HASH = np.dtype("<u8")


@dataclass(frozen=True)
class Job:
    """What every task of a run needs: small, and the same for all of them."""

    work: Folder
    params: DedupParams
    banding: Banding
    band_ranges: int
    text_ranges: int
    priorities: tuple[tuple[str, int], ...]
    key: str


class Slice(NamedTuple):
    """One part of one file."""

    path: str
    start: int
    size: int
    xxh3: str


class Part(Strict):
    """Records `start` to `start + count` belong to part `number`."""

    number: int
    start: int
    count: int
    xxh3: str


class File(Strict):
    """A published file and its parts."""

    file: PublishedFile
    parts: list[Part] = Field(default_factory=list)


class Done(Strict):
    """The marker of a finished step."""

    key: str
    files: dict[str, File]
    counters: dict[str, int] = Field(default_factory=dict)


def once(work: Folder, name: str, key: str, step: Callable[[], Done]) -> Done:
    """What `step` made for `key`, now or in an earlier run; its marker is written last."""
    marker = work / f"{name}.json"
    try:
        done = Done.model_validate_json(marker.read())
        if done.key == key and all(_intact(work, item.file) for item in done.files.values()):
            return done
    except (FileNotFoundError, ValidationError):
        pass
    done = step()
    publish_bytes(work, f"{name}.json", done.model_dump_json().encode())
    return done


def _intact(work: Folder, file: PublishedFile) -> bool:
    try:
        return checksum((work / file.path).read()) == file.xxh3
    except FileNotFoundError:
        return False


def write(work: Folder, path: str, records: Records, numbers: npt.NDArray[np.int64] | None = None) -> File:
    """Publish `records`; `numbers`, ascending, says which part each belongs to."""
    data = memoryview(records.tobytes())
    width = records.dtype.itemsize
    parts = []
    if numbers is not None and len(numbers):
        starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]]).tolist()
        for start, stop in zip(starts, [*starts[1:], len(records)], strict=True):
            part = checksum(data[start * width : stop * width])
            parts.append(Part(number=int(numbers[start]), start=start, count=stop - start, xxh3=part))
    return File(file=publish_bytes(work, path, bytes(data), rows=len(records)), parts=parts)


def read(work: Folder, file: PublishedFile, dtype: np.dtype[Any]) -> Records:
    """A whole file; raises `WorkError` if its bytes are not those published."""
    return _records(work, file.path, (work / file.path).read(), file.xxh3, dtype)


def read_slices(work: Folder, slices: Iterable[Slice], dtype: np.dtype[Any]) -> Records:
    """The records of several slices, one after the other."""
    width = dtype.itemsize
    found = [
        _records(
            work,
            part.path,
            (work / part.path).read_range(part.start * width, part.size * width),
            part.xxh3,
            dtype,
        )
        for part in slices
    ]
    return np.concatenate(found) if found else np.empty(0, dtype)


def _records(work: Folder, path: str, data: bytes, xxh3: str, dtype: np.dtype[Any]) -> Records:
    if checksum(data) != xxh3:
        raise WorkError(
            f"{work / path}: its bytes changed since they were written; run again, and it is made anew"
        )
    return np.frombuffer(data, dtype)


def by_part(dones: Sequence[Done], name: str) -> dict[int, tuple[Slice, ...]]:
    """Part number -> its slices in the files called `name` of all the steps."""
    found: dict[int, list[Slice]] = {}
    for done in dones:
        if name in done.files:
            item = done.files[name]
            for part in item.parts:
                found.setdefault(part.number, []).append(
                    Slice(item.file.path, part.start, part.count, part.xxh3)
                )
    return {number: tuple(slices) for number, slices in sorted(found.items())}


def parts_of(location: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The partition's index of each location."""
    return location >> 32


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


def survivor_order(records: Records, keep_order: Sequence[str]) -> npt.NDArray[np.int64]:
    """Indices of `TEXT` records, the one to keep first; the id decides last, so there are no ties."""
    columns: dict[str, list[Any]] = {
        "source_priority": [-records["priority"]],
        "length": [-records["length"]],
        "date": [records["date"]],
        "doc_id": [records["id_hi"], records["id_lo"]],
    }
    keys = [column for name in [*keep_order, "doc_id"] for column in columns[name]]
    return np.lexsort(keys[::-1])
