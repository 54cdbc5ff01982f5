"""A decoder (Touvron et al. 2023, Radford et al. 2019): embeddings, layers, a norm, a head.

Shapes: B rows, T positions, C = dim, V = padded vocabulary. A process may have some of its layers (a stage of a pipeline)
or parts of its matrices (`corpusmill.train.model.split`): `corpusmill.train.parallel` takes away what another one has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model import cost
from corpusmill.train.model.attend import Boundaries, boundaries, document_mask
from corpusmill.train.model.dropout import dropout
from corpusmill.train.model.initialise import initialise, mix
from corpusmill.train.model.layer import Layer, make_norm
from corpusmill.train.model.losses import IGNORED, token_losses
from corpusmill.train.model.moe import Experts, Routed
from corpusmill.train.model.rope import rotation
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.schemas.model import ModelConfig


class Probe:
    """What a pass leaves for `corpusmill.train.log.probe`: of each layer the `entropies` [B, T] of its attention, and where the head is
    the `highest` logit [B, T] of its part of the vocabulary."""

    def __init__(self) -> None:
        self.entropies: list[Tensor] = []
        self.highest: Tensor | None = None


class Decoder(nn.Module):
    """Token ids in; logits, or the loss of each position, out.

    Dropout falls on the embeddings and on what each half of a layer adds. `seed` and a parameter's name decide
    its first values, whatever the layout (`corpusmill.train.model.initialise`); on the meta device it gets none.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.split: Split = WHOLE
        self.first, self.last = True, True  # whether it begins with embeddings and ends with the head
        padded = config.padded(vocab_size)
        self.embedding = nn.Embedding(padded, config.dim)
        learned = config.positions == "learned"
        self.position_embedding = nn.Embedding(config.max_positions, config.dim) if learned else None
        self.layers = nn.ModuleDict({str(number): Layer(config, number) for number in range(config.layers)})
        self.norm = make_norm(config)
        self.head = None if config.tie_embeddings else nn.Linear(config.dim, padded, bias=False)
        self.sums: dict[str, Tensor] = {}  # of the training passes since `take_sums`
        # Of a stage without a head: the slope of the total in a token's loss.
        self.loss_weight: Tensor | float = 1.0
        self.watch = False  # whether training passes also sum what `activation_rms` reads
        self.probe: Probe | None = None  # which `corpusmill.train.log.probe` hangs up
        self.score = token_losses  # which `corpusmill.train.precision.adapt` may compile
        if not self.embedding.weight.is_meta:
            initialise(self, seed)

    def forward(
        self,
        tokens: Tensor,  # int64 [B, T]; of a later stage: hidden states, float32 [B, T / n, C]
        labels: Tensor | None = None,  # int64 [B, T]; IGNORED is not scored
        documents: Tensor | None = None,  # integers [B, T]; None: each row is one document
        positions: Tensor | None = None,  # integers [B, T]; None: 0 .. T-1
        cu_seqlens: Tensor | None = None,  # `sequence_starts(documents)`, for the faster kernel on CUDA
        keys: Tensor | None = None,  # int64 [B]: of dropout (`corpusmill.train.model.dropout`); None: none
    ) -> Tensor:
        """Logits [B, T, V], or, given labels, the loss of each position in nats, float32 [B, T] (0 if ignored); of a stage
        without a head the hidden states.

        The loss is the cross entropy alone, but its gradient is that of all losses: z-loss and the routers' losses of
        the scored tokens are added with a value of 0, and summed apart in `sums`.
        """
        length = tokens.shape[1] * (1 if self.first else self.split.size)
        place = torch.arange(length, device=tokens.device)[None] if positions is None else positions
        keys = keys if self.training else None
        x = self.embed(tokens, place, keys) if self.first else tokens
        rope = None
        if self.config.positions == "rope":
            rope = rotation(place, self.config.head_size, self.config.rope_theta, self.config.rope_scaling)
        autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
        if self.probe and documents is not None:
            within = Boundaries(mask=document_mask(documents), entropies=self.probe.entropies)
        else:
            within = boundaries(documents, cu_seqlens, dtype, self.config.head_size)
        routes = {}
        for number, layer in self.layers.items():
            x, routed = layer(x, rope, within, None if keys is None else mix(keys + int(number) + 1))
            if routed is not None:
                routes[int(number)] = routed
        if not self.last:
            return self.with_routes(x, routes, labels) if self.training and labels is not None else x
        if self.watch and self.training:
            square = torch.linalg.vector_norm(x.detach(), dtype=torch.float32).square().double() / x.numel()
            self._count("activation", torch.stack((square, torch.ones_like(square))))
        x = self.split.gather(self.norm(x))
        head = self.embedding.weight if self.head is None else self.head.weight
        if labels is None:
            return F.linear(x, head)
        if self.probe:
            logits, known = F.linear(x, head).float(), self.vocab_size - self.split.rank * len(head)
            logits[..., max(known, 0) :] = float("-inf")  # padding
            self.probe.highest = logits.amax(-1)
        loss, z_loss = self.score(x, head, labels, self.config.z_loss, self.config.loss_chunk, self.split)
        return self.with_auxiliary(loss, z_loss, routes, labels) if self.training else loss

    def embed(self, tokens: Tensor, place: Tensor, keys: Tensor | None) -> Tensor:
        """The residual stream's beginning, float32 [B, T / n, C]."""
        x = self.split.embed(tokens, self.embedding.weight)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.position_embedding is not None:
            x = x + self.position_embedding(self.split.take(place))
        return dropout(x, self.config.dropout, keys, 0, self.split)

    def with_auxiliary(
        self, loss: Tensor, z_loss: Tensor, routes: dict[int, Routed], labels: Tensor
    ) -> Tensor:
        """`loss`, with the gradients of the other losses of the scored tokens; their sums go into `sums`."""
        parts = [self.routers_losses(routes, labels)] if routes else []
        if self.config.z_loss:
            self._count("z_loss", z_loss.detach().double().sum())
            parts.append(z_loss)
        for part in parts:
            loss = loss + (part - part.detach())
        return loss

    def with_routes(self, x: Tensor, routes: dict[int, Routed], labels: Tensor) -> Tensor:
        """Hidden states that a later stage makes a loss of, with the gradients of this stage's routers' losses."""
        if not routes:
            return x
        found: Tensor = _Attached.apply(x, self.routers_losses(routes, labels).sum() * self.loss_weight)
        return found

    def routers_losses(self, routes: dict[int, Routed], labels: Tensor) -> Tensor:
        """Of each scored token, [B, T]; counted in `sums`. All processes of a split have all of them: each sends back
        its share of their gradient."""
        scored = labels != IGNORED
        load = torch.zeros(self.config.layers, len(next(iter(routes.values())).load), dtype=torch.int64)
        load = load.to(labels.device)
        for number, routed in routes.items():
            load[number] = routed.load
        self._count("load", load)
        found = {
            "balance_loss": torch.stack([routed.balance_loss for routed in routes.values()]).sum(0) * scored,
            "router_z_loss": torch.stack([routed.router_z_loss for routed in routes.values()]).sum(0)
            * scored,
        }
        for name, part in found.items():
            self._count(name, part.detach().double().sum())
        return (found["balance_loss"] + found["router_z_loss"]) / self.split.size

    def _count(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def take_sums(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """What `sums` holds, each made the `total` over all processes that have other tokens; it is empty then."""
        sums, self.sums = {name: total(value) for name, value in self.sums.items()}, {}
        return sums

    @staticmethod
    def activation_rms(sums: dict[str, Tensor]) -> Tensor | None:
        """Root mean square of the residual stream after the last layer, before the final norm, from what `take_sums`
        gave while `watch` was set (it is taken out); None if it was not. On the device."""
        found = sums.pop("activation", None)
        return None if found is None else (found[0] / found[1]).sqrt()

    @property
    def experts(self) -> dict[int, Experts]:
        """The mixtures of experts of its layers, by their numbers."""
        return {int(n): layer.ffn for n, layer in self.layers.items() if isinstance(layer.ffn, Experts)}

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self, length: int) -> float:
        """Of forward and backward, over rows of `length` positions: `corpusmill.train.model.cost` has the formula."""
        return cost.flops_per_token(self, length)


class _Attached(torch.autograd.Function):
    """`x` as it is; whoever differentiates it differentiates `extra`, a number, with it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, extra: Tensor) -> Tensor:
        return x.clone()  # no view: sharding hangs its hooks on what a module returns

    @staticmethod
    def backward(ctx: Any, *slope: Tensor) -> tuple[Tensor, Tensor]:
        return slope[0], slope[0].new_ones(())
