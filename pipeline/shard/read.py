"""Reading shards back, every payload checked: for `verify`, tests and tools. `register` makes object stores readable for plain
`webdataset`: `webdataset.WebDataset("s3://bucket/…/{000000..000009}.tar")` then reads through `corpusmill.common.storage`, with
credentials from the environment alone and no shell."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.schemas.recipe import FOLDERS
from corpusmill.schemas.shards import (
    INDEX,
    Block,
    BlockDocuments,
    Index,
    SetEntry,
    Shard,
    ShardIndex,
    ShardSet,
    ShardSetEntry,
    TextIndex,
)


class BlockData(NamedTuple):
    """A block's members: tokens, the starts of its document segments in them, and what these are."""

    tokens: npt.NDArray[np.unsignedinteger]
    starts: npt.NDArray[np.uint32]
    documents: BlockDocuments


class Document(NamedTuple):
    """A document out of a shard, without the end-of-document token."""

    doc_id: str
    tokens: npt.NDArray[np.unsignedinteger]


def read_set(folder: Folder, data: bytes | None = None) -> ShardSet:
    """`index.json` of a folder of shards; raises `WorkError` if it is none."""
    return ShardSet.from_json((folder / INDEX).read() if data is None else data, folder / INDEX)


def read_index(file: Folder, data: bytes | None = None) -> ShardIndex:
    """`index.json` of the token shards of a (source, split); raises `WorkError` if it is none."""
    return ShardIndex.from_json(file.read() if data is None else data, file)


def read_listed(folder: Folder, entry: SetEntry, data: bytes | None = None) -> Index:
    """The index that a line of the shard set in `folder` names; raises `WorkError` if it is none of that kind."""
    file = folder / entry.index
    model: type[Index] = ShardIndex if isinstance(entry, ShardSetEntry) else TextIndex
    return model.from_json(file.read() if data is None else data, file)


def above(folder: Folder, path: str) -> Folder:
    """`folder / path`, where the path may go up: how an index names its tokenizer."""
    for part in path.split("/"):
        folder = folder.parent if part == ".." else folder / part
    return folder


def read_tokenizer(file: Folder, eos_id: int) -> Bpe:
    """The tokenizer of a shard set, in which the token `eos_id` ends documents. Raises `UserError` if it cannot
    have written it, `FileNotFoundError` if there is none."""
    data = file.read()
    try:
        added = json.loads(data)["added_tokens"]
        eos_token = next(str(token["content"]) for token in added if token["id"] == eos_id)
    except (ValueError, KeyError, TypeError, StopIteration):
        raise UserError(
            f"{file}: no tokenizer with a special token {eos_id}, by which documents end in the shards"
        ) from None
    return load_bpe(data, eos_token, str(file))


def read_block(folder: Folder, shard: Shard, block: Block) -> BlockData:
    """A block by one range request; `folder` is that of its index. Raises `WorkError` naming the tar, the
    block and the member whose bytes are not those of the index."""
    file, begin = folder / shard.url, block.offset
    data = file.read_range(begin, block.json_offset + block.json_size - begin)
    payloads = []
    for suffix, offset, size, xxh3 in members(block):
        payloads.append(data[offset - begin : offset - begin + size])
        _check(file, f"{block.key}{suffix}", payloads[-1], xxh3)
    try:
        return decode_block(*payloads)
    except (ValueError, ValidationError) as error:
        raise WorkError(f"{folder / shard.url}: {block.key}: {str(error).splitlines()[0]}") from None


def read_documents(folder: Folder, shard: Shard, block: Block) -> BlockDocuments:
    """Metadata of a block's documents, by one range request; `folder` is that of its index."""
    data = (folder / shard.url).read_range(block.json_offset, block.json_size)
    _check(folder / shard.url, f"{block.key}.json", data, block.json_xxh3)
    try:
        return BlockDocuments.model_validate_json(data)
    except ValidationError as error:
        raise WorkError(f"{folder / shard.url}: {block.key}: {str(error).splitlines()[0]}") from None


def read_tokens(folder: Folder, index: ShardIndex, shard: Shard, block: Block) -> npt.NDArray[Any]:
    """A block's tokens alone, by one range request; `folder` is that of its index."""
    data = (folder / shard.url).read_range(block.offset, block.size)
    _check(folder / shard.url, f"{block.key}.tokens.npy", data, block.xxh3)
    return np.frombuffer(data, dtype=index.dtype, offset=block.header)


def members(block: Block) -> list[tuple[str, int, int, str]]:
    """(suffix, offset of the payload, size, xxh3) of a block's members, in the order of the tar."""
    targets = block.targets
    return [
        (".tokens.npy", block.offset, block.size, block.xxh3),
        (".docs.npy", block.docs_offset, block.docs_size, block.docs_xxh3),
        *([(".targets.npy", targets.offset, targets.size, targets.xxh3)] if targets else []),
        (".json", block.json_offset, block.json_size, block.json_xxh3),
    ]


def _check(file: Folder, name: str, data: bytes, xxh3: str) -> None:
    if checksum(data) != xxh3:
        raise WorkError(f"{file}: {name}: checksum differs")


def decode_block(tokens: bytes, starts: bytes, *more: bytes) -> BlockData:
    """The members' payloads as arrays and model; raises `ValueError` if one is malformed."""
    *targets, documents = more
    if targets and len(_array(targets[0])) != len(_array(tokens)):
        raise ValueError(".targets.npy does not hold a number for each token")
    return BlockData(_array(tokens), _array(starts), BlockDocuments.model_validate_json(documents))


def _array(data: bytes) -> Any:
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def iter_documents(folder: Folder, index: ShardIndex) -> Iterator[Document]:
    """Every document of a (source, split) in the order of the shards, parts in different blocks joined."""
    for shard in index.shardlist:
        pending: list[Any] = []
        for block in shard.blocks:
            data = read_block(folder, shard, block)
            edges = [*data.starts.tolist(), len(data.tokens)]
            for doc_id, low, high in zip(data.documents.doc_ids, edges[:-1], edges[1:], strict=True):
                pending.append(data.tokens[low:high])
                if int(data.tokens[high - 1]) == index.eos_id:
                    yield Document(doc_id, np.concatenate(pending)[:-1])
                    pending = []


@dataclass(frozen=True)
class Listed:
    """A (source, split), as tokens or as text: its line in the set and its index."""

    entry: SetEntry
    index: Index

    @property
    def place(self) -> str:
        """Its folder, relative to the set."""
        return self.entry.place

    def path(self, tar: int) -> str:
        """A tar of it, by its number in the index, relative to the set."""
        return self.entry.path(self.index.shardlist[tar].url)


class Opened(NamedTuple):
    """A shard set, all of whose lists are those that it names."""

    folder: Folder
    top: ShardSet
    sets: list[Listed]
    data: bytes  # of its own list


def set_folder(place: Folder) -> Folder | None:
    """The folder of the shard set of a run, a stage's output, or shards by themselves; None if there is none."""
    return next((f for f in (place / FOLDERS["shard"], place) if (f / INDEX).exists()), None)


def open_set(place: Folder) -> Opened:
    """The shard set of a run, or in a folder. Raises `UserError` if there is none, `WorkError` if a list is not the one
    that it names."""
    shards = set_folder(place)
    if shards is None:
        raise UserError(f"{place}: no shards there; give a run with shards, or its shards folder")
    data = (shards / INDEX).read()
    top = read_set(shards, data)
    sets: list[Listed] = []
    for entry in top.entries:
        file = shards / entry.index
        found = file.read()
        if checksum(found) != entry.index_xxh3:
            raise WorkError(
                f"{file}: changed since {shards / INDEX} was written; `corpusmill verify` shows details"
            )
        sets.append(Listed(entry, read_listed(shards, entry, found)))
    return Opened(shards, top, sets, data)


SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
_BUFFER = 4 << 20  # read ahead


def gopen(url: str, mode: str = "rb", bufsize: int = _BUFFER, **_: object) -> BinaryIO:
    """The stream of an object, as `webdataset.gopen` asks for one. Raises `ValueError` for another mode than reading,
    `FileNotFoundError` and `WorkError` as `Folder.open` does."""
    if not mode.startswith("r"):
        raise ValueError(f"{url}: opened for reading only, not '{mode}'")
    return Folder(url).open(max(bufsize, _BUFFER))


def register() -> None:
    """Register `SCHEMES` with `webdataset` in this process; forked worker processes inherit them, spawned
    ones call this themselves (`worker_init_fn`)."""
    from webdataset.gopen import gopen_schemes

    gopen_schemes.update(dict.fromkeys(SCHEMES, gopen))
