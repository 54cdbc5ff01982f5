"""Reading a checkpoint into any layout, after all processes together have verified it. And `reshard`: rewriting a checkpoint
into another number of files, on one machine that need not hold it in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder, Truncated
from corpusmill.common.stores import Missing
from corpusmill.schemas.manifest import MANIFEST, Box, StoredTensor, TensorTable
from corpusmill.train.checkpoint import store
from corpusmill.train.checkpoint.collectives import Group, alone, first, place, together
from corpusmill.train.checkpoint.files import CODES, DTYPES, Content, Slab, fill, raw, slabs, write_file
from corpusmill.train.checkpoint.pieces import Model, Piece, live
from corpusmill.train.checkpoint.store import (
    MODEL,
    OPTIMIZER,
    Checkpoint,
    Damaged,
    Listing,
    finish,
    folder_of,
)
from corpusmill.train.checkpoint.write import Pieces, file_names, packed

SLAB = 64 << 20  # bytes of a tensor in memory at once (or one row of it)


def load_newest(run: Folder, refused: dict[int, str] | None = None, group: Group = None) -> Checkpoint | None:
    """The newest checkpoint whose every byte is as published, or None; `refused` collects what is wrong with newer ones, by
    step.

    All processes must call it: the first one lists the store, each hashes its share of the files, and all get the same
    answer. If the store fails, it raises `WorkError` in all.
    """
    for step, listing in reversed(first(lambda: store.steps(run), group).items()):
        try:
            return _proven(run, step, listing, group)
        except Damaged as error:
            if refused is not None:
                refused[step] = f"{folder_of(run, step)}: not taken: {error}"
    return None


def load_step(run: Folder, step: int, group: Group = None) -> Checkpoint:
    """The checkpoint of a step, verified by all processes as in `load_newest`. Raises `WorkError` if it is not valid."""
    try:
        return _proven(run, step, None, group)
    except Damaged as error:
        raise WorkError(f"{folder_of(run, step)}: not taken: {error}") from None


def _proven(run: Folder, step: int, listing: Listing | None, group: Group) -> Checkpoint:
    def opened() -> Checkpoint:
        try:
            return store.open_step(run, step, listing)
        except (Missing, Truncated) as error:  # gone since it was listed
            raise Damaged(str(error)) from None

    found = first(opened, group)
    rank, size = place(group)
    files = sorted(found.manifest.files, key=lambda file: -file.bytes)
    shares = together(lambda: store.damages(found.folder, files[rank::size]), group)
    wrong = [line for share in shares for line in share]
    if wrong:
        more = f" ({len(wrong)} files are bad)" if len(wrong) > 1 else ""
        raise Damaged(f"{min(wrong)}{more}")
    return found


@torch.no_grad()
def restore(
    found: Checkpoint, model: Model, optimizer: torch.optim.Optimizer | None = None, group: Group = None
) -> None:
    """Load the tensors into model and optimizer, from any layout into any other; all processes together.

    Raises `WorkError`, in all of them, if a tensor is missing, surplus, or of another shape or type.
    """
    pieces = live(model, optimizer)
    for part in (MODEL,) if optimizer is None else (MODEL, OPTIMIZER):
        _same(found, part, pieces, group)
    read_into(found, pieces, group)


def _same(found: Checkpoint, part: str, pieces: Pieces, group: Group) -> None:
    """Raise `WorkError` if the tensors of all processes together differ from the saved ones in name, shape or type."""
    saved = {name: f"{stored.dtype} {stored.shape}" for name, stored in found.part(part).items()}
    here = {
        name: f"{CODES[piece.local.dtype]} {tuple(piece.shape)}"
        for name, piece in pieces.items()
        if store.part_of(name) == part
    }

    def refuse(wrong: list[str]) -> None:
        if wrong:
            there, mine = saved.get(wrong[0], "absent"), here.get(wrong[0], "no such tensor")
            raise WorkError(
                f"{found.folder}: its {part} is another one: {wrong[0]} is {there}, this {part} has {mine}"
                f" ({len(wrong)} tensors differ)"
            )

    together(lambda: refuse([name for name in here if saved.get(name) != here[name]]), group)
    held = torch.tensor([name in here for name in saved], dtype=torch.uint8)
    if place(group)[1] > 1:
        dist.all_reduce(held, dist.ReduceOp.MAX, group)
    refuse([name for name, known in zip(saved, held.tolist(), strict=True) if not known])


@torch.no_grad()
def read_into(found: Checkpoint, pieces: Pieces, group: Group = None, one_process: bool = False) -> None:
    """Fill the pieces; with `one_process`, the other processes of the group do not take part."""

    def read() -> None:
        fill(found.folder, list(_wanted(found, pieces)))

    if one_process:
        alone(read)
    else:
        together(read, group)
    for piece in pieces.values():
        piece.put_back()


def _wanted(found: Checkpoint, pieces: Pieces) -> Iterator[tuple[Slab, torch.dtype]]:
    """What to read: the intersections of the pieces with the boxes stored."""
    for name, piece in pieces.items():
        stored, sizes = found.table[name], tuple(piece.local.shape)
        for box in stored.boxes:
            edges = zip(piece.offsets, sizes, box.offsets, box.sizes, strict=True)
            common = [(max(a, b), min(a + n, b + m)) for a, n, b, m in edges]
            if any(low >= high for low, high in common):
                continue
            target = piece.local
            for dim, (low, high) in enumerate(common):
                target = target.narrow(dim, low - piece.offsets[dim], high - low)
            start = tuple(low - offset for (low, _), offset in zip(common, box.offsets, strict=True))
            dtype = DTYPES[stored.dtype]
            for slab in slabs(target, box.file, box.at, box.sizes, start, dtype):
                yield slab, dtype


def read_tensors(found: Checkpoint, part: str = MODEL) -> dict[str, Tensor]:
    """The whole tensors of the model (or the optimizer), read by this process alone."""
    wanted = {name: torch.empty(one.shape, dtype=DTYPES[one.dtype]) for name, one in found.part(part).items()}
    pieces = {name: Piece(tuple(one.shape), (0,) * one.ndim, one) for name, one in wanted.items()}
    read_into(found, pieces, one_process=True)
    return wanted


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
