"""The loss of tokens against a teacher's distributions, with the logits of a few tokens in memory at a time.

The heads are divided alike (tensor parallelism), and in the last stage of a pipeline, so all layouts need no more than what
`token_losses` sends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from corpusmill.train.evaluate.scorer import denominator, scored_by
from corpusmill.train.model.losses import IGNORED, own_rows
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.distillation import DistillationConfig
    from corpusmill.train.parallel.model import ParallelModel

Context = Callable[[], AbstractContextManager[Any]]
CHUNK = 1024  # tokens whose logits exist at once, where model.loss_chunk sets nothing


class Distributions(Protocol):
    """A teacher's, of all positions of a micro-batch, in order. `x` [n, V / processes]: the student's logits over the temperature, at
    the positions from `first` on."""

    def divergence(self, x: Tensor, first: int, split: Split) -> Tensor:
        """KL(teacher || student), float32 [n]."""
        ...

    def gradient(self, x: Tensor, first: int, split: Split) -> Tensor:
        """Of `divergence` by x, [n, V / processes]."""
        ...


class Learner:
    """A `corpusmill.train.step.Teacher`: the student's loss within `learning`. `queue` has the distributions of a step's micro-batches,
    in their order."""

    def __init__(self, config: DistillationConfig, chunk: int | None = None) -> None:
        self.config, self.chunk = config, chunk or CHUNK
        self.queue: list[Distributions] = []

    def learning(self, student: ParallelModel) -> AbstractContextManager[None]:
        """Within, the student's loss is that of the distillation. Micro-batches come in the order of `begin`."""
        return scored_by(student, self._score)

    def _score(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None,
        split: Split = WHOLE, summed: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        config = self.config
        loss = _Taught.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, 1), weight, labels.flatten(), self.queue.pop(0), config.temperature, config.share, self.chunk, split
        )  # fmt: skip
        # Not a view: `fully_shard` registers hooks on what a module returns.
        return loss.view(labels.shape).clone(), torch.zeros(labels.shape, device=labels.device)


class _Taught(torch.autograd.Function):
    """Of each label's place, share x T^2 KL(teacher || student) + (1 - share) x cross entropy, float32 [N], over chunks of tokens and
    parts of the vocabulary; computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, teacher: Distributions, temperature: float, share: float,
        chunk: int, split: Split,
    ) -> Tensor:  # fmt: skip
        ctx.settings = teacher, temperature, share, chunk, split
        small, found = weight.to(hidden.dtype), []
        for number, (h, label) in enumerate(
            zip(*(torch.split(x, chunk) for x in (hidden, labels)), strict=True)
        ):
            student = logits(h, small)
            loss = share * temperature**2 * teacher.divergence(student / temperature, number * chunk, split)
            if share < 1:
                row, here = own_rows(label, split.rank * len(weight), len(weight))
                log_z = denominator(student.logsumexp(-1), split)
                right = split.sum(student.gather(1, row[:, None]).squeeze(1) * here)
                loss = loss + (1 - share) * (log_z - right)
            found.append(torch.where(label != IGNORED, loss, 0.0))
        ctx.save_for_backward(hidden, weight, labels)
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensors
        teacher, temperature, share, chunk, split = ctx.settings
        small, to_hidden = weight.to(hidden.dtype), []
        to_weight = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        by_loss = grads[0] * (labels != IGNORED)
        for number, (h, label, by) in enumerate(
            zip(*(torch.split(x, chunk) for x in (hidden, labels, by_loss)), strict=True)
        ):
            student = logits(h, small)
            gradient = share * temperature * teacher.gradient(student / temperature, number * chunk, split)
            if share < 1:
                row, here = own_rows(label, split.rank * len(weight), len(weight))
                by_label = log_softmax(student, split).exp()
                by_label.scatter_add_(1, row[:, None], -here.to(by_label.dtype)[:, None])
                gradient = gradient + (1 - share) * by_label
            gradient = (gradient * by[:, None]).to(h.dtype)
            with torch.autocast(h.device.type, enabled=False):
                to_hidden.append(gradient @ small)
                to_weight += gradient.T @ h
        return torch.cat(to_hidden), to_weight.to(weight.dtype), *[None] * 6


def logits(hidden: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(hidden.device.type, enabled=False):
        return (hidden @ weight.T).float()


def log_softmax(values: Tensor, split: Split) -> Tensor:
    """Of logits whose other columns the other processes of a split have."""
    if split.size == 1:
        return values.log_softmax(-1)
    return values - denominator(values.logsumexp(-1), split)[:, None]
