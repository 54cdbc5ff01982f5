"""Reading a checkpoint into any layout. Whether it is whole is decided once, for all processes together."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder, Missing, Truncated
from corpusmill.train.checkpoint import store
from corpusmill.train.checkpoint.files import CODES, DTYPES, fill, slabs
from corpusmill.train.checkpoint.pieces import Model, Piece, live
from corpusmill.train.checkpoint.store import MODEL, Checkpoint, Damaged, Listing, folder_of
from corpusmill.train.checkpoint.together import Group, first, place, together, told
from corpusmill.train.checkpoint.write import Pieces


def load_newest(run: Folder, refused: dict[int, str] | None = None, group: Group = None) -> Checkpoint | None:
    """The newest checkpoint whose every byte is as published, or None; `refused` collects why newer
    ones are not, by step.

    Where there are several processes all must call it: the first one lists the store, each hashes its share of the files,
    and all come to the same answer. A store that fails is no answer: it raises `WorkError` in all.
    """
    for step, listing in reversed(first(lambda: store.steps(run), group).items()):
        try:
            return _proven(run, step, listing, group)
        except Damaged as error:
            if refused is not None:
                refused[step] = f"{folder_of(run, step)}: not taken: {error}"
    return None


def load_step(run: Folder, step: int, group: Group = None) -> Checkpoint:
    """A certain checkpoint, by all processes, proven as `load_newest` does. Raises `WorkError` if it is not whole."""
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
    """Put the tensors in place, whatever layout wrote them and whatever this one is; all processes together.

    Raises `WorkError`, in all of them, if a tensor is missing, too many, or of another shape or type.
    """
    pieces = live(model, optimizer)
    for part in (MODEL,) if optimizer is None else (MODEL, store.OPTIMIZER):
        _same(found, part, pieces, group)
    read_into(found, pieces, group)


def _same(found: Checkpoint, part: str, pieces: Pieces, group: Group) -> None:
    """Refuse tensors that differ by name, shape or type; those of all processes together must be all there are."""
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


def read_into(found: Checkpoint, pieces: Pieces, group: Group = None, alone: bool = False) -> None:
    """Fill the pieces; with `alone` in this process only."""
    one = alone or place(group)[1] == 1
    load = partial(dcp.load, storage_reader=Reader(found), planner=Into(), process_group=group, no_dist=one)
    told(lambda: load(dict(pieces)))
    for piece in pieces.values():
        piece.put_back()


def read_tensors(found: Checkpoint, part: str = MODEL) -> dict[str, Tensor]:
    """The whole tensors of the model (or the optimizer), in this process alone: to export, to generate, to look at."""
    wanted = {
        name: torch.empty(stored.shape, dtype=DTYPES[stored.dtype])
        for name, stored in found.part(part).items()
    }
    read_into(found, {name: whole(tensor) for name, tensor in wanted.items()}, alone=True)
    return wanted


def whole(tensor: Tensor) -> Piece:
    return Piece(tuple(tensor.shape), (0,) * tensor.ndim, tensor)


class Into(LoadPlanner):
    """Reads into live `Piece`s, by the intersections of their boxes with those stored."""

    def set_up_planner(
        self, state_dict: Any, metadata: meta.Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self.pieces: Pieces = state_dict
        self.metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        items: list[ReadItem] = []
        for name, piece in self.pieces.items():
            stored = self.metadata.state_dict_metadata[name]
            box = meta.ChunkStorageMetadata(torch.Size(piece.offsets), piece.local.shape)
            if piece.local.numel():
                items += create_read_items_for_chunk_list(name, stored, [box])  # type: ignore[arg-type]
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        target = self.pieces[read_item.dest_index.fqn].local
        for dim, (start, size) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            target = target.narrow(dim, start, size)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None: ...

    def load_bytes(self, read_item: ReadItem, value: Any) -> None:
        raise AssertionError("a checkpoint holds tensors alone")


class Reader(StorageReader):
    """Reads the spans of bytes that are needed."""

    def __init__(self, found: Checkpoint) -> None:
        self.found = found

    def reset(self, checkpoint_id: Any = None) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def read_metadata(self) -> meta.Metadata:
        return meta.Metadata(
            {
                name: meta.TensorStorageMetadata(
                    meta.TensorProperties(dtype=DTYPES[stored.dtype]),
                    torch.Size(stored.shape),
                    [
                        meta.ChunkStorageMetadata(torch.Size(box.offsets), torch.Size(box.sizes))
                        for box in stored.boxes
                    ],
                )
                for name, stored in self.found.table.items()
            }
        )

    def set_up_storage_reader(self, metadata: meta.Metadata, is_coordinator: bool, *args: Any) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @torch.no_grad()
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted = []
        for item in plan.items:
            stored = self.found.table[item.storage_index.fqn]
            box, dtype = stored.boxes[item.storage_index.index or 0], DTYPES[stored.dtype]
            start = tuple(item.storage_offsets)
            found = slabs(planner.resolve_tensor(item), box.file, box.at, box.sizes, start, dtype)
            wanted += [(slab, dtype) for slab in found]
        fill(self.found.folder, wanted)
        done: Future[None] = Future()
        done.set_result(None)
        return done
