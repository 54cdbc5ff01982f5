"""Reading a checkpoint into any layout, after all processes together have verified it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder, Truncated
from corpusmill.common.stores import Missing
from corpusmill.train.checkpoint import store
from corpusmill.train.checkpoint.collectives import Group, alone, first, place, together
from corpusmill.train.checkpoint.files import CODES, DTYPES, Slab, fill, slabs
from corpusmill.train.checkpoint.pieces import Model, Piece, live
from corpusmill.train.checkpoint.store import (
    MODEL,
    OPTIMIZER,
    Checkpoint,
    Damaged,
    Listing,
    folder_of,
)
from corpusmill.train.checkpoint.write import Pieces


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
    restore_pieces(found, pieces, (MODEL,) if optimizer is None else (MODEL, OPTIMIZER), group)


def restore_pieces(
    found: Checkpoint, pieces: Pieces, parts: Sequence[str], group: Group = None, some: bool = False
) -> None:
    """Load the tensors into these pieces, those of all processes together all that are saved, or, with `some`, not all of them. Raises
    as `restore`."""
    for part in parts:
        _same(found, part, pieces, group, some)
    read_into(found, pieces, group)


def _same(found: Checkpoint, part: str, pieces: Pieces, group: Group, some: bool) -> None:
    """Raise `WorkError` if the tensors of all processes together differ from the saved ones (`some`: a part of them) in name, shape or
    type."""
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
    if some:
        return
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


def read_tensors(found: Checkpoint, part: str = MODEL, key: str | None = None) -> dict[str, Tensor]:
    """The whole tensors of the model (or the optimizer; of its state those of one `key`), read by this process alone."""
    wanted = {
        name: torch.empty(one.shape, dtype=DTYPES[one.dtype])
        for name, one in found.part(part).items()
        if key is None or name.startswith(f"{key}/")
    }
    pieces = {name: Piece(tuple(one.shape), (0,) * one.ndim, one) for name, one in wanted.items()}
    read_into(found, pieces, one_process=True)
    return wanted
