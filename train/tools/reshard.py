"""`corpusmill checkpoint reshard`: rewriting a checkpoint into another number of files, on one machine that need not hold it in
memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import MANIFEST, Box, StoredTensor, TensorTable
from corpusmill.train.checkpoint import store
from corpusmill.train.checkpoint.files import DTYPES, Content, raw, write_file
from corpusmill.train.checkpoint.pieces import Piece
from corpusmill.train.checkpoint.read import read_into
from corpusmill.train.checkpoint.store import MODEL, OPTIMIZER, Checkpoint, finish, folder_of
from corpusmill.train.checkpoint.write import file_names, packed

SLAB = 64 << 20  # bytes of a tensor in memory at once (or one row of it)


def reshard(
    found: Checkpoint, out: Folder, files: int | None = None, max_bytes: int | None = None
) -> list[str]:
    """Publish the checkpoint in the run's folder `out`, model and optimizer each in `files` files of about equal size, or
    in files of at most `max_bytes` (or one tensor); returns their names. Raises `UserError` if `out` has one already."""
    folder = folder_of(out, found.step)
    if (folder / MANIFEST).exists():
        raise UserError(f"{folder}: holds a checkpoint already; name another folder")
    store.remove(folder)
    published, table = [], {}
    for part in (MODEL, OPTIMIZER):
        tensors = sorted(found.part(part))
        contents = [
            Content(name, DTYPES[one.dtype], one.shape, partial(stream, found, name))
            for name, one in sorted(found.part(part).items())
        ]
        sizes = [c.bytes for c in contents]
        groups = packed(sizes, max_bytes) if max_bytes else balanced(sizes, files or 1)
        for name, group in zip(file_names(part, len(groups)), groups, strict=True):
            file, places = write_file(folder / name, [contents[number] for number in group])
            published.append(file)
            for number in group:
                tensor, stored = tensors[number], found.table[tensors[number]]
                box = Box(
                    offsets=(0,) * len(stored.shape), sizes=stored.shape, file=name, key=tensor, at=places[tensor]
                )  # fmt: skip
                table[tensor] = StoredTensor(shape=stored.shape, dtype=stored.dtype, boxes=[box])
    finish(folder, found.step, published, TensorTable(tensors=table), (found.folder / store.STATE).read())
    return [file.path for file in published]


def balanced(sizes: list[int], count: int) -> list[list[int]]:
    """The indexes of `sizes` in at most `count` groups of about equal sums: largest first, to the least filled."""
    groups: list[list[int]] = [[] for _ in range(min(count, len(sizes)))]
    totals = [0] * len(groups)
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        least = totals.index(min(totals))
        groups[least].append(number)
        totals[least] += sizes[number]
    return [sorted(group) for group in groups if group]


def stream(found: Checkpoint, name: str) -> Iterator[memoryview]:
    """The bytes of a whole tensor, some rows at a time."""
    stored = found.table[name]
    alone = found._replace(table={name: stored})
    shape, dtype = stored.shape or (1,), DTYPES[stored.dtype]
    row = torch.Size(shape[1:]).numel() * dtype.itemsize
    rows = max(1, SLAB // max(row, 1))
    for start in range(0, shape[0], rows):
        local = torch.empty((min(rows, shape[0] - start), *shape[1:]), dtype=dtype)
        offsets = (start, *(0 for _ in shape[1:]))
        piece = Piece(shape, offsets, local) if stored.shape else Piece((), (), local[0])
        read_into(alone, {name: piece}, one_process=True)
        yield from raw(local)
