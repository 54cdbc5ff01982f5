"""What passes through a decoder leave behind beside their result: the sums of training passes, and what a probe looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpusmill.train.model.losses import IGNORED

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.moe import Routed
    from corpusmill.train.model.split import Split


class Statistics:
    """Sums over the scored tokens of training passes, by name, until they are taken; and the losses beside the cross
    entropy, which are added to it with a value of 0: their gradients count, what a token's loss is stays readable.

    `z_loss`, `balance_loss`, `router_z_loss`: float64; `load`: int64 [layers, E], tokens of each expert; with
    `collect_activations` also `activation`: float64 [2], mean squares of the residual stream before the last norm and
    their number.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.sums: dict[str, Tensor] = {}
        self.collect_activations = False
        # Of a pipeline stage without a head: the gradient of the step's loss by that of a token.
        self.loss_weight: Tensor | float = 1.0

    def add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def take(self) -> dict[str, Tensor]:
        """The sums, which begin again."""
        sums, self.sums = self.sums, {}
        return sums

    def add_activations(self, x: Tensor) -> None:
        """Count the residual stream [B, T, C] before the last norm, where that is wanted."""
        if self.collect_activations:
            square = torch.linalg.vector_norm(x.detach(), dtype=torch.float32).square().double() / x.numel()
            self.add("activation", torch.stack((square, torch.ones_like(square))))

    def with_auxiliary_losses(
        self, loss: Tensor, z_loss: Tensor, routes: dict[int, Routed], labels: Tensor, split: Split
    ) -> Tensor:
        """`loss` [B, T] with the gradients of the other losses of the scored tokens."""
        parts = [self.router_losses(routes, labels, split)] if routes else []
        if self.config.z_loss:
            self.add("z_loss", z_loss.detach().double().sum())
            parts.append(z_loss)
        for part in parts:
            loss = loss + (part - part.detach())
        return loss

    def with_router_losses(
        self, x: Tensor, routes: dict[int, Routed], labels: Tensor, split: Split
    ) -> Tensor:
        """Hidden states that a later stage makes a loss of, with the gradients of this stage's routers' losses."""
        if not routes:
            return x
        loss = self.router_losses(routes, labels, split).sum() * self.loss_weight
        found: Tensor = _Attached.apply(x, loss)  # type: ignore[no-untyped-call]
        return found

    def router_losses(self, routes: dict[int, Routed], labels: Tensor, split: Split) -> Tensor:
        """Of each scored token, [B, T]. All processes of a split have all tokens: each takes its share of the gradient."""
        scored = labels != IGNORED
        load = torch.zeros(self.config.layers, len(next(iter(routes.values())).load), dtype=torch.int64)
        load = load.to(labels.device)
        for number, routed in routes.items():
            load[number] = routed.load
        self.add("load", load)
        balance = torch.stack([routed.balance_loss for routed in routes.values()]).sum(0) * scored
        router_z = torch.stack([routed.router_z_loss for routed in routes.values()]).sum(0) * scored
        self.add("balance_loss", balance.detach().double().sum())
        self.add("router_z_loss", router_z.detach().double().sum())
        return (balance + router_z) / split.size


def activation_rms(sums: dict[str, Tensor]) -> Tensor | None:
    """Root mean square of the residual stream after the last layer, before the final norm, from `Statistics.take` (it is
    taken out of there); None if it was not collected. On the device."""
    found = sums.pop("activation", None)
    return None if found is None else (found[0] / found[1]).sqrt()


class Probe:
    """What one pass shows of itself, for `corpusmill.train.log.rows`: of each layer the `entropies` [B, T] of its
    attention, and where the head is the `highest` logit [B, T] of its part of the vocabulary."""

    def __init__(self) -> None:
        self.entropies: list[Tensor] = []
        self.highest: Tensor | None = None

    def see_logits(self, logits: Tensor, known: int) -> None:
        """logits [B, T, V], of which only the first `known` are of tokens, not of padding."""
        logits = logits.float()
        logits[..., max(known, 0) :] = float("-inf")
        self.highest = logits.amax(-1)


class _Attached(torch.autograd.Function):
    """`x` unchanged; its backward pass also differentiates `extra`, a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, extra: Tensor) -> Tensor:
        return x.clone()  # not a view: `fully_shard` registers hooks on what a module returns

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output[0], grad_output[0].new_ones(())
