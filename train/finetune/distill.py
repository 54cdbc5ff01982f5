"""Distillation from a teacher that computes beside the student: its last hidden states of a micro-batch, from which its logits are made
when the student's are. And the teacher of a config."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.evaluate.scorer import scored_by
from corpusmill.train.finetune.distribution import Context, Learner, log_softmax, logits
from corpusmill.train.finetune.regularize import Regularizer
from corpusmill.train.finetune.stored import open_stored
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.model import build
from corpusmill.train.run_folder import DATA, open_run
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.distillation import DistillationConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import MicroBatch
    from corpusmill.train.checkpoint import Checkpoint
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.model.split import Split
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel
    from corpusmill.train.step import Teacher

    Origin = tuple[TrainConfig, Checkpoint]


class Distiller(Learner):
    """A teacher in memory, which computes before the student's passes."""

    def __init__(self, config: DistillationConfig, teacher: ParallelModel, chunk: int | None = None) -> None:
        super().__init__(config, chunk)
        self.teacher = teacher
        self._head: Tensor | None = None  # a copy: sharded weights are there during a forward pass alone

    @torch.no_grad()
    def begin(self, parts: Sequence[MicroBatch], context: Context = nullcontext) -> None:
        """The teacher's hidden states of a step's micro-batches."""
        self.queue.clear()
        self.teacher.train(False)
        for part in parts:
            with context(), scored_by(self.teacher, self._capture):
                self.teacher.losses(part.inputs)

    def _capture(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """In place of the teacher's loss."""
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        if self._head is None:
            self._head = weight.detach().to(hidden.dtype, copy=True)
        self.queue.append(_Live(hidden.detach().flatten(0, 1), self._head, self.config.temperature))
        none = torch.zeros(labels.shape, device=labels.device)
        return none, none


class _Live(NamedTuple):
    """`Distributions` from the teacher's hidden states and its head."""

    states: Tensor
    head: Tensor
    temperature: float

    def divergence(self, x: Tensor, first: int, split: Split) -> Tensor:
        log_q, log_p = log_softmax(x, split), self._log_p(len(x), first, split)
        return split.sum((log_p.exp() * (log_p - log_q)).sum(-1))

    def gradient(self, x: Tensor, first: int, split: Split) -> Tensor:
        return log_softmax(x, split).exp() - self._log_p(len(x), first, split).exp()

    def _log_p(self, count: int, first: int, split: Split) -> Tensor:
        return log_softmax(logits(self.states[first : first + count], self.head) / self.temperature, split)


def make_teacher(config: TrainConfig, shards: Shards, world: World) -> Teacher | None:
    """What changes the loss within a run's passes: its teacher, in its layout, or what regularizes it; None without either. Collective.
    Raises `UserError` for a teacher that does not fit."""
    if config.regularization is not None:
        return Regularizer(config.regularization)
    if config.distillation is None:
        return None
    if config.distillation.stored is not None:
        return open_stored(config, config.distillation, shards, world.device)
    return Distiller(
        config.distillation,
        teacher_of(config, config.distillation, shards, world)[0],
        config.model.loss_chunk,
    )


def teacher_of(
    config: TrainConfig, distillation: DistillationConfig, shards: Shards, world: World
) -> tuple[ParallelModel, Origin | None]:
    """The teacher in the layout of a run, and the config and checkpoint that it is of (None of no run's model). Collective. Raises
    `UserError` for one that does not fit."""
    folder, size = Folder(distillation.teacher), shards.set.vocab_size
    model = _model_of(distillation, folder)
    if model.logit_softcap:
        raise UserError(
            "distillation.teacher: caps its logits (model.logit_softcap), which its distributions here do not: name another"
        )
    if not model.causal:
        raise UserError(
            f"distillation.teacher: {folder} is a masked language model, which knows no next token: name another"
        )
    rows = model.padded(size), config.model.padded(size)
    if rows[0] != rows[1]:
        raise UserError(
            f"distillation: the teacher's head has {rows[0]} rows, the student's {rows[1]}: set model.vocab_multiple to"
            f" {model.vocab_multiple}"
        )
    try:
        config.parallel.check(model, config.data)
    except ValueError as error:
        raise UserError(f"distillation.teacher: {folder}: parallel: {error}") from None
    whole = Decoder(model, size)
    origin = load_start(whole, folder, shards.tokenizer())
    teacher = build(config.model_copy(update={"model": model, "adapter": None}), size, world, frozen=True)
    teacher.load_whole(whole.state_dict())
    return teacher, origin


def _model_of(config: DistillationConfig, folder: Folder) -> ModelConfig:
    if (folder / DATA).exists():
        if config.model is not None:
            raise UserError(f"distillation.model: {folder} is a run, and has its own: leave it out")
        return open_run(folder.url)[0].model
    if config.model is None:
        raise UserError(
            f"distillation.model: {folder} is no run: describe its model, as `model` does the student's"
        )
    return config.model
