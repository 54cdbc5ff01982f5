"""Label smoothing, noise on embeddings and adversarial embeddings, within the passes of a step (`regularization`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpusmill.train.evaluate.scorer import scored_by
from corpusmill.train.model.initialise import mix
from corpusmill.train.model.losses import IGNORED, own_rows, token_losses
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.regularization import RegularizationConfig
    from corpusmill.train.batch import MicroBatch, Rows
    from corpusmill.train.model.decoder import Decoder
    from corpusmill.train.parallel.model import ParallelModel

Embed = Callable[[Tensor, Tensor, Tensor | None], Tensor]
NOISE = 0x4E454654  # tells the keys of noise from those of dropout
LEVELS = 1 << 15


class Regularizer:
    """A `corpusmill.train.step.Teacher` without a model. In every layout but for `adversarial`, whose second pass a process makes with
    the gradient of its own rows."""

    def __init__(self, config: RegularizationConfig) -> None:
        self.config = config

    def begin(self, parts: Sequence[MicroBatch], context: Any = nullcontext) -> None:
        """Nothing is needed before a step."""

    @contextmanager
    def learning(self, student: ParallelModel) -> Iterator[None]:
        """Within, training passes are regularized."""
        config, first = self.config, student.parts[0]
        smooth: AbstractContextManager[None] = nullcontext()
        if config.label_smoothing:
            smooth = scored_by(student, Smoothed(config.label_smoothing, student.vocab_size))
        embed: Embed = first.embed
        if config.embedding_noise:
            embed = Noisy(embed, config.embedding_noise, first)
        if config.adversarial:
            embed = Adversarial(embed, config.adversarial)
        with (
            smooth,
            _replaced(first, "embed", embed),
            _replaced(student, "backward", self._backward(student)),
        ):
            yield

    def _backward(self, student: ParallelModel) -> Callable[..., list[Tensor]]:
        plain = student.backward
        if not self.config.adversarial:
            return plain

        def twice(batches: list[Rows], weight: Tensor | float, *rest: Any) -> list[Tensor]:
            """Each micro-batch as it is, then perturbed: half of the loss each."""
            return plain([batch for batch in batches for _ in range(2)], weight / 2, *rest)[::2]

        return twice


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Within, an instance has another method."""
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)


class Smoothed:
    """`token_losses` whose gradient is that of (1 - share) x the cross entropy + share x the mean of -log p over the vocabulary. The
    value stays the cross entropy, so that runs can be compared."""

    def __init__(self, share: float, vocab_size: int) -> None:
        self.share, self.vocab_size = share, vocab_size

    def __call__(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None,
        split: Split = WHOLE, summed: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        loss, z = token_losses(hidden, weight, labels, z_loss, chunk, split, summed)
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        more = _Spread.apply(hidden.flatten(0, 1), weight, labels.flatten(), self.vocab_size, split)  # type: ignore[no-untyped-call]
        more = self.share * more.view(labels.shape)
        return loss + (more - more.detach()), z


class _Spread(torch.autograd.Function):
    """What smoothing adds, per share: the label's logit less the mean logit, which is a product with the mean row of the head, so
    that no logits are made. float32 [N] of hidden [N, C]; 0 where the label is ignored."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, vocab_size: int, split: Split
    ) -> Tensor:
        ctx.settings = vocab_size, split
        ctx.save_for_backward(hidden, weight, labels)
        own = (hidden.float() * _direction(weight, labels, vocab_size, split)).sum(-1)
        return split.sum(own) * (labels != IGNORED)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensors
        vocab_size, split = ctx.settings
        by = (grads[0] * (labels != IGNORED))[:, None]
        to_hidden = (by * _direction(weight, labels, vocab_size, split)).to(hidden.dtype)
        to_weight = None
        if ctx.needs_input_grad[1]:
            row, here = own_rows(labels, split.rank * len(weight), len(weight))
            pulled = by * hidden.float()
            found = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
            found.index_add_(0, row, pulled * here[:, None])
            found[: _real(weight, vocab_size, split)] -= pulled.sum(0) / vocab_size
            to_weight = found.to(weight.dtype)
        return to_hidden, to_weight, None, None, None


def _real(weight: Tensor, vocab_size: int, split: Split) -> int:
    """Rows of this process's part of the head that are tokens, and no padding."""
    return min(max(vocab_size - split.rank * len(weight), 0), len(weight))


def _direction(weight: Tensor, labels: Tensor, vocab_size: int, split: Split) -> Tensor:
    """The label's row of the head less the mean row, of the rows in this process, float32 [N, C]."""
    row, here = own_rows(labels, split.rank * len(weight), len(weight))
    mean = weight[: _real(weight, vocab_size, split)].float().sum(0) / vocab_size
    return weight[row].float() * here[:, None] - mean


class Noisy:
    """`Decoder.embed` with NEFTune's noise, which depends on the row's key and the place alone: a resumed run has the same, and any
    layout."""

    def __init__(self, embed: Embed, alpha: float, model: Decoder) -> None:
        self.embed, self.alpha, self.model = embed, alpha, model

    def __call__(self, tokens: Tensor, positions: Tensor, keys: Tensor | None) -> Tensor:
        x = self.embed(tokens, positions, keys)
        if keys is None:  # no training pass
            return x
        split = self.model.split
        B, T, C = x.shape
        words = -(-C // 4)  # one 64-bit number for four features
        first = split.rank * T * words
        index = torch.arange(first, first + T * words, device=x.device)
        key = mix(keys + NOISE)[:, None]
        bits = mix(mix(index[None] + key) ^ key).view(B, T, words).view(torch.int16)[:, :, :C]
        return x + (bits.to(x.dtype) + 0.5) * (self.alpha / math.sqrt(T * split.size * C) / LEVELS)


class Adversarial:
    """`Decoder.embed` for pairs of passes over the same rows: of the first it keeps the gradient g of each row's embeddings, to the
    second it adds `size` x g / |g|."""

    def __init__(self, embed: Embed, size: float) -> None:
        self.embed, self.size = embed, size
        self._calls, self._gradient = 0, torch.zeros(0)

    def __call__(self, tokens: Tensor, positions: Tensor, keys: Tensor | None) -> Tensor:
        x = self.embed(tokens, positions, keys)
        self._calls += 1
        if self._calls % 2:
            if not x.requires_grad:  # frozen, beside an adapter
                x = x.detach().requires_grad_()
            x.register_hook(self._keep)  # type: ignore[no-untyped-call]
            return x
        g = self._gradient
        norm = torch.linalg.vector_norm(g, dim=(1, 2), keepdim=True).clamp_min(torch.finfo(g.dtype).tiny)
        moved: Tensor = x + self.size * g / norm
        return moved

    def _keep(self, gradient: Tensor) -> None:
        self._gradient = gradient.detach().float()
