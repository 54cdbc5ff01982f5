"""Where documents are in a shard set: the blocks and texts of each (source, split) are sorted by the hash of their documents'
ids, so a few range requests find a document, without reading any tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from tarfile import BLOCKSIZE
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES, checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.lineage.shards import SAMPLE, VERIFY, Requests, Shards
from corpusmill.pipeline.shard.read import set_folder
from corpusmill.schemas.shards import BlockDocuments, SetEntry, ShardSetEntry, TextSetEntry
from corpusmill.schemas.tables import HOLDING, ID

SIZE = slice(124, 135)  # of a USTAR header: the member's size, in octal digits
Entry = TypeVar("Entry", bound=SetEntry, covariant=True)


@dataclass
class Ordered(ABC, Generic[Entry]):
    """The items of one (source, split) in their order, each a block of tokens or a text, with their documents. `seed`: of
    the hash that orders them; None if it is not known."""

    folder: Folder  # of the set's index
    entry: Entry
    requests: Requests
    seed: int | None
    tars: Sequence[dict[str, Any]]  # as the index has them

    @cached_property
    def ends(self) -> list[int]:
        """Items up to the end of each tar."""
        return list(accumulate(tar["nsamples"] for tar in self.tars))

    @property
    def count(self) -> int:
        """Items."""
        return self.ends[-1] if self.ends else 0

    def place(self, at: int) -> tuple[int, int]:
        """(number of the tar, number in it) of an item."""
        tar = bisect_right(self.ends, at)
        return tar, at - (self.ends[tar - 1] if tar else 0)

    @abstractmethod
    def ids(self, at: int) -> list[bytes]:
        """The documents of an item, in their order."""

    @abstractmethod
    def searched(self, wanted: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        """(item, document) wherever one of the wanted documents is, by reading the ids of all items, many at a time from
        an object store."""

    @abstractmethod
    def segment(self, at: int, doc_id: bytes) -> tuple[str, int, int]:
        """(key of the sample, first character, one past the last) of a document's part in an item."""

    def holding(self, doc_id: bytes) -> Iterator[int]:
        """Numbers of the items that hold a document, in order, found by its hash; none if the items are not in hash order."""
        at = self._first(doc_id)
        while at is not None and at < self.count and doc_id in self.ids(at):
            yield at
            at += 1

    def by_tar(self) -> list[Self]:
        """Each tar by itself, with requests of its own, for a worker to search."""
        return [replace(self, tars=[tar], requests=Requests()) for tar in self.tars]

    def _first(self, doc_id: bytes) -> int | None:
        """The first item whose last document does not come before `doc_id`: an interpolation search, since hashes are even.
        None if the items that were read are not in hash order."""
        if self.seed is None:
            return None
        wanted = _hashes([doc_id], self.seed)[0], doc_id
        low, high = 0, self.count  # the answer is in low..high
        guess = wanted[0] * self.count >> 64
        step = 1
        while low < high:
            at = min(max(guess, low), high - 1)
            ids = self.ids(at)
            order = list(zip(_hashes(ids, self.seed), ids, strict=True))
            if order != sorted(order):
                return None
            if order[-1] < wanted:
                low, guess = at + 1, at + step
            elif order[0] < wanted:
                return at
            else:
                high, guess = at, at - step
            step *= 2
            if step > 8:
                guess = (low + high) // 2
        return low


def _hashes(ids: list[bytes], seed: int) -> list[int]:
    found: list[int] = hash_ids(pa.array(ids, ID), seed).tolist()
    return found


@dataclass
class BlockList(Ordered[ShardSetEntry]):
    """The blocks of a (source, split). Reads their lists of documents when asked."""

    probed: dict[int, BlockDocuments] = field(default_factory=dict, init=False)

    def block(self, at: int) -> tuple[str, int, dict[str, Any]]:
        """(tar, number in it, line of the index) of a block."""
        tar, number = self.place(at)
        return self.tars[tar]["url"], number, self.tars[tar]["blocks"][number]

    def ids(self, at: int) -> list[bytes]:
        return [bytes.fromhex(doc_id) for doc_id in self.documents(at).doc_ids]

    def documents(self, at: int) -> BlockDocuments:
        """By one range request, checked; raises `WorkError` if the bytes are not those of the index."""
        if at not in self.probed:
            tar, _, line = self.block(at)
            data = self.requests.read_range(self.folder / tar, line["json_offset"], line["json_size"])
            self.probed[at] = self._parsed(tar, line, data)
        return self.probed[at]

    def searched(self, wanted: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        at = 0
        for tar in self.tars:
            read = partial(_described, self.folder / tar["url"])
            blocks = tar["blocks"]
            for line, data in zip(blocks, self.folder.at_once(read, blocks), strict=True):
                documents = self._parsed(tar["url"], line, self.requests.took(data))
                hits = [i for i in map(bytes.fromhex, documents.doc_ids) if i in wanted]
                if hits:
                    self.probed[at] = documents
                yield from ((at, doc_id) for doc_id in hits)
                at += 1

    def segment(self, at: int, doc_id: bytes) -> tuple[str, int, int]:
        documents = self.documents(at)
        row = documents.doc_ids.index(doc_id.hex())
        return self.block(at)[2]["key"], documents.char_starts[row], documents.char_ends[row]

    def _parsed(self, tar: str, line: dict[str, Any], data: bytes) -> BlockDocuments:
        if checksum(data) != line["json_xxh3"]:
            raise WorkError(f"{self.folder / tar}: {line['key']}.json: checksum differs; {VERIFY}")
        return BlockDocuments.model_validate_json(data)


def _described(file: Folder, line: dict[str, Any]) -> bytes:
    return file.read_range(line["json_offset"], line["json_size"])


@dataclass
class TextList(Ordered[TextSetEntry]):
    """The texts of a (source, split), a document each. Reads where one begins, and the name in its header, when asked."""

    def ids(self, at: int) -> list[bytes]:
        file, start = self._start(at)
        return [document_in(self.requests.read_range(file, start, BLOCKSIZE), f"{file}: byte {start}")]

    def searched(self, wanted: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        at = 0
        for tar in self.tars:
            file = self.folder / tar["url"]
            index = self.requests.read(self.folder / f"{tar['url']}.idx")
            starts = text_edges(file, index, tar["nsamples"], tar["filesize"])[:-1]
            headers = file.at_once(lambda start, file=file: file.read_range(start, BLOCKSIZE), starts)
            for start, header in zip(starts, headers, strict=True):
                doc_id = document_in(self.requests.took(header), f"{file}: byte {start}")
                if doc_id in wanted:
                    yield at, doc_id
                at += 1

    def segment(self, at: int, doc_id: bytes) -> tuple[str, int, int]:
        file, start = self._start(at)
        size = int(self.requests.read_range(file, start, BLOCKSIZE)[SIZE], 8)
        text = self.requests.read_range(file, start + BLOCKSIZE, size).decode()
        return doc_id.hex(), 0, len(text)

    def _start(self, at: int) -> tuple[Folder, int]:
        tar, number = self.place(at)
        file = self.folder / self.tars[tar]["url"]
        index = file.parent / f"{file.name}.idx"
        return file, int.from_bytes(self.requests.read_range(index, number * SAMPLE, SAMPLE), "little")


def text_edges(file: Folder, index: bytes, samples: int, size: int) -> list[int]:
    """Where the samples of a tar of texts begin and the last one ends, by its `.idx`. Raises `WorkError` if that is not of
    so many samples and bytes."""
    edges: list[int] = np.frombuffer(index[: len(index) // SAMPLE * SAMPLE], "<u8").tolist()
    if len(index) != SAMPLE * (samples + 1) or edges != sorted(edges) or edges[-1] > size:
        raise WorkError(f"{file}.idx: its offsets are not those of the tar; {VERIFY}")
    return edges


def document_in(header: bytes, where: str) -> bytes:
    """The document that the header of a text names; raises `WorkError` naming the place if it names none."""
    name, dot, _ = header.partition(b".")
    try:
        found = bytes.fromhex(name.decode("ascii")) if dot else b""
    except ValueError:
        found = b""
    if len(found) != ID_BYTES:
        raise WorkError(f"{where}: no document's header there; {VERIFY}")
    return found


def ordered(shards: Shards, entry: SetEntry, requests: Requests, seed: int | None) -> BlockList | TextList:
    """The items of a line of a shard set."""
    folder, tars = (shards.folder / entry.index).parent, shards.listed(entry)
    if isinstance(entry, ShardSetEntry):
        return BlockList(folder, entry, requests, seed, tars)
    assert isinstance(entry, TextSetEntry)
    return TextList(folder, entry, requests, seed, tars)


@dataclass
class Finds:
    """Documents (16 bytes each) by tar: its number in the list of sets, its number there. `read`: range requests."""

    tars: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)
    read: int = 0

    @property
    def documents(self) -> set[bytes]:
        return set().union(*self.tars.values())


def find(
    folder: Folder, sources: Mapping[bytes, str | None], seed: int | None, scheduler: Scheduler
) -> Finds:
    """The tars of a shard set that hold documents. `sources`: the source of each document, None if it is not known. `seed`: of
    the hash that orders them; without it, or for so many documents that searches cost as much, all items' ids are read."""
    finds = Finds()
    shards = Shards(folder)
    for number, entry in enumerate(shards.index.entries):
        wanted = frozenset(i for i, source in sources.items() if source in (None, entry.source))
        if not wanted:
            continue
        some = ordered(shards, entry, Requests(), seed)
        held: list[tuple[int, bytes]]
        if seed is None or len(wanted) * some.count.bit_length() >= some.count:
            label = f"takedown: {entry.place.replace('/', '-')}"
            found = scheduler.map(partial(_scanned, wanted), some.by_tar(), label)
            held = [(tar, doc_id) for tar, (ids, _) in enumerate(found) for doc_id in ids]
            finds.read += sum(read for _, read in found)
        else:
            held = [(some.place(at)[0], doc_id) for doc_id in wanted for at in some.holding(doc_id)]
            finds.read += some.requests.count
        for tar, doc_id in held:
            finds.tars.setdefault((number, tar), set()).add(doc_id)
    return finds


def _scanned(wanted: frozenset[bytes], tar: BlockList | TextList) -> tuple[set[bytes], int]:
    """(the wanted documents in a tar, range requests)."""
    found = {doc_id for _, doc_id in tar.searched(wanted)}
    return found, tar.requests.count


def holding(place: Folder, doc_ids: Sequence[bytes], scheduler: Scheduler) -> pa.Table:
    """Every segment of the documents in the shard set of a run or in a folder (`HOLDING`), by document; the ids of all items
    are read. Raises `UserError` if there is no shard set."""
    shards, wanted = Shards(set_folder(place) or place), frozenset(doc_ids)
    tars = [
        tar for entry in shards.index.entries for tar in ordered(shards, entry, Requests(), None).by_tar()
    ]
    rows = scheduler.map(partial(_segments, wanted), tars if wanted else [], "dedup shards")
    table = pa.Table.from_pylist([row for some in rows for row in some], HOLDING)
    return table.sort_by([("doc_id", "ascending"), ("shard", "ascending"), ("block", "ascending")])


def _segments(wanted: frozenset[bytes], tar: BlockList | TextList) -> list[dict[str, Any]]:
    path = tar.entry.path(tar.tars[0]["url"])
    rows = ((doc_id, path, *tar.segment(at, doc_id)) for at, doc_id in tar.searched(wanted))
    return [dict(zip(HOLDING.names, row, strict=True)) for row in rows]
