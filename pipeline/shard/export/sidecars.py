"""Indexes beside tars, for tools that read the same tars: NVIDIA DALI's `.idx` (`tools/wds2idx.py`, v1.2) and webshart's
`.json`. Token shards and text shards alike."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.read import members
from corpusmill.schemas.shards import Shard, TextShard

_BUFFER = 8 << 20  # of a remote tar read at once


class Listed(NamedTuple):
    """A member of a tar: `offset` and `size` are those of its payload."""

    name: str
    offset: int
    size: int


def listed(folder: Folder, shard: Shard | TextShard) -> Iterator[Listed]:
    """The members of a tar in their order: of token shards from the index, of text shards from the tar's headers.

    Raises `WorkError` if the tar has not as many members as the index says.
    """
    if isinstance(shard, Shard):
        for block in shard.blocks:
            yield from (
                Listed(f"{block.key}{suffix}", offset, size) for suffix, offset, size, _ in members(block)
            )
        return
    count = 0
    with (folder / shard.url).open(_BUFFER) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for info in tar:
            count += 1
            yield Listed(info.name, info.offset_data, info.size)
    if count != 2 * shard.nsamples:
        raise WorkError(f"{folder / shard.url}: {count} members, the index says {2 * shard.nsamples}")


def dali(folder: Folder, shard: Shard | TextShard, target: Folder) -> str:
    """Write `<tar's name>.idx`: a line of version and samples, then one a sample, of extension, offset, size and name
    of each of its members. Returns the path."""
    path = f"{shard.url.removesuffix('.tar')}.idx"
    with (target / path).create() as stream:
        stream.write(f"v1.2 {shard.nsamples}".encode())
        last = ""
        for member in listed(folder, shard):
            key, _, extension = member.name.partition(".")
            stream.write(b" " if key == last else b"\n")
            stream.write(f"{extension} {member.offset} {member.size} {member.name}".encode())
            last = key
        stream.write(b"\n")
    return path


def webshart(folder: Folder, shard: Shard | TextShard, target: Folder) -> str:
    """Write `<tar's name>.json`: the tar's size and sha256, and offset and length of each member. Returns the path."""
    path = f"{shard.url.removesuffix('.tar')}.json"
    with (target / path).create() as stream:
        head = orjson.dumps({"path": shard.url, "filesize": shard.filesize, "hash": shard.sha256})
        stream.write(head[:-1] + b',"files":{')
        first = True
        for member in listed(folder, shard):
            entry = {"offset": member.offset, "length": member.size}
            stream.write((b"" if first else b",\n") + orjson.dumps(member.name) + b":" + orjson.dumps(entry))
            first = False
        stream.write(b"}}\n")
    return path
