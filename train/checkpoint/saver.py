"""Saving while training goes on: the pieces are copied to CPU memory, a thread writes them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.common.storage import Folder
from corpusmill.train.checkpoint.collectives import first, gathered, place
from corpusmill.train.checkpoint.store import Listing, prune
from corpusmill.train.checkpoint.write import Item, Pieces, items_of, save, without_replicas

if TYPE_CHECKING:
    from corpusmill.schemas.training import CheckpointConfig

PATIENCE = timedelta(hours=1)  # that processes wait for the slowest one's writing


class Saver:
    """Saves a run's checkpoints and deletes those that are not kept; one save is under way at a time.

    All processes make one, and call `save` and `wait` at the same steps. In the background they speak through a gloo
    group of their own, so that nothing mixes with what training sends.
    """

    def __init__(self, run: Folder, config: CheckpointConfig) -> None:
        self.run, self.config = run, config
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if place()[1] > 1 else None
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.under_way: Future[None] | None = None
        self.mine: set[str] | None = None  # tensors whose box in this process is this process's to write
        self.names: set[str] = set()
        self.staged: dict[str, Tensor] = {}
        self.seen: dict[int, Listing] = {}
        self.refused: set[int] = set()  # checkpoints that this run would not go on from: none of them counts

    def save(self, step: int, pieces: Pieces, state: dict[str, Any], more: int = 0) -> None:
        """Begin to save, once the last save is done; `pieces` may change as soon as this returns. `more`: so many are kept
        beyond `keep_last` this time.

        Raises what the last save raised. Written in this thread, and done on return, if not `asynchronous`.
        """
        self.wait()
        if self.mine is None or self.names != pieces.keys():
            self.mine, self.names = self._share(pieces), set(pieces)
        found = {name: piece for name, piece in pieces.items() if name in self.mine}
        if not self.config.asynchronous:
            return self._publish(step, found, state, more)
        staged = {name: piece._replace(local=self._copy(name, piece.local)) for name, piece in found.items()}
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the copies were only begun
        self.under_way = self.thread.submit(self._publish, step, staged, state, more)

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
        """Let the save under way end, however it ends."""
        self.thread.shutdown()

    def _publish(self, step: int, pieces: Pieces, state: dict[str, Any], more: int) -> None:
        save(self.run, step, pieces, state, self.group)
        self.refused.discard(step)
        keep, every = self.config.keep_last + more, self.config.keep_every
        first(lambda: prune(self.run, keep, every, self.seen, self.refused), self.group)

    def _share(self, pieces: Pieces) -> set[str]:
        """What of the pieces this process writes: of a box that several hold, one makes a copy. The layout of a run, hence
        the answer, stays the same."""

        def assign(held: list[list[Item]]) -> list[set[str]]:
            return [{item.name for item in share} for share in without_replicas(held)]

        return gathered(partial(items_of, pieces), assign, self.group)

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        """A copy in CPU memory; the memory is used again by the next save."""
        kept = self.staged.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self.staged[name] = kept
        return kept.copy_(tensor, non_blocking=True)
