"""Shard sets for other tools: token files of Megatron-LM and datatrove, indexes beside the tars for DALI and webshart.

Token files hold the tokens of all documents one after the other, each with its end-of-document token, and where documents
end. Blocks go through one at a time, each checked; what stays in memory is four bytes for every document of a file.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import orjson

from corpusmill.common.errors import UserError, WorkError, nearest
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.shard.read import members, open_set, read_tokens
from corpusmill.schemas.shards import Shard, ShardIndex, TextShard

MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {"uint16": 8, "uint32": 4}  # its codes of uint16 and int32: ids are far below 2**31
MAX_LENGTH = 2**31 - 1  # tokens of a sequence, an int32 in `.idx`
_PIECE = 1 << 20  # documents whose offsets are made at once


def _copied(
    folder: Folder, index: ShardIndex, shards: Iterable[Shard], target: Folder, path: str
) -> npt.NDArray[np.int32]:
    """Write the tokens of these tars as `target/path`; tokens of each document, the one that ends it included."""
    lengths: list[npt.NDArray[np.int32]] = []
    begun = 0  # tokens of a document that the block before did not end
    with (target / path).create() as stream:
        for shard in shards:
            for block in shard.blocks:
                tokens = read_tokens(folder, index, shard, block)
                stream.write(tokens.view(np.uint8).data)
                ends = np.flatnonzero(tokens == index.eos_id) + 1
                if len(ends):
                    found = np.diff(ends, prepend=-begun)
                    begun = 0
                    if int(found.max()) > MAX_LENGTH:
                        raise UserError(
                            f"{target / path}: a document of {int(found.max())} tokens does not fit in it"
                        )
                    lengths.append(found.astype(np.int32))
                begun += len(tokens) - (int(ends[-1]) if len(ends) else 0)
    if begun:
        raise WorkError(f"{folder}: the last document has no end")
    return np.concatenate([np.zeros(0, np.int32), *lengths])


def megatron(folder: Folder, index: ShardIndex, target: Folder) -> list[str]:
    """Write `<source>-<split>.bin` and `.idx` below `target`; their paths.

    `.idx` as `megatron.core.datasets.indexed_dataset` reads it: magic, version 1, type, sequences, documents + 1, then
    the lengths of all sequences (int32), their offsets in bytes (int64), and the first sequence of each document
    (int64). A sequence is a document.
    """
    lengths = _copied(folder, index, index.shardlist, target, f"{index.name}.bin")
    count = len(lengths)
    item = np.dtype(index.dtype).itemsize
    with (target / f"{index.name}.idx").create() as stream:
        stream.write(MAGIC + struct.pack("<QBQQ", 1, MEGATRON_TYPES[index.dtype], count, count + 1))
        stream.write(lengths.astype("<i4").tobytes())
        for ends in _ends(lengths):
            stream.write(((ends - lengths[: len(ends)].astype(np.int64)) * item).astype("<i8").tobytes())
            lengths = lengths[len(ends) :]
        for start in range(0, count + 1, _PIECE):
            stream.write(np.arange(start, min(start + _PIECE, count + 1), dtype="<i8").tobytes())
    return [f"{index.name}.bin", f"{index.name}.idx"]


def datatrove(folder: Folder, index: ShardIndex, target: Folder) -> list[str]:
    """Write `<source>-<split>/<tar's name>.ds` with `.ds.index` and `.ds.metadata` below `target`, one for each tar;
    their paths.

    As `datatrove.pipeline.tokens.tokenizer.TokenizedFile` writes them: the index is the end of every document in
    tokens (uint64), the metadata the tokenizer's name and bytes of a token, and the number of tokens.
    """
    made = []
    for shard in index.shardlist:
        path = f"{index.name}/{shard.url.removesuffix('.tar')}.ds"
        lengths = _copied(folder, index, [shard], target, path)
        with (target / f"{path}.index").create() as stream:
            for ends in _ends(lengths):
                stream.write(ends.astype("<u8").tobytes())
        size = np.dtype(index.dtype).itemsize
        about = f"{index.tokenizer.rpartition('/')[2]}|{size}\n{shard.ntokens}\n{_metric(shard.ntokens)}"
        (target / f"{path}.metadata").write(about.encode())
        made += [path, f"{path}.index", f"{path}.metadata"]
    return made


def _ends(lengths: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int64]]:
    """Where documents end, in tokens, a piece at a time."""
    before = 0
    for start in range(0, len(lengths), _PIECE):
        ends = before + np.cumsum(lengths[start : start + _PIECE], dtype=np.int64)
        before = int(ends[-1])
        yield ends


def _metric(tokens: int) -> str:
    """Such as `1.23 MT`, three digits: the last line of datatrove's metadata, for people."""
    value, power = float(tokens), 0
    while value >= 999.5 and power < 5:
        value, power = value / 1000, power + 1
    digits = max(0, 3 - len(str(int(value)))) if tokens else 2
    return f"{value:.{digits}f} {' kMGTP'[power].strip()}T"


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


Target = Literal["megatron", "datatrove", "dali", "webshart"]

_TOKENS: dict[str, Callable[[Folder, ShardIndex, Folder], list[str]]] = {
    "megatron": megatron,
    "datatrove": datatrove,
}
_SIDECARS: dict[str, Callable[[Folder, Shard | TextShard, Folder], str]] = {
    "dali": dali,
    "webshart": webshart,
}


class _Task(NamedTuple):
    """A (source, split) to copy, or a tar to index; `place` is the folder of its index."""

    place: str
    whole: ShardIndex | None
    shard: Shard | TextShard | None


def export(shards: Folder, out: Folder, to: str, scheduler: Scheduler) -> list[str]:
    """Write the shard set in `shards`, or of the run there, for the tool `to` below `out`; the paths of the files, sorted.

    Megatron-LM: `<source>-<split>.bin` and `.idx`. datatrove: `<source>-<split>/*.ds`. DALI and webshart: an index for
    every tar, in folders as those of the shards, so that `out` may be the folder of the shards itself.
    Raises `UserError` for another tool, no shards there, shards without what the tool reads, or token files in the folder
    of the shards: `run` owns it, and deletes there what it did not write.
    """
    if to not in get_args(Target):
        hint = nearest(to, get_args(Target))
        raise UserError(f"--to: '{to}': allowed: {', '.join(get_args(Target))}{hint}")
    tasks: list[_Task] = []
    opened = open_set(shards)
    shards = opened.folder
    if to in _TOKENS and out.within(shards):
        raise UserError(
            f"{out}: {to} does not go into the folder of the shards, {shards}; only {', '.join(_SIDECARS)} may; give another OUT"
        )
    for listed in opened.sets:
        if to in _SIDECARS:
            tasks += [_Task(listed.place, None, shard) for shard in listed.index.shardlist]
        elif isinstance(listed.index, ShardIndex):
            tasks.append(_Task(listed.place, listed.index, None))
    if to in _TOKENS and not tasks:
        raise UserError(
            f"{shards}: no token shards there, only text; {to} reads tokens: set shard.format: tokens or both"
        )
    made = scheduler.map(partial(_one, shards, out, to), tasks, f"export to {to}")
    files = sorted(path for paths in made for path in paths)
    out.sweep(files)  # what an interrupted export had begun of them
    return files


def _one(shards: Folder, out: Folder, to: str, task: _Task) -> list[str]:
    if task.whole is not None:
        return _TOKENS[to](shards / task.place, task.whole, out)
    assert task.shard is not None
    return [f"{task.place}/{_SIDECARS[to](shards / task.place, task.shard, out / task.place)}"]
