"""Which row of which partition a document is: an index of doc_ids, own ids and URLs, made from a ledger once.

Files of sorted keys, each over some partitions of the ledger, so that any number of them is made in bounded memory; a
look-up reads one page of each file by a range request, sixteen at a time from an object store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES, checksum
from corpusmill.common.kernel_cache import compiled
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import LINEAGE
from corpusmill.pipeline.engine.publish import publish_bytes, read_table
from corpusmill.pipeline.inspect.lineage.shards import Requests
from corpusmill.schemas.manifest import Strict, manifest_name

INDEX: Final = "ids.json"
ENTRY: Final = np.dtype([("key", "<u8"), ("partition", "<u4"), ("row", "<u4")])
PAGE: Final = 8_192  # entries
FILE_KEYS: Final = 1 << 22  # in a file, at least, if there are as many: 64 MiB
BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3  # of FNV-1a
_MASK = 2**64 - 1
_BASIS, _PRIME, _SHIFT = np.uint64(BASIS), np.uint64(PRIME), np.uint64(32)
Keys = npt.NDArray[np.uint64]


@compiled
def keys(offsets: Any, data: Any, valid: Any) -> Any:
    """uint64[n]: FNV-1a (Fowler, Noll, Vo; http://www.isthe.com/chongo/tech/comp/fnv) of UTF-8 strings between int64
    offsets, folded so that the high bits depend on all bytes; 0 where not `valid`."""
    found = np.zeros(len(offsets) - 1, np.uint64)
    for row in range(len(found)):
        if not valid[row]:
            continue
        value = _BASIS
        for i in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[i])) * _PRIME
        found[row] = (value ^ (value >> _SHIFT)) * _PRIME
    return found


class IdFile(Strict):
    """One file of sorted entries; `first` has the first key of each page."""

    path: str
    entries: int = Field(ge=0)
    first: list[int]


class IdIndex(Strict):
    """`lineage/ids.json`. `ledger`: hash of the manifest of the ledger that it was made from."""

    kind: Literal["corpusmill-ids-v2"] = "corpusmill-ids-v2"
    ledger: str
    partitions: list[str]
    files: list[IdFile]


def key_of_id(doc_id: bytes) -> int:
    """The key of a doc_id: its first bytes, since it is a hash itself."""
    return int.from_bytes(doc_id[:8], "little")


def key_of_text(text: str) -> int:
    """The key of an own id or a URL, as `keys` gives it."""
    value = BASIS
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * PRIME & _MASK
    return (value ^ (value >> 32)) * PRIME & _MASK


class Ids:
    """The index of a ledger, made if it is missing, incomplete, or another ledger's. Where the run cannot be written to it is
    made in memory, every time, with a line to `log`."""

    def __init__(
        self, run: Folder, ledger: Folder, requests: Requests, log: Callable[[str], None], file_keys: int = FILE_KEYS
    ) -> None:  # fmt: skip
        self.folder, self.ledger, self.requests = run / LINEAGE, ledger, requests
        self._memory: dict[str, bytes] = {}
        stamp = checksum(requests.read(ledger / manifest_name("ledger")))
        self.index = self._known(stamp)
        if self.index is None:
            self.index = self._make(stamp, file_keys, log)

    def _known(self, stamp: str) -> IdIndex | None:
        try:
            index = IdIndex.model_validate_json(self.requests.read(self.folder / INDEX))
        except (FileNotFoundError, ValidationError):
            return None
        sizes = {entry.path: entry.size for entry in self.folder.list()}
        whole = all(sizes.get(file.path) == file.entries * ENTRY.itemsize for file in index.files)
        return index if index.ledger == stamp and whole else None

    def _make(self, stamp: str, file_keys: int, log: Callable[[str], None]) -> IdIndex:
        names = [e.path for e in self.ledger.list() if e.path.endswith(".parquet") and "/" not in e.path]
        log(f"{self.folder}: made once: an index of the ids in {len(names)} partitions of the ledger")
        files = []
        for number, entries in enumerate(_gathered(self.ledger, names, file_keys)):
            path = f"ids-{number:05d}.bin"
            self._publish(path, entries.tobytes(), log)
            files.append(IdFile(path=path, entries=len(entries), first=entries["key"][::PAGE].tolist()))
        partitions = [name.removesuffix(".parquet") for name in names]
        index = IdIndex(ledger=stamp, partitions=partitions, files=files)
        self._publish(INDEX, index.model_dump_json().encode(), log)
        return index

    def _publish(self, path: str, data: bytes, log: Callable[[str], None]) -> None:
        if not self._memory:
            try:
                publish_bytes(self.folder, path, data)
                return
            except WorkError as error:
                log(f"{error}; the index stays in memory, for this command")
        self._memory[path] = data

    def places(self, keys: Sequence[int]) -> Iterator[tuple[str, int]]:
        """(partition, row of the ledger's) of every document with one of these keys, and perhaps of others: keys may
        meet. In the order of partitions and rows."""
        assert self.index is not None
        wanted = [
            (file, page, min(file.entries - page * PAGE, PAGE), key)
            for file in self.index.files
            for key in sorted(set(keys))
            for page in _pages(file.first, key)
        ]
        found = set()
        for entries, (_, _, _, key) in zip(self.folder.at_once(self._page, wanted), wanted, strict=True):
            low, high = (np.searchsorted(entries["key"], np.uint64(key), side) for side in ("left", "right"))
            found |= {(int(e["partition"]), int(e["row"])) for e in entries[low:high]}
        for partition, row in sorted(found):
            yield self.index.partitions[partition], row

    def _page(self, place: tuple[IdFile, int, int, int]) -> npt.NDArray[Any]:
        file, page, count, _ = place
        offset, size = page * PAGE * ENTRY.itemsize, count * ENTRY.itemsize
        if file.path in self._memory:
            return np.frombuffer(self._memory[file.path], ENTRY, count, offset)
        return np.frombuffer(self.requests.read_range(self.folder / file.path, offset, size), ENTRY)


def _pages(first: Sequence[int], key: int) -> range:
    """The pages that may contain a key."""
    return range(max(bisect_left(first, key) - 1, 0), bisect_right(first, key))


def _gathered(ledger: Folder, names: Sequence[str], file_keys: int) -> Iterator[npt.NDArray[Any]]:
    """Sorted entries, of as many partitions at a time as give `file_keys`."""
    held: list[npt.NDArray[Any]] = []
    for number, name in enumerate(names):
        held.append(_entries(read_table(ledger / name, columns=["doc_id", "source_id", "url"]), number))
        if sum(map(len, held)) >= file_keys:
            yield _sorted(held)
            held = []
    if held:
        yield _sorted(held)


def _sorted(held: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """By key; entries of one key stay in the order of partitions and rows."""
    entries = np.concatenate(held)
    found: npt.NDArray[Any] = entries[np.argsort(entries["key"], kind="stable")]
    return found


def _entries(rows: pa.Table, partition: int) -> npt.NDArray[Any]:
    """An entry for the doc_id of each row, one for its own id, one for its URL, as far as it has them."""

    ids = rows["doc_id"].combine_chunks()
    whole = (
        np.frombuffer(ids.buffers()[1], "<u8", 2 * len(ids), ID_BYTES * ids.offset)
        if len(ids)
        else np.empty(0)
    )
    columns: list[Keys] = [whole[::2].astype(np.uint64)]
    held = [np.ones(len(ids), bool)]
    for name in ("source_id", "url"):
        column = rows[name].combine_chunks().cast(pa.large_string())
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        offsets = np.frombuffer(column.buffers()[1] or bytes(8), np.int64)[column.offset :][: len(column) + 1]
        data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
        columns.append(keys(offsets, data, valid) if len(column) else np.empty(0, np.uint64))
        held.append(valid)
    row = np.concatenate([np.flatnonzero(flags) for flags in held])
    entries = np.empty(len(row), ENTRY)
    entries["key"] = np.concatenate([found[flags] for found, flags in zip(columns, held, strict=True)])
    entries["row"], entries["partition"] = row, partition
    return entries
