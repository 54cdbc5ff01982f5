"""From the last hidden states to the loss of each token, with the logits of all tokens in memory or of a few at a time; and the
other losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corpusmill.train.model.blockwise import capped
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.moe import Routed

IGNORED = -100  # label of a position that is not scored


def token_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    z_loss: float = 0.0,
    chunk: int | None = None,
    split: Split = WHOLE,
    summed: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Cross entropy in nats and z-loss of each token, float32 [B, T], both 0 where the label is `IGNORED`.

    hidden [B, T, C], weight [V, C], labels int64 [B, T]. The z-loss is `z_loss` x log(Z)^2, Z the softmax's
    denominator (PaLM, Chowdhery et al. 2022). `softcap`: logits are c x tanh(logit / c) first.
    `chunk`: tokens whose logits exist at once; losses and gradients stay the
    same. They are computed again in the backward pass; not if the caller promises, by `summed`, to differentiate nothing but
    the sum of all losses times some number: then the gradients for 1 are computed beside the losses (as in Liger Kernel, Hsu
    et al. 2024), and another use is an error. `split`: weight is [V / n, C]; every process gets all losses,
    the gradients of its rows, and a summand of those of `hidden`. (`F.linear_cross_entropy` of PyTorch 2.13 rounds the
    losses of single tokens to the input's type, 0.03 nats off in bfloat16, and has no z-loss.)
    """
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden = hidden.to(dtype)
    flat = hidden.flatten(0, 1)
    if split.size > 1 or (chunk is not None and chunk < len(flat)):
        chunk = chunk or len(flat)
        ahead = summed and torch.is_grad_enabled()
        how = z_loss, chunk, split, ahead, weight.requires_grad, softcap
        loss, z = _Chunked.apply(flat, weight, labels.flatten(), *how)  # type: ignore[no-untyped-call]
    else:
        logits = capped(F.linear(flat, weight.to(flat.dtype)).float(), softcap)
        loss = F.cross_entropy(logits, labels.flatten(), reduction="none", ignore_index=IGNORED)
        z = torch.zeros_like(loss)
        if z_loss:
            z = z_loss * logits.logsumexp(-1).square() * (labels.flatten() != IGNORED)
    # Not a view: `fully_shard` registers hooks on what a module returns.
    return loss.view(labels.shape).clone(), z.view(labels.shape)


class _Chunked(torch.autograd.Function):
    """`token_losses` over chunks of the tokens and parts of the vocabulary; saves the hidden states and no logits, or, `ahead`,
    the gradients of the sum of all losses."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        z_loss: float,
        chunk: int,
        split: Split,
        ahead: bool,
        trained: bool,
        softcap: float | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.z_loss, ctx.chunk, ctx.first, ctx.softcap = z_loss, chunk, split.rank * len(weight), softcap
        ctx.ahead, ctx.dtype, ctx.trained = ahead, weight.dtype, trained
        losses, logs = [], []
        small = weight.to(hidden.dtype)
        sums = _Gradients(hidden, weight, trained) if ahead else None
        buffers = _Logits(hidden, weight, chunk, softcap)
        for h, label in zip(torch.split(hidden, chunk), torch.split(labels, chunk), strict=True):
            logits = buffers.of(h, small)
            row, here = own_rows(label, ctx.first, len(weight))
            right = logits.gather(1, row[:, None]).squeeze(1) * here
            if sums is None:
                own = logits.logsumexp(-1)
            else:
                # log Z from the largest probability: half the cost of logsumexp and then exp.
                highest = logits.amax(-1)
                probabilities = buffers.softmax(logits)
                own = highest - probabilities.amax(-1).log()
            log_z = own
            if split.size > 1:
                most = split.max(own)
                log_z = most + split.sum((own - most).exp()).log()
                right = split.sum(right)
            scored = label != IGNORED
            losses.append((log_z - right) * scored)
            logs.append(log_z)
            if sums is not None:
                if split.size > 1:
                    probabilities.mul_((own - log_z).exp()[:, None])
                by_z = scored * (2 * z_loss) * log_z if z_loss else None
                grad_logits = buffers.gradient(probabilities, label, ctx.first, scored.float(), by_z)
                sums.add(h, small, grad_logits)
                del probabilities, grad_logits  # before the next chunk's are made
        log_z = torch.cat(logs)
        if sums is not None:
            ctx.save_for_backward(sums.to_hidden, sums.to_weight)
        else:
            ctx.save_for_backward(hidden, weight, labels, log_z)
        return torch.cat(losses), z_loss * log_z.square() * (labels != IGNORED)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        by_losses, by_zs = grads
        if ctx.ahead:
            to_hidden, to_weight = ctx.saved_tensors
            factor = by_losses[0]
            same = (by_losses == factor).all()
            if ctx.z_loss:
                same = same & (by_zs == factor).all()
            # On a device this is checked there, and nobody waits.
            torch._assert_async(same, "token_losses: the losses are not summed as `summed` promised")
            # In place: a second backward pass, which nobody needs, is an error of autograd.
            to_hidden = to_hidden.mul_(factor)
            to_weight = to_weight.mul_(factor).to(ctx.dtype) if ctx.trained else None
            return to_hidden, to_weight, *[None] * 7
        hidden, weight, labels, logs = ctx.saved_tensors
        small, sums = weight.to(hidden.dtype), _Gradients(hidden, weight, ctx.trained)
        scored = labels != IGNORED
        by_losses, by_zs = by_losses * scored, by_zs * scored * (2 * ctx.z_loss) * logs
        buffers = _Logits(hidden, weight, ctx.chunk, ctx.softcap)
        parts = [x.split(ctx.chunk) for x in (hidden, labels, logs, by_losses, by_zs)]
        for h, label, log_z, by_loss, by_z in zip(*parts, strict=True):
            probabilities = buffers.of(h, small).sub_(log_z[:, None]).exp_()
            given = (by_loss, by_z if ctx.z_loss else None)
            sums.add(h, small, buffers.gradient(probabilities, label, ctx.first, *given))
        to_weight = sums.to_weight.to(ctx.dtype) if ctx.trained else None
        return sums.to_hidden, to_weight, *[None] * 7


class _Logits:
    """Memory for the logits of one chunk, [chunk, V], that all chunks use: tensors of this size made for each chunk cost a CPU a
    page fault every 4 KB. `softcap`: they are capped, and beside them stands the derivative of each by what it was."""

    def __init__(self, hidden: Tensor, weight: Tensor, chunk: int, softcap: float | None = None) -> None:
        self._low = hidden.new_empty(min(chunk, len(hidden)), len(weight))
        self._full = self._low if hidden.dtype == torch.float32 else self._low.float()
        self._softcap, self._slope = softcap, None if softcap is None else torch.empty_like(self._full)

    def of(self, h: Tensor, small: Tensor) -> Tensor:
        """Logits of the hidden states h [n, C] in float32, valid until the next call."""
        with torch.autocast(h.device.type, enabled=False):
            low = torch.mm(h, small.T, out=self._low[: len(h)])
        full = low if low.dtype == torch.float32 else self._full[: len(h)].copy_(low)
        if self._softcap is not None and self._slope is not None:
            full.div_(self._softcap).tanh_()
            torch.square(full, out=self._slope[: len(h)]).neg_().add_(1.0)
            full.mul_(self._softcap)
        return full

    def softmax(self, logits: Tensor) -> Tensor:
        """The probabilities, in place of the logits on a CPU, whose kernel has read a row before it writes it."""
        return torch.softmax(logits, -1, out=logits if logits.device.type == "cpu" else None)

    def gradient(
        self, probabilities: Tensor, label: Tensor, first: int, by_loss: Tensor, by_z: Tensor | None
    ) -> Tensor:
        """Of the logits, in the type of the hidden states; overwrites the `probabilities`. `by_loss` and `by_z` (None: no
        z-loss) are the derivatives by each token's cross entropy and by its log(Z)."""
        # d loss / d logits = p - [label], d log(Z) / d logits = p
        full = probabilities.mul_((by_loss if by_z is None else by_loss + by_z)[:, None])
        row, here = own_rows(label, first, full.shape[1])
        full.scatter_add_(1, row[:, None], -(by_loss * here)[:, None])
        if self._slope is not None:
            full.mul_(self._slope[: len(full)])
        return full if full.dtype == self._low.dtype else self._low[: len(full)].copy_(full)


class _Gradients:
    """Of the hidden states and, if it is `trained`, the head, summed chunk by chunk.

    The head's in float32, whatever its type (ZeRO gathers it in bfloat16): a sum over many chunks in bfloat16 stands still
    once a summand is less than a 256th of it.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, trained: bool) -> None:
        self.to_hidden, self._done, self._trained = torch.empty_like(hidden), 0, trained
        like = weight if trained else weight[:0]
        self.to_weight = torch.zeros_like(like, dtype=torch.promote_types(weight.dtype, torch.float32))

    def add(self, h: Tensor, small: Tensor, grad_logits: Tensor) -> None:
        """Of the next chunk: h [n, C], the head [V, C] in the same type, and `grad_logits` [n, V]."""
        with torch.autocast(h.device.type, enabled=False):
            self.to_hidden[self._done : self._done + len(h)] = grad_logits @ small
            self._done += len(h)
            if self._trained:
                self.to_weight += grad_logits.T @ h


def own_rows(labels: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Each label's row among the `count` from `first` on (0 if it is elsewhere), and whether it is there."""
    row = labels - first
    here = (row >= 0) & (row < count)
    return row.masked_fill(~here, 0), here


class Statistics:
    """Sums over the scored tokens of training passes, by name, until they are taken; and the losses beside the cross
    entropy, which are added to it with a value of 0: their gradients count, and a token's loss stays its cross entropy.

    `z_loss`, `balance_loss`, `router_z_loss`, `loss_mtp`: float64; `load`: int64 [layers, E], tokens of each expert; with
    `collect_activations` also `activation`: float64 [2], mean squares of the residual stream before the last norm and
    their number.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.sums: dict[str, Tensor] = {}
        self.collect_activations = False
        # In a pipeline stage without a head: the derivative of the step's loss by that of a token.
        self.loss_weight: Tensor | float = 1.0

    def add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def take(self) -> dict[str, Tensor]:
        """The sums, which are then reset."""
        sums, self.sums = self.sums, {}
        return sums

    def add_activations(self, x: Tensor) -> None:
        """With `collect_activations`, add the residual stream [B, T, C] before the last norm."""
        if self.collect_activations:
            square = torch.linalg.vector_norm(x.detach(), dtype=torch.float32).square().double() / x.numel()
            self.add("activation", torch.stack((square, torch.ones_like(square))))

    def with_auxiliary_losses(
        self, loss: Tensor, z_loss: Tensor, routes: dict[int, Routed], labels: Tensor, split: Split,
        further: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """`loss` [B, T] with the gradients of the other losses of the scored tokens. `further`: of tokens after the next, and weighted
        (`corpusmill.train.model.mtp`)."""
        parts = [self.router_losses(routes, labels, split)] if routes else []
        if further is not None:
            self.add("loss_mtp", further[0].detach().double().sum())
            parts.append(further[1])
        if self.config.z_loss:
            self.add("z_loss", z_loss.detach().double().sum())
            parts.append(z_loss)
        for part in parts:
            loss = loss + (part - part.detach())
        return loss

    def with_router_losses(
        self, x: Tensor, routes: dict[int, Routed], labels: Tensor, split: Split
    ) -> Tensor:
        """Hidden states for the next stage, with the gradients of this stage's router losses."""
        if not routes:
            return x
        loss = self.router_losses(routes, labels, split).sum() * self.loss_weight
        found: Tensor = _Attached.apply(x, loss)  # type: ignore[no-untyped-call]
        return found

    def router_losses(self, routes: dict[int, Routed], labels: Tensor, split: Split) -> Tensor:
        """Of each scored token, [B, T]. All processes of a split have all tokens, so each takes an n-th of the gradient."""
        scored = labels != IGNORED
        experts = len(next(iter(routes.values())).load)
        load = torch.zeros(self.config.layers, experts, dtype=torch.int64, device=labels.device)
        for number, routed in routes.items():
            load[number] = routed.load
        self.add("load", load)
        balance = torch.stack([routed.balance_loss for routed in routes.values()]).sum(0) * scored
        router_z = torch.stack([routed.router_z_loss for routed in routes.values()]).sum(0) * scored
        self.add("balance_loss", balance.detach().double().sum())
        self.add("router_z_loss", router_z.detach().double().sum())
        return (balance + router_z) / split.size


def activation_rms(sums: dict[str, Tensor]) -> Tensor | None:
    """Root mean square of the residual stream after the last layer, before the final norm, on the device; removes it from
    the `sums` of `Statistics.take`. None if it was not collected."""
    found = sums.pop("activation", None)
    return None if found is None else (found[0] / found[1]).sqrt()


class _Attached(torch.autograd.Function):
    """`x` unchanged; the backward pass also differentiates `extra`, a scalar."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, extra: Tensor) -> Tensor:
        return x.clone()  # not a view: `fully_shard` registers hooks on what a module returns

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output[0], grad_output[0].new_ones(())
