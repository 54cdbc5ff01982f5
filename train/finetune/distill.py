"""Distillation from a teacher that computes beside the student: the teacher's last hidden states of a micro-batch, and from them the
divergence of each token, with the logits of a few tokens in memory at a time.

Both heads are divided alike (tensor parallelism), and the head is in the last stage of both (a pipeline), so all layouts need no more than
what `token_losses` sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.evaluate.scorer import denominator, scored_by
from corpusmill.train.finetune.regularize import Regularizer
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.losses import IGNORED, own_rows
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.parallel.model import build
from corpusmill.train.run_folder import DATA, open_run
from corpusmill.train.tools.start import load_start

if TYPE_CHECKING:
    from corpusmill.schemas.distillation import DistillationConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Rows
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel
    from corpusmill.train.step import Teacher

Context = Callable[[], AbstractContextManager[Any]]
CHUNK = 1024  # tokens whose logits exist at once, where model.loss_chunk sets nothing


class Distiller:
    """A teacher, and the loss of a step. `begin` before the student's passes, `learning` around them."""

    def __init__(self, config: DistillationConfig, teacher: ParallelModel, chunk: int | None = None) -> None:
        self.config, self.teacher, self.chunk = config, teacher, chunk or CHUNK
        self._head: Tensor | None = None  # a copy: sharded weights are there during a forward pass alone
        self._states: list[Tensor] = []
        self._next = 0

    @torch.no_grad()
    def begin(self, batches: Sequence[Rows], context: Context = nullcontext) -> None:
        """The teacher's hidden states of a step's micro-batches."""
        self._states, self._next = [], 0
        self.teacher.train(False)
        for rows in batches:
            with context(), scored_by(self.teacher, self._capture):
                self.teacher.losses(rows)

    def _capture(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """In place of the teacher's loss."""
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        if self._head is None:
            self._head = weight.detach().to(hidden.dtype, copy=True)
        self._states.append(hidden.detach().flatten(0, 1))
        none = torch.zeros(labels.shape, device=labels.device)
        return none, none

    def learning(self, student: ParallelModel) -> AbstractContextManager[None]:
        """Within, the student's loss is that of the distillation. Micro-batches come in the order of `begin`."""
        return scored_by(student, self._score)

    def _score(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None,
        split: Split = WHOLE, summed: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        assert self._head is not None
        states, self._next = self._states[self._next], self._next + 1
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        config = self.config
        loss = _Divergence.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, 1), weight, states, self._head, labels.flatten(), config.temperature, config.share,
            self.chunk, split,
        )  # fmt: skip
        # Not a view: `fully_shard` registers hooks on what a module returns.
        return loss.view(labels.shape).clone(), torch.zeros(labels.shape, device=labels.device)


class _Divergence(torch.autograd.Function):
    """Of each label's place, share x T^2 KL(teacher || student) + (1 - share) x cross entropy, float32 [N], over chunks of tokens and
    parts of the vocabulary; computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, teacher: Tensor, head: Tensor, labels: Tensor, temperature: float,
        share: float, chunk: int, split: Split,
    ) -> Tensor:  # fmt: skip
        ctx.settings = temperature, share, chunk, split
        small, found = weight.to(hidden.dtype), []
        for h, t, label in zip(*(torch.split(x, chunk) for x in (hidden, teacher, labels)), strict=True):
            student = _logits(h, small)
            log_q, log_p = (_log_softmax(x / temperature, split) for x in (student, _logits(t, head)))
            loss = share * temperature**2 * split.sum((log_p.exp() * (log_p - log_q)).sum(-1))
            if share < 1:
                row, here = own_rows(label, split.rank * len(weight), len(weight))
                log_z = denominator(student.logsumexp(-1), split)
                right = split.sum(student.gather(1, row[:, None]).squeeze(1) * here)
                loss = loss + (1 - share) * (log_z - right)
            found.append(loss * (label != IGNORED))
        ctx.save_for_backward(hidden, weight, teacher, head, labels)
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, teacher, head, labels = ctx.saved_tensors
        temperature, share, chunk, split = ctx.settings
        small, to_hidden = weight.to(hidden.dtype), []
        to_weight = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        by_loss = grads[0] * (labels != IGNORED)
        for h, t, label, by in zip(
            *(torch.split(x, chunk) for x in (hidden, teacher, labels, by_loss)), strict=True
        ):
            student = _logits(h, small)
            q, p = (_log_softmax(x / temperature, split).exp() for x in (student, _logits(t, head)))
            gradient = share * temperature * (q - p)
            if share < 1:
                row, here = own_rows(label, split.rank * len(weight), len(weight))
                by_label = _log_softmax(student, split).exp()
                by_label.scatter_add_(1, row[:, None], -here.to(by_label.dtype)[:, None])
                gradient = gradient + (1 - share) * by_label
            gradient = (gradient * by[:, None]).to(h.dtype)
            with torch.autocast(h.device.type, enabled=False):
                to_hidden.append(gradient @ small)
                to_weight += gradient.T @ h
        return torch.cat(to_hidden), to_weight.to(weight.dtype), *[None] * 7


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(hidden.device.type, enabled=False):
        return (hidden @ weight.T).float()


def _log_softmax(logits: Tensor, split: Split) -> Tensor:
    """Of logits whose other columns the other processes of a split have."""
    if split.size == 1:
        return logits.log_softmax(-1)
    return logits - denominator(logits.logsumexp(-1), split)[:, None]


def make_teacher(config: TrainConfig, shards: Shards, world: World) -> Teacher | None:
    """What changes the loss within a run's passes: its teacher, in its layout, or what regularizes it; None without either. Collective.
    Raises `UserError` for a teacher that does not fit."""
    if config.regularization is not None:
        return Regularizer(config.regularization)
    if config.distillation is None:
        return None
    folder, size = Folder(config.distillation.teacher), shards.set.vocab_size
    model = _model_of(config.distillation, folder)
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
    load_start(whole, folder, shards.tokenizer())
    teacher = build(config.model_copy(update={"model": model, "adapter": None}), size, world, frozen=True)
    teacher.load_whole(whole.state_dict())
    return Distiller(config.distillation, teacher, config.model.loss_chunk)


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
