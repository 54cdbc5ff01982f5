"""Token shards as the files of Megatron-LM (`.bin`, `.idx`) and of datatrove (`.ds`, `.ds.index`, `.ds.metadata`).

Both hold the tokens of all documents one after the other, each with its end-of-document token, and where documents
end. Blocks go through one at a time, each checked; what stays in memory is four bytes for every document of a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.read import read_tokens
from corpusmill.schemas.shards import Shard, ShardIndex

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
