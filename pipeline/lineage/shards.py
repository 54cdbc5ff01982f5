"""One block of a shard set by range requests, counted: the tar's `.idx` says where it lies, one request brings it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from pipeline.lineage.address import Address
from pipeline.lineage.vocabulary import Vocabulary
from schemas.errors import UserError, WorkError, nearest
from schemas.ids import checksum
from schemas.shards import INDEX, BlockDocuments, ShardSet, ShardSetEntry
from schemas.storage import Folder

_SAMPLE = np.dtype("<u8").itemsize


@dataclass
class Requests:
    """What was asked of the store, and how many bytes came (`received`)."""

    count: int = 0
    received: int = 0

    def read(self, file: Folder) -> bytes:
        """The whole object."""
        return self._took(file.read())

    def read_range(self, file: Folder, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`."""
        return self._took(file.read_range(offset, size))

    def _took(self, data: bytes) -> bytes:
        self.count += 1
        self.received += len(data)
        return data


class Block(NamedTuple):
    """A block as it lies in its tar: its key, its tokens and the documents that they stand for."""

    key: str
    tokens: npt.NDArray[np.unsignedinteger]
    documents: BlockDocuments


class Stretch(NamedTuple):
    """Tokens `first` to `last` (that one too) of a block that belong to one document, and characters `start` to `end`
    of its cleaned text: those of which they hold a byte. `ends`: the last one is the end-of-document token."""

    doc_id: bytes
    first: int
    last: int
    start: int
    end: int
    ends: bool


@dataclass
class Shards:
    """A shard set. Raises `UserError` where there is none."""

    folder: Folder
    requests: Requests = field(default_factory=Requests)

    @cached_property
    def index(self) -> ShardSet:
        """`index.json` of the set: a line for each (source, split)."""
        try:
            return ShardSet.model_validate_json(self.requests.read(self.folder / INDEX))
        except FileNotFoundError:
            raise UserError(
                f"{self.folder}: no shards there; give a run with shards, or its shards folder"
            ) from None
        except ValidationError as error:
            raise UserError(f"{self.folder / INDEX}: not a shard set: {error.errors()[0]['msg']}") from None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Of the tokenizer beside the shards; raises `WorkError` if it is not the one that they were written with."""
        file = self.folder / self.index.tokenizer
        data = self.requests.read(file)
        if checksum(data) != self.index.tokenizer_xxh3:
            raise WorkError(f"{file}: not the tokenizer that the shards were written with (checksum differs)")
        return Vocabulary(data, self.index.eos_id, str(file))

    def entry_of(self, address: Address) -> ShardSetEntry:
        """The (source, split) whose tar an address names; raises `UserError` if there is none."""
        name, _, number = address.stem.rpartition("-")
        names = {f"{entry.source}-{entry.split}": entry for entry in self.index.sets}
        if name in names and number.isdigit():
            return names[name]
        if name in {f"{entry.source}-{entry.split}-text" for entry in self.index.texts}:
            raise UserError(f"{address}: it holds texts, not tokens: `corpusmill why` takes a document's id")
        raise UserError(
            f"{address}: no shard '{address.stem}' in {self.folder}{nearest(name, names)}; its sets are"
            f" {', '.join(sorted(names))}, and a shard is <set>-<number>"
        )

    def tar_of(self, address: Address) -> Folder:
        """The tar that an address names."""
        if address.path is not None:
            return Folder(address.path if address.path.endswith(".tar") else f"{address.path}.tar")
        return (self.folder / self.entry_of(address).index).parent / f"{address.stem}.tar"

    def block(self, address: Address) -> Block:
        """The block that an address names, by two range requests. Raises `UserError` if the set has no such block."""
        tar = self.tar_of(address)
        number = _number(address)
        idx = tar.parent / f"{tar.name}.idx"
        try:
            samples = idx.entry().size // _SAMPLE - 1
            if not number < samples:
                raise UserError(f"{address}: {tar.name} has {samples} blocks, 0 to {samples - 1}")
            start, end = np.frombuffer(
                self.requests.read_range(idx, number * _SAMPLE, 2 * _SAMPLE), "<u8"
            ).tolist()
            data = self.requests.read_range(tar, start, end - start)
        except FileNotFoundError:
            raise UserError(f"{address}: no such shard: {tar} (with its .idx) is not there") from None
        members = dict(_members(data, f"{tar}: block {number}"))
        keys = {name.partition(".")[0] for name in members}
        found = {name.partition(".")[2]: content for name, content in members.items()}
        if len(keys) != 1 or not {"tokens.npy", "json"} <= found.keys():
            raise WorkError(
                f"{tar}: no block lies where {idx.name} says; corpusmill verify tells what is wrong"
            )
        key = keys.pop()
        if not address.block.isdigit() and address.block != key:
            raise UserError(f"{address}: the block at that place of {tar.name} is {key}")
        try:
            tokens: Any = np.lib.format.read_array(io.BytesIO(found["tokens.npy"]), allow_pickle=False)
            return Block(key, tokens, BlockDocuments.model_validate_json(found["json"]))
        except (ValueError, ValidationError) as error:
            raise WorkError(f"{tar}: {key}: {str(error).splitlines()[0]}") from None

    def stretches(self, block: Block, address: Address) -> list[Stretch]:
        """The tokens of an address, document by document."""
        count = len(block.tokens)
        if address.last >= count:
            raise UserError(f"{address}: the block has {count} tokens, 0 to {count - 1}")
        docs, eos_id = block.documents, self.index.eos_id
        starts = np.asarray([*docs.token_starts, count], np.int64)
        lead, inside = self.vocabulary.characters(block.tokens)
        found = []
        row = int(np.searchsorted(starts, address.first, side="right")) - 1
        while row < len(docs.doc_ids) and starts[row] <= address.last:
            low, high = int(starts[row]), int(starts[row + 1])
            first, last = max(low, address.first), min(high - 1, address.last)
            # Characters that begin before the stretch; the byte at the start of a block may be the last one's.
            begun = docs.char_starts[row] + int(inside[low]) + int(lead[low:first].sum())
            ends = int(block.tokens[last]) == eos_id and last == high - 1
            start = begun - int(inside[first])
            end = begun + int(lead[first : last + 1].sum())
            found.append(Stretch(bytes.fromhex(docs.doc_ids[row]), first, last, start, end, ends))
            row += 1
        return found


def _number(address: Address) -> int:
    digits = address.block if address.block.isdigit() else address.block.rpartition("-")[2]
    if not digits.isdigit():
        raise UserError(f"{address}: block '{address.block}' is neither a number nor a block's key")
    return int(digits)


def _members(data: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """(name, payload) of the members in a piece of a tar."""
    at = 0
    while at + tarfile.BLOCKSIZE <= len(data):
        try:
            info = tarfile.TarInfo.frombuf(data[at : at + tarfile.BLOCKSIZE], "ascii", "strict")
        except (tarfile.HeaderError, UnicodeError) as error:
            raise WorkError(f"{where}: no tar header at byte {at} of it ({error})") from None
        at += tarfile.BLOCKSIZE
        yield info.name, data[at : at + info.size]
        at += -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
