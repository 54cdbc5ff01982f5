"""Low-communication training: DiLoCo (Douillard et al. 2023) and streaming DiLoCo (Douillard et al. 2025).

Each process is a worker: a whole model that trains by itself on its part of every batch. After `every` steps the workers exchange how far
each has come from the weights that they had in common, and the mean of that is the gradient of a step of SGD with momentum on those
weights, from which all continue. With fragments, layers are exchanged in turn, so that the peak of what is sent is lower; with a delay the
workers train on while a fragment is under way.

Saved are the weights in common, as the model, and of each worker its own weights and its optimizer's states: a restart continues to the
bit. Another number of workers continues too: one that has no states of its own takes those of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from corpusmill.train import checkpoint
from corpusmill.train.checkpoint.pieces import Piece
from corpusmill.train.optim.make import prepare, state_tensors
from corpusmill.train.outer.exchange import Exchange

if TYPE_CHECKING:
    from corpusmill.schemas.outer import OuterConfig
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

# Keys of tensors in a checkpoint, beside those of the workers' optimizers.
OUTER, LOCAL, SENT = "outer", "local", "sent"


class Outer:
    """Of a run with several workers. `common`: the weights that they have in common; `bytes_sent`: by this worker, so far in this process."""

    def __init__(
        self, config: OuterConfig, model: ParallelModel, optimizer: torch.optim.Optimizer, world: World
    ) -> None:
        self.config, self.model, self.optimizer, self.world = config, model, optimizer, world
        self.weights = {name: p.detach() for name, p in model.named_parameters()}
        self.common = {name: p.clone() for name, p in self.weights.items()}
        self.momentum = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        self.flight: Exchange | None = None
        self.bytes_sent = 0

    def begin(self) -> None:
        """From the model's first values, which are the same in all workers."""
        for name, p in self.weights.items():
            self.common[name].copy_(p)

    @torch.no_grad()
    def after(self, step: int, last: bool) -> None:
        """After an inner step; collective. After the `last` one all weights are exchanged, and equal."""
        period = self.config.every // self.config.fragments
        if self.flight is not None and (step >= self.flight.due or last):
            self._arrive()
        if last:
            self._send(list(self.weights), step)
            self._arrive(mix=0.0)
        elif step % period == 0:
            turn = (step // period - 1) % self.config.fragments
            names = [name for name in self.weights if self.fragment_of(name) == turn]
            if not names:  # more fragments than layers
                return
            self._send(names, step + self.config.delay)
            if not self.config.delay:
                self._arrive()

    def fragment_of(self, name: str) -> int:
        """Of a parameter: layers are dealt out in turn; embeddings are of the first fragment, the last norm and the head of the last."""
        place, _, rest = name.partition(".")
        if place == "layers":
            return int(rest.partition(".")[0]) % self.config.fragments
        return 0 if "embedding" in place else self.config.fragments - 1

    def _send(self, names: list[str], due: int, sent: dict[str, Tensor] | None = None) -> None:
        """Begin to exchange how far the weights are from those in common; `sent`: what a checkpoint has of it."""
        if sent is None and self.averages:
            sent = {name: self.weights[name].clone() for name in names}
        elif sent is None:
            sent = {name: self.common[name] - self.weights[name] for name in names}
        self.flight = Exchange(sent, self.config.bits, self.world.size, due)
        self.bytes_sent += self.flight.nbytes

    @property
    def averages(self) -> bool:
        """Whether the outer step is the mean of the workers' weights, which is then what is exchanged, so that nothing is rounded."""
        return self.config.lr == 1 and not self.config.momentum and self.config.bits == 32

    @torch.no_grad()
    def _arrive(self, mix: float | None = None) -> None:
        """Take the outer step with what has arrived. `mix`: the share of a worker's own weights that stays (None: the config's)."""
        assert self.flight is not None
        config, mix = self.config, self.config.mix if mix is None else mix
        for name, found in self.flight.mean().items():
            common = self.common[name]
            if self.averages:
                common.copy_(found)
            else:
                momentum = self.momentum[name].mul_(config.momentum).add_(found)
                ahead = config.nesterov and config.momentum
                change = found.add(momentum, alpha=config.momentum) if ahead else momentum
                common.sub_(change, alpha=config.lr)
            self.weights[name].copy_(torch.lerp(common, self.weights[name], mix) if mix else common)
        self.flight = None

    @contextmanager
    def in_common(self) -> Iterator[None]:
        """Within, the model has the weights in common, and afterwards its own again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, p in self.weights.items():
            kept = p.clone()
            p.copy_(self.common[name])
            self.common[name].copy_(kept)

    def pieces(self, worker: int | None = None) -> dict[str, Piece]:
        """What a checkpoint has of this worker; `worker`: the number that its own tensors have there (None: its own)."""
        worker = self.world.rank if worker is None else worker
        prepare(self.optimizer)
        tensors: dict[str, Tensor] = dict(self.common)
        tensors.update({f"{OUTER}/{name}": value for name, value in self.momentum.items()})
        own = {f"{LOCAL}/{name}": p for name, p in self.weights.items()}
        own |= state_tensors(self.model, self.optimizer)
        own |= {f"{SENT}/{name}": value for name, value in (self.flight.sent if self.flight else {}).items()}
        for name, value in own.items():
            key, _, rest = name.partition("/")
            tensors[f"{key}.{worker}/{rest}"] = value
        return {n: Piece(tuple(v.shape), (0,) * v.ndim, v.detach()) for n, v in tensors.items()}

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Continue with what a checkpoint has; collective. Raises `WorkError` for one of another model or optimizer."""
        keys = {name.partition("/")[0] for name in found.part(checkpoint.OPTIMIZER)}
        saved = sorted(int(key.partition(".")[2]) for key in keys if key.startswith(f"{LOCAL}."))
        worker = saved[self.world.rank % len(saved)] if saved else 0
        self.flight = None
        prefix = f"{SENT}.{worker}/"
        under_way = [name.removeprefix(prefix) for name in found.table if name.startswith(prefix)]
        sent = {name: torch.empty_like(self.weights[name]) for name in under_way}
        pieces = self.pieces(worker)
        pieces |= {f"{prefix}{name}": Piece(tuple(v.shape), (0,) * v.ndim, v) for name, v in sent.items()}
        parts = checkpoint.MODEL, checkpoint.OPTIMIZER
        checkpoint.restore_pieces(found, pieces, parts, some=len(saved) > self.world.size)
        if sent:
            period = self.config.every // self.config.fragments
            names = [name for name in self.weights if name in sent]
            self._send(names, found.step // period * period + self.config.delay, sent)
