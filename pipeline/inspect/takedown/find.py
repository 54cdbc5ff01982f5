"""Which tars hold given documents, without reading them: documents lie in the order of the hash of their id."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.shard.read import (
    Opened,
    open_set,
    read_documents,
)
from corpusmill.schemas.documents import ID
from corpusmill.schemas.shards import Shard, TextShard

SIZE = slice(124, 135)  # of a USTAR header: the member's size, in octal digits

Key = tuple[int, bytes]  # (hash, id): the order of a set's documents


@dataclass
class Finds:
    """Documents (16 bytes each) by tar: its number in the list of sets, its number there. `read`: range requests."""

    tars: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)
    read: int = 0

    def add(self, place: tuple[int, int], doc_id: bytes) -> None:
        self.tars.setdefault(place, set()).add(doc_id)

    @property
    def documents(self) -> set[bytes]:
        return set().union(*self.tars.values())


def find(
    opened: Opened, sources: Mapping[bytes, str | None], seed: int | None, scheduler: Scheduler
) -> Finds:
    """Where the documents are. `sources`: of each the source, None if it is not known. `seed`: of the hash that orders
    them; without it, or for so many that halving comes by all of them, every block's list of documents is read, of text
    every header."""
    finds = Finds()
    ids = sorted(sources)
    if not ids:
        return finds
    hashes = hash_ids(pa.array(ids, ID), seed or 0).tolist()
    for number, listed in enumerate(opened.sets):
        mine = [i for i, doc_id in enumerate(ids) if sources[doc_id] in (None, listed.entry.source)]
        keys = sorted((hashes[i], ids[i]) for i in mine)
        if not keys:
            continue
        items = sum(shard.nsamples for shard in listed.index.shardlist)
        if seed is None or len(keys) * items.bit_length() >= items:
            _scan(opened, number, {doc_id for _, doc_id in keys}, scheduler, finds)
        else:
            _search(_Probe(opened, number, seed, finds), keys)
    return finds


class _Probe:
    """The items of a set in their order, each a block (tokens) or a document (text): its documents, as keys."""

    def __init__(self, opened: Opened, number: int, seed: int, finds: Finds) -> None:
        self.listed, self.number, self.seed, self.finds = opened.sets[number], number, seed, finds
        self.folder = opened.folder / self.listed.place
        shards = self.listed.index.shardlist
        self.ends = np.cumsum([shard.nsamples for shard in shards]).tolist()
        self.count = self.ends[-1] if self.ends else 0
        self._known: dict[int, list[Key]] = {}

    def tar(self, item: int) -> int:
        return int(np.searchsorted(self.ends, item, side="right"))

    def keys(self, item: int) -> list[Key]:
        """(hash, id) of each document of an item, in their order."""
        if item not in self._known:
            shard = self.listed.index.shardlist[self.tar(item)]
            sample = item - (self.ends[self.tar(item)] - shard.nsamples)
            if isinstance(shard, Shard):
                documents = read_documents(self.folder, shard, shard.blocks[sample])
                ids = [bytes.fromhex(doc_id) for doc_id in documents.doc_ids]
                self.finds.read += 1
            else:
                ids = [_text_id(self.folder / shard.url, sample)]
                self.finds.read += 2
            self._known[item] = list(zip(hash_ids(pa.array(ids, ID), self.seed).tolist(), ids, strict=True))
        return self._known[item]


def _search(probe: _Probe, keys: Sequence[Key]) -> None:
    """Each key by halving; an item is read once for all of them."""
    low = 0
    for key in keys:
        high = probe.count
        while low < high:  # the first item that does not end before the key
            middle = (low + high) // 2
            if probe.keys(middle)[-1] < key:
                low = middle + 1
            else:
                high = middle
        item = low
        while item < probe.count and probe.keys(item)[0] <= key:
            if key in probe.keys(item):
                probe.finds.add((probe.number, probe.tar(item)), key[1])
            item += 1


def _text_id(file: Folder, sample: int) -> bytes:
    """The document of a sample of a text shard, by its place in `.idx` and its header."""
    start = int(np.frombuffer((file.parent / f"{file.name}.idx").read_range(8 * sample, 8), "<u8")[0])
    return _id_at(file, start)


def text_ids(folder: Folder, shard: TextShard) -> Iterator[tuple[int, bytes]]:
    """(place of the first header, document) of every sample of a text shard, by one request each and one for all."""
    file, starts = folder / shard.url, text_edges(folder, shard)[:-1]
    yield from zip(starts, folder.at_once(lambda start: _id_at(file, start), starts), strict=True)


def read_text(file: Folder, start: int) -> str:
    """The text of the sample whose first header stands there."""
    size = int(file.read_range(start, tarfile.BLOCKSIZE)[SIZE], 8)
    return file.read_range(start + tarfile.BLOCKSIZE, size).decode()


def text_edges(folder: Folder, shard: TextShard) -> list[int]:
    """Where the samples of a text shard begin and the last one ends, by its `.idx`. Raises `WorkError` if that is not
    of so many."""
    file = folder / f"{shard.url}.idx"
    data = file.read()
    edges: list[int] = np.frombuffer(data[: len(data) // 8 * 8], "<u8").tolist()
    whole = len(data) == 8 * (shard.nsamples + 1)
    if not whole or edges != sorted(edges) or edges[-1] > shard.filesize:
        raise WorkError(f"{file}: its offsets are not those of the tar; `corpusmill verify` tells more")
    return edges


def _id_at(file: Folder, start: int) -> bytes:
    return id_in(file.read_range(start, tarfile.BLOCKSIZE), f"{file}: byte {start}")


def id_in(header: bytes, where: str) -> bytes:
    """The document that a header of a text shard names; raises `WorkError` naming the place if it names none."""
    try:
        doc_id = bytes.fromhex(header[:32].decode("ascii"))
    except ValueError:
        doc_id = b""
    if len(doc_id) != 16 or header[32:33] != b".":
        raise WorkError(f"{where}: no document's header there; `corpusmill verify` tells what is wrong")
    return doc_id


@dataclass(frozen=True)
class _Scan:
    """Look through one tar."""

    folder: Folder
    shard: Shard | TextShard
    wanted: frozenset[bytes]


def _scan(opened: Opened, number: int, wanted: set[bytes], scheduler: Scheduler, finds: Finds) -> None:
    listed = opened.sets[number]
    folder = opened.folder / listed.place
    tasks = [_Scan(folder, shard, frozenset(wanted)) for shard in listed.index.shardlist]
    for tar, (found, read) in enumerate(scheduler.map(_scanned, tasks, f"takedown: {listed.index.name}")):
        finds.read += read
        for doc_id in found:
            finds.add((number, tar), doc_id)


def _scanned(task: _Scan) -> tuple[set[bytes], int]:
    """(the wanted documents in a tar, range requests)."""
    shard, folder = task.shard, task.folder
    if isinstance(shard, TextShard):
        ids = {doc_id for _, doc_id in text_ids(folder, shard) if doc_id in task.wanted}
        return ids, 1 + shard.nsamples
    found: set[bytes] = set()
    for documents in folder.at_once(lambda block: read_documents(folder, shard, block), shard.blocks):
        found |= {bytes.fromhex(doc_id) for doc_id in documents.doc_ids} & task.wanted
    return found, len(shard.blocks)


HOLDING = pa.schema(
    [
        pa.field("doc_id", pa.binary(16), nullable=False),
        pa.field("shard", pa.string(), nullable=False),  # path of the tar, relative to the shard set
        pa.field("block", pa.string(), nullable=False),  # the sample's key
        pa.field("char_start", pa.int64(), nullable=False),  # of the cleaned text
        pa.field("char_end", pa.int64(), nullable=False),
    ]
)


class _Tar(NamedTuple):
    """A tar that holds some of the documents; `folder` is that of its index."""

    folder: Folder
    path: str
    shard: Shard | TextShard
    wanted: frozenset[bytes]


def holding(shards: Folder, doc_ids: Sequence[bytes], scheduler: Scheduler) -> pa.Table:
    """Every segment of the documents in the shard set, by document; every list of documents is read. `shards` may be a run's
    folder. Raises `UserError` if there is no shard set."""
    opened = open_set(shards)
    found = find(opened, dict.fromkeys(doc_ids), None, scheduler)
    tars = []
    for (number, tar), wanted in sorted(found.tars.items()):
        listed = opened.sets[number]
        shard = listed.index.shardlist[tar]
        tars.append(_Tar(opened.folder / listed.place, listed.path(tar), shard, frozenset(wanted)))
    rows = scheduler.map(_segments, tars, "dedup shards")
    table = pa.Table.from_pylist([row for mine in rows for row in mine], HOLDING)
    return table.sort_by([("doc_id", "ascending"), ("shard", "ascending"), ("block", "ascending")])


def _segments(tar: _Tar) -> list[dict[str, object]]:
    return [dict(zip(HOLDING.names, row, strict=True)) for row in _rows(tar)]


def _rows(tar: _Tar) -> Iterator[tuple[bytes, str, str, int, int]]:
    folder, shard = tar.folder, tar.shard
    if isinstance(shard, TextShard):
        for start, doc_id in text_ids(folder, shard):
            if doc_id in tar.wanted:
                yield doc_id, tar.path, doc_id.hex(), 0, len(read_text(folder / shard.url, start))
        return
    said = folder.at_once(lambda block: read_documents(folder, shard, block), shard.blocks)
    for block, documents in zip(shard.blocks, said, strict=True):
        ids = map(bytes.fromhex, documents.doc_ids)
        for doc_id, start, end in zip(ids, documents.char_starts, documents.char_ends, strict=True):
            if doc_id in tar.wanted:
                yield doc_id, tar.path, block.key, start, end
