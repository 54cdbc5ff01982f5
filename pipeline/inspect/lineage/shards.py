"""Addresses as users write them (`SHARD:BLOCK:TOKEN`), and one block of a shard set, read by a counted range request: the list of
its (source, split) has its place and its checksums."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError, nearest
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.shards import INDEX, BlockDocuments, SetEntry, ShardSet, ShardSetEntry
from corpusmill.schemas.shards import Block as ListedBlock

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_ALLOWED = (
    "wanted is SHARD:BLOCK:TOKEN, such as books-train-000003:4:1207 or books-train-000003:4:100-120;"
    " all count from 0"
)


class Address(NamedTuple):
    """Tokens `first` to `last` (that one too) of a block. `shard` is a tar's stem or its path; `block` its number in the
    tar, or its key."""

    shard: str
    block: str
    first: int
    last: int

    def __str__(self) -> str:
        tokens = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.shard}:{self.block}:{tokens}"

    @property
    def stem(self) -> str:
        """The tar's name without `.tar`."""
        return self.shard.rstrip("/").rpartition("/")[2].removesuffix(".tar")

    @property
    def path(self) -> str | None:
        """The tar's path, if the address has one in place of a stem."""
        return self.shard if "/" in self.shard or self.shard.endswith(".tar") else None


def parse(text: str) -> Address:
    """An address as a user writes it; raises `UserError` for what is none."""
    parts = text.rsplit(":", 2)
    found = _RANGE.fullmatch(parts[-1]) if len(parts) == 3 and parts[0] and parts[1] else None
    if found is None:
        raise UserError(f"{text}: not an address of tokens; {_ALLOWED}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise UserError(f"{text}: the range ends before it begins; {_ALLOWED}")
    return Address(parts[0], parts[1], first, last)


def characters(option: str, text: str) -> tuple[int, int]:
    """(first, one past the last) of `A-B`, both ends counted from 0 and `B` the last one wanted; or of one `A`. `option`
    gave it."""
    found = _RANGE.fullmatch(text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"{option} {text}: wanted is A-B, the first and the last character, such as 0-99")
    return int(found[1]), int(found[2] or found[1]) + 1


class Vocabulary(TokenText):
    """The tokens of a byte-level tokenizer that `corpusmill.pipeline.bpe.load` has accepted."""

    def normalized(self, text: str) -> str:
        """A text as its tokens stand for it: the same, or its canonical composition where the tokenizer composes."""
        if not self.alters:
            return text
        import pyarrow as pa

        from corpusmill.pipeline.bpe.encode import normalized
        from corpusmill.pipeline.bpe.load import load_bpe

        bpe = load_bpe(self.data, self.added[self.eos_id], self.where)
        return str(normalized(bpe, pa.chunked_array([[text]], pa.large_string()))[0].as_py())


SAMPLE = np.dtype("<u8").itemsize  # of a tar's `.idx`
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass
class Requests:
    """Counts requests to the store, and the bytes that were received."""

    count: int = 0
    received: int = 0

    def read(self, file: Folder) -> bytes:
        """The whole object."""
        return self.took(file.read())

    def read_range(self, file: Folder, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`."""
        return self.took(file.read_range(offset, size))

    def took(self, data: bytes) -> bytes:
        """The same bytes, counted as one answer."""
        self.count += 1
        self.received += len(data)
        return data


# What to do where bytes are not as listed.
VERIFY = "`corpusmill verify` of the run, or of its shards, tells what is wrong"


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
    _lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False)

    @cached_property
    def index(self) -> ShardSet:
        """`index.json` of the set: a line for each (source, split)."""
        try:
            return ShardSet.model_validate_json(self.requests.read(self.folder / INDEX))
        except FileNotFoundError:
            message = f"{self.folder}: no shards there; give a run with shards, or its shards folder"
            raise UserError(message) from None
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

    def listed(self, entry: SetEntry) -> list[dict[str, Any]]:
        """The tars of a (source, split) as its index has them; raises `WorkError` if that is not the one that the set
        names."""
        if entry.index not in self._lists:
            file = self.folder / entry.index
            data = self.requests.read(file)
            if checksum(data) != entry.index_xxh3:
                raise WorkError(f"{file}: not the list that {self.folder / INDEX} names; {VERIFY}")
            self._lists[entry.index] = orjson.loads(data)["shardlist"]
        return self._lists[entry.index]

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
        """The block that an address names, by one range request. Raises `UserError` if the set has no such block, and
        `WorkError` if its bytes are not those that the set lists."""
        tar, line = self.tar_of(address), self._line(address)
        begin = line.offset
        try:
            data = self.requests.read_range(tar, begin, line.json_offset + line.json_size - begin)
        except FileNotFoundError:
            raise WorkError(f"{tar}: not there, but the set lists it; {VERIFY}") from None
        except WorkError as error:
            raise WorkError(f"{error}; {VERIFY}") from None
        payloads = []
        for suffix, offset, size, xxh3 in (
            (".tokens.npy", line.offset, line.size, line.xxh3),
            (".docs.npy", line.docs_offset, line.docs_size, line.docs_xxh3),
            (".json", line.json_offset, line.json_size, line.json_xxh3),
        ):
            payloads.append(data[offset - begin : offset - begin + size])
            if checksum(payloads[-1]) != xxh3:
                raise WorkError(f"{tar}: {line.key}{suffix}: checksum differs; {VERIFY}")
        try:
            tokens: Any = np.lib.format.read_array(io.BytesIO(payloads[0]), allow_pickle=False)
            return Block(line.key, tokens, BlockDocuments.model_validate_json(payloads[2]))
        except (ValueError, ValidationError) as error:
            raise WorkError(f"{tar}: {line.key}: {str(error).splitlines()[0]}; {VERIFY}") from None

    def _line(self, address: Address) -> ListedBlock:
        """The set's entry for the block that an address names."""
        tars = {shard["url"].removesuffix(".tar"): shard for shard in self.listed(self.entry_of(address))}
        if address.stem not in tars:
            names = list(tars)
            there = f"{names[0]} to {names[-1]}" if len(names) > 1 else ", ".join(names) or "none"
            raise UserError(f"{address}: no such shard in {self.folder}; of that set there is {there}")
        blocks: list[dict[str, Any]] = tars[address.stem]["blocks"]
        number = int(address.block) if _NUMBER.fullmatch(address.block) else None
        if number is None:
            number = next((i for i, line in enumerate(blocks) if line["key"] == address.block), len(blocks))
        if number >= len(blocks):
            keys = blocks[0]["key"], blocks[-1]["key"]
            allowed = f"{len(blocks)} blocks, 0 to {len(blocks) - 1}, or by key {keys[0]} to {keys[1]}"
            if len(blocks) == 1:
                allowed = f"one block, 0, or by key {keys[0]}"
            raise UserError(f"{address}: {address.stem}.tar has {allowed}")
        return ListedBlock.model_validate(blocks[number])

    def stretches(self, block: Block, address: Address) -> list[Stretch]:
        """The tokens of an address, document by document."""
        count = len(block.tokens)
        if address.last >= count:
            raise UserError(f"{address}: the block has {count} tokens, 0 to {count - 1}")
        docs, eos_id = block.documents, self.index.eos_id
        starts = np.asarray([*docs.token_starts, count], np.int64)
        found = []
        row = int(np.searchsorted(starts, address.first, side="right")) - 1
        while row < len(docs.doc_ids) and starts[row] <= address.last:
            low, high = int(starts[row]), int(starts[row + 1])
            first, last = max(low, address.first), min(high - 1, address.last)
            ends = int(block.tokens[last]) == eos_id and last == high - 1
            start, end = self.vocabulary.reach(
                block.tokens[low:high], docs.char_starts[row], first - low, last - low
            )
            found.append(Stretch(bytes.fromhex(docs.doc_ids[row]), first, last, start, end, ends))
            row += 1
        return found
