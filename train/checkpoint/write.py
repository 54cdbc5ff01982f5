"""Writing a checkpoint: boxes are assigned to processes once, replicas are written once, and the manifest last. `Saver` writes
while training continues: it copies the pieces to CPU memory, and a thread writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import Box, PublishedFile, StoredTensor, TensorTable
from corpusmill.train.checkpoint import store
from corpusmill.train.checkpoint.collectives import Group, first, gathered, place
from corpusmill.train.checkpoint.files import CODES, DTYPES, Content, raw, write_file
from corpusmill.train.checkpoint.pieces import Piece
from corpusmill.train.checkpoint.store import Listing, finish, folder_of, part_of, prune, remove

if TYPE_CHECKING:
    from corpusmill.schemas.training import CheckpointConfig

FILE_BYTES = 4 << 30  # of a file, unless one tensor is larger; a box counts as the whole tensor
PATIENCE = timedelta(hours=1)  # that processes wait for the slowest one's writing
Pieces = dict[str, Piece]


class Item(NamedTuple):
    """A box that a process holds of the tensor `name`, of `shape`, and could write."""

    name: str
    dtype: str  # as in the file
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def tensor_bytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(start + size for start, size in zip(self.offsets, self.sizes, strict=True))

    @property
    def key(self) -> str:
        """Its name in a file: the tensor's, with the bounds of what is only a part of it."""
        if self.sizes == self.shape:
            return self.name
        bounds = zip(self.offsets, self.ends, strict=True)
        return f"{self.name}[{','.join(f'{start}:{end}' for start, end in bounds)}]"


Files = dict[str, list[Item]]  # what a process writes, by file


def save(
    run: Folder,
    step: int,
    pieces: Pieces,
    state: dict[str, Any],
    group: Group = None,
    file_bytes: int = FILE_BYTES,
) -> Folder:
    """Publish a checkpoint, all processes together; if one of them is killed, there is no manifest, hence no checkpoint.

    `pieces`: those of this process (`pieces.live`); a box that several hold is written by one of them. `state`: any JSON, of
    the first process. Raises `WorkError` in all processes if one of them fails.
    """
    folder = folder_of(run, step)

    def assign(held: list[list[Item]]) -> list[Files]:
        remove(folder)  # before any process writes: an old manifest must not seem to cover the new files
        shares = without_replicas(held)
        _check_cover([item for share in shares for item in share])
        return files_of(shares, file_bytes)

    def publish(written: list[list[Written]]) -> list[None]:
        _finish(folder, step, [one for share in written for one in share], state)
        return [None] * len(written)

    mine = gathered(partial(items_of, pieces), assign, group)
    gathered(lambda: _write(folder, pieces, mine), publish, group)
    return folder


def items_of(pieces: Pieces) -> list[Item]:
    """What this process could write: its pieces, without empty ones (unless the whole tensor is empty)."""
    return [
        Item(name, CODES[piece.local.dtype], piece.shape, piece.offsets, tuple(piece.local.shape))
        for name, piece in sorted(pieces.items())
        if piece.local.numel() or 0 in piece.shape
    ]


def without_replicas(held: list[list[Item]]) -> list[list[Item]]:
    """What each process writes: a box goes to that of its holders which has the least to write so far."""
    holders: dict[tuple[str, tuple[int, ...]], list[tuple[int, Item]]] = {}
    for rank, items in enumerate(held):
        for item in items:
            holders.setdefault((item.name, item.offsets), []).append((rank, item))
    totals = [0] * len(held)
    shares: list[list[Item]] = [[] for _ in held]
    for same in holders.values():
        least = min((rank for rank, _ in same), key=totals.__getitem__)
        item = same[-1][1]
        totals[least] += item.tensor_bytes or 1
        shares[least].append(item)
    return [sorted(share, key=lambda item: item.name) for share in shares]


def files_of(shares: list[list[Item]], file_bytes: int) -> list[Files]:
    """The files of each process; their names are numbered across all processes."""
    found: list[Files] = [{} for _ in shares]
    for part in (store.MODEL, store.OPTIMIZER):
        groups: list[tuple[int, list[Item]]] = []
        for rank, share in enumerate(shares):
            items = [item for item in share if part_of(item.name) == part]
            numbers = packed([item.tensor_bytes for item in items], file_bytes)
            groups += [(rank, [items[number] for number in group]) for group in numbers]
        for (rank, group), name in zip(groups, file_names(part, len(groups)), strict=True):
            found[rank][name] = group
    return found


def _check_cover(items: list[Item]) -> None:
    """Raises `WorkError` unless the boxes of each tensor cover it, each element once."""
    tensors: dict[str, list[Item]] = {}
    for item in items:
        tensors.setdefault(item.name, []).append(item)
    for name, boxes in tensors.items():
        shape = boxes[0].shape
        inside = all(end <= size for box in boxes for end, size in zip(box.ends, shape, strict=True))
        if not inside or sum(math.prod(box.sizes) for box in boxes) != math.prod(shape) or _overlap(boxes):
            raise WorkError(f"a checkpoint failed: the processes' parts of {name} are not the whole of it")


def _overlap(boxes: list[Item]) -> bool:
    """Whether two boxes of a tensor share an element; a sweep along the longest dimension."""
    if len(boxes) == 1 or not boxes[0].shape:
        return len(boxes) > 1
    sweep = max(range(len(boxes[0].shape)), key=boxes[0].shape.__getitem__)
    active: list[Item] = []
    for box in sorted(boxes, key=lambda box: box.offsets[sweep]):
        active = [other for other in active if other.ends[sweep] > box.offsets[sweep]]
        for other in active:
            pairs = zip(box.offsets, box.ends, other.offsets, other.ends, strict=True)
            if all(low < other_end and other_low < end for low, end, other_low, other_end in pairs):
                return True
        active.append(box)
    return False


class Written(NamedTuple):
    """A file, its boxes, and the position of the first byte of each."""

    file: PublishedFile
    items: list[Item]
    places: list[int]


def _write(folder: Folder, pieces: Pieces, files: Files) -> list[Written]:
    done = []
    for name, items in files.items():
        tensors = [pieces[item.name].local for item in items]
        contents = [
            Content(item.key, tensor.dtype, item.sizes, partial(raw, tensor))
            for item, tensor in zip(items, tensors, strict=True)
        ]
        file, places = write_file(folder / name, contents)
        done.append(Written(file, items, [places[item.key] for item in items]))
    return done


def _finish(folder: Folder, step: int, written: list[Written], state: dict[str, Any]) -> None:
    tensors: dict[str, StoredTensor] = {}
    for file, items, places in written:
        for item, at in zip(items, places, strict=True):
            box = Box(offsets=item.offsets, sizes=item.sizes, file=file.path, key=item.key, at=at)
            stored = tensors.setdefault(item.name, StoredTensor(shape=item.shape, dtype=item.dtype, boxes=[]))
            stored.boxes.append(box)
    for stored in tensors.values():
        stored.boxes.sort(key=lambda box: box.offsets)
    files = sorted((one.file for one in written), key=lambda file: file.path)
    table = TensorTable(tensors=dict(sorted(tensors.items())))
    finish(folder, step, files, table, json.dumps(state).encode())


def file_names(part: str, count: int) -> list[str]:
    """The names of a part's files."""
    if count == 1:
        return [f"{part}.safetensors"]
    return [f"{part}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def packed(sizes: Iterable[int], most: int) -> list[list[int]]:
    """The indexes of `sizes` in order, in groups whose sizes sum to at most `most` (or of one)."""
    groups: list[list[int]] = []
    total = 0
    for number, size in enumerate(sizes):
        if not groups or total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += size
    return groups


class Saver:
    """Saves a run's checkpoints and deletes those that are not kept; one save is under way at a time.

    All processes create one, and call `save` and `wait` at the same steps. In the background they communicate through a
    separate gloo group, so as not to mix with the communication of training.
    """

    def __init__(self, run: Folder, config: CheckpointConfig) -> None:
        self.run, self.config = run, config
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if place()[1] > 1 else None
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.under_way: Future[None] | None = None
        self.mine: set[str] | None = None  # tensors whose local box this process writes
        self.names: set[str] = set()
        self.staged: dict[str, Tensor] = {}
        self.seen: dict[int, Listing] = {}
        self.refused: set[int] = set()  # checkpoints that this run refused to load: they do not count
        self.pinned: tuple[int, ...] = ()  # that are kept whatever their age

    def save(self, step: int, pieces: Pieces, state: dict[str, Any], more: int = 0) -> None:
        """Begin to save, once the last save is done; `pieces` may change as soon as this returns. `more`: how many checkpoints
        to keep beyond `keep_last` this time.

        Raises what the last save raised. If not `asynchronous`, the checkpoint is complete on return.
        """
        self.wait()
        if self.mine is None or self.names != pieces.keys():
            self.mine, self.names = self._share(pieces), set(pieces)
        found = {name: piece for name, piece in pieces.items() if name in self.mine}
        if not self.config.asynchronous:
            return self._publish(step, found, state, more, self.pinned)
        staged = {name: piece._replace(local=self._copy(name, piece.local)) for name, piece in found.items()}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # the copies were only begun
        self.under_way = self.thread.submit(self._publish, step, staged, state, more, self.pinned)

    def wait(self) -> None:
        """Wait for the save under way; raises, in all processes alike, what went wrong with it."""
        done, self.under_way = self.under_way, None
        if done is not None:
            done.result()

    @property
    def failed(self) -> bool:
        """Whether the save under way has ended with an error, which `wait` will raise."""
        done = self.under_way
        return done is not None and done.done() and done.exception() is not None

    def close(self) -> None:
        """Wait for the save under way, and ignore its error."""
        self.thread.shutdown()

    def _publish(
        self, step: int, pieces: Pieces, state: dict[str, Any], more: int, pinned: tuple[int, ...]
    ) -> None:
        save(self.run, step, pieces, state, self.group)
        self.refused.discard(step)
        keep, every = self.config.keep_last + more, self.config.keep_every
        first(lambda: prune(self.run, keep, every, self.seen, self.refused, pinned), self.group)

    def _share(self, pieces: Pieces) -> set[str]:
        """Names of the pieces that this process copies and writes; constant during a run, as its layout is."""

        def assign(held: list[list[Item]]) -> list[set[str]]:
            return [{item.name for item in share} for share in without_replicas(held)]

        return gathered(partial(items_of, pieces), assign, self.group)

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        """A copy in CPU memory, which the next save reuses."""
        kept = self.staged.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self.staged[name] = kept
        return kept.copy_(tensor, non_blocking=True)
