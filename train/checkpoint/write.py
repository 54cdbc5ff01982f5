"""Writing a checkpoint: `torch.distributed.checkpoint` plans and deals the boxes, this writes them, the manifest last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from corpusmill.common.storage import Folder
from corpusmill.schemas.checkpoint import Box, StoredTensor, TensorTable
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.train.checkpoint.files import CODES, Content, raw, write_file
from corpusmill.train.checkpoint.pieces import Piece
from corpusmill.train.checkpoint.store import MODEL, OPTIMIZER, finish, folder_of, part_of, remove
from corpusmill.train.checkpoint.together import Group, place, told

FILE_BYTES = 4 << 30  # of one file, or one tensor
Pieces = dict[str, Piece]


def save(
    run: Folder,
    step: int,
    pieces: Pieces,
    state: dict[str, Any],
    group: Group = None,
    file_bytes: int = FILE_BYTES,
) -> Folder:
    """Publish a checkpoint, all processes together; whoever kills one of them leaves no manifest, hence nothing.

    `pieces` is what this process holds (`pieces.live`); a box that several hold is written by one of them. `state`,
    any JSON, is taken from the first process. Raises `WorkError` in all processes if one of them fails.
    """
    folder = folder_of(run, step)
    writer = Writer(folder, step, state, file_bytes)
    alone = place(group)[1] == 1
    call = partial(dcp.save, storage_writer=writer, planner=Planner(), process_group=group, no_dist=alone)
    told(lambda: call(dict(pieces)))
    return folder


def items_of(pieces: Pieces) -> list[WriteItem]:
    """What this process could write: its pieces that are not empty (or that belong to an empty tensor)."""
    return [
        WriteItem(
            index=meta.MetadataIndex(name, piece.offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                chunk=meta.ChunkStorageMetadata(torch.Size(piece.offsets), piece.local.shape),
                properties=meta.TensorProperties(dtype=piece.local.dtype),
                size=torch.Size(piece.shape),
            ),
        )
        for name, piece in sorted(pieces.items())
        if piece.local.numel() or 0 in piece.shape
    ]


class Planner(DefaultSavePlanner):
    """PyTorch's planner over `Piece`s: replicas written once, by whoever has least to write; coverage is checked."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan(items_of(self.state_dict))
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        local: torch.Tensor = self.state_dict[write_item.index.fqn].local
        return local


class Writer(StorageWriter):
    """Each process writes its share as safetensors files; the first one the rest."""

    def __init__(self, folder: Folder, step: int, state: dict[str, Any], file_bytes: int) -> None:
        self.folder, self.step, self.state, self.file_bytes = folder, step, state, file_bytes

    def reset(self, checkpoint_id: Any = None) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if is_coordinator:  # before anyone writes: what lies there must not vouch for the new files
            remove(self.folder)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Name the files of all processes: `storage_data` becomes file -> numbers of the items in it."""
        groups = [(rank, part, group) for rank, plan in enumerate(plans) for part, group in self._files(plan)]
        shares: list[dict[str, list[int]]] = [{} for _ in plans]
        for part in (MODEL, OPTIMIZER):
            of_part = [(rank, group) for rank, found, group in groups if found == part]
            for (rank, group), name in zip(of_part, file_names(part, len(of_part)), strict=True):
                shares[rank][name] = group
        return [replace(plan, storage_data=share) for plan, share in zip(plans, shares, strict=True)]

    def _files(self, plan: SavePlan) -> list[tuple[str, list[int]]]:
        found = []
        for part in (MODEL, OPTIMIZER):
            numbers = [number for number, item in enumerate(plan.items) if part_of(item.index.fqn) == part]
            sizes = [plan.items[number].tensor_storage_size() or 0 for number in numbers]
            found += [(part, [numbers[k] for k in group]) for group in packed(sizes, self.file_bytes)]
        return found

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results = []
        for name, numbers in plan.storage_data.items():
            items = {key_of(plan.items[number]): plan.items[number] for number in numbers}
            tensors = {key: cast(torch.Tensor, planner.resolve_data(item)) for key, item in items.items()}
            contents = [
                Content(key, tensor.dtype, tuple(tensor.shape), partial(raw, tensor))
                for key, tensor in tensors.items()
            ]
            file, places = write_file(self.folder / name, contents)
            for key, item in items.items():
                chunk = item.tensor_data.chunk
                box = Box(
                    offsets=tuple(chunk.offsets), sizes=tuple(chunk.sizes), file=name, key=key, at=places[key]
                )
                results.append(WriteResult(item.index, item.tensor_storage_size() or 0, (box, file)))
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: meta.Metadata, results: list[list[WriteResult]]) -> None:
        boxes: dict[str, list[Box]] = {}
        files: dict[str, PublishedFile] = {}
        for result in (result for share in results for result in share):
            box, file = result.storage_data
            boxes.setdefault(result.index.fqn, []).append(box)
            files[file.path] = file
        tensors = {
            name: StoredTensor(
                shape=tuple(found.size),  # type: ignore[union-attr]
                dtype=CODES[found.properties.dtype],  # type: ignore[union-attr]
                boxes=sorted(boxes[name], key=lambda box: box.offsets),
            )
            for name, found in sorted(metadata.state_dict_metadata.items())
        }
        listed = [files[name] for name in sorted(files)]
        finish(self.folder, self.step, listed, TensorTable(tensors=tensors), json.dumps(self.state).encode())


def key_of(item: WriteItem) -> str:
    """The name of a box in its file: the tensor's, with the bounds of what is but a part of it."""
    data = item.tensor_data
    assert data is not None
    if data.chunk.sizes == data.size:
        return item.index.fqn
    ends = zip(data.chunk.offsets, data.chunk.sizes, strict=True)
    return f"{item.index.fqn}[{','.join(f'{start}:{start + size}' for start, size in ends)}]"


def file_names(part: str, count: int) -> list[str]:
    if count == 1:
        return [f"{part}.safetensors"]
    return [f"{part}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def packed(sizes: Iterable[int], most: int) -> list[list[int]]:
    """Numbers of sizes in order, in groups of at most `most` (or of one)."""
    groups: list[list[int]] = []
    total = 0
    for number, size in enumerate(sizes):
        if not groups or total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += size
    return groups
