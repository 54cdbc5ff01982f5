"""A decoder (Touvron et al. 2023, Radford et al. 2019): embeddings, layers, a norm, a head.

Shapes: B rows, T positions, C = dim, V = padded vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model import cost
from train.model.attend import Boundaries, boundaries, document_mask
from train.model.initialise import initialise
from train.model.layer import Layer, make_norm
from train.model.losses import IGNORED, token_losses
from train.model.moe import Experts, Routed
from train.model.rope import rotation

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.model import ModelConfig


class Decoder(nn.Module):
    """Token ids in; logits, or the loss of each position, out.

    Dropout falls on the embeddings and on what each half of a layer adds. `seed` and a parameter's name decide
    its first values, whatever the layout (`train.model.initialise`); on the meta device it gets none.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        padded = config.padded(vocab_size)
        self.embedding = nn.Embedding(padded, config.dim)
        learned = config.positions == "learned"
        self.position_embedding = nn.Embedding(config.max_positions, config.dim) if learned else None
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.norm = make_norm(config)
        self.head = None if config.tie_embeddings else nn.Linear(config.dim, padded, bias=False)
        self.sums: dict[str, Tensor] = {}  # of the training passes since `take_sums`
        self.watch = False  # whether training passes also sum what `activation_rms` reads
        self.entropies: list[Tensor] | None = None  # `train.probe` hangs up a list, and layers fill it
        if not self.embedding.weight.is_meta:
            initialise(self, seed)

    def forward(
        self,
        tokens: Tensor,  # int64 [B, T]
        labels: Tensor | None = None,  # int64 [B, T]; IGNORED is not scored
        documents: Tensor | None = None,  # integers [B, T]; None: each row is one document
        positions: Tensor | None = None,  # integers [B, T]; None: 0 .. T-1
        cu_seqlens: Tensor | None = None,  # `sequence_starts(documents)`, for the faster kernel on CUDA
    ) -> Tensor:
        """Logits [B, T, V], or, given labels, the loss of each position in nats, float32 [B, T] (0 if ignored).

        The loss is the cross entropy alone, but its gradient is that of all losses: z-loss and the routers' losses of
        the scored tokens are added with a value of 0, and summed apart in `sums`.
        """
        x = self.embedding(tokens)
        place = torch.arange(tokens.shape[1], device=x.device)[None] if positions is None else positions
        rope = None
        if self.position_embedding is None:
            rope = rotation(place, self.config.head_size, self.config.rope_theta, self.config.rope_scaling)
        else:
            x = x + self.position_embedding(place)
        autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
        if self.entropies is not None and documents is not None:
            within = Boundaries(mask=document_mask(documents), entropies=self.entropies)
        else:
            within = boundaries(documents, cu_seqlens, dtype, self.config.head_size)
        x = F.dropout(x, self.config.dropout, self.training)
        routes = []
        for layer in self.layers:
            x, routed = layer(x, rope, within)
            if routed is not None:
                routes.append(routed)
        if self.watch and self.training:
            square = torch.linalg.vector_norm(x.detach(), dtype=torch.float32).square().double() / x.numel()
            self._count("activation", torch.stack((square, torch.ones_like(square))))
        x, head = self.norm(x), self.embedding.weight if self.head is None else self.head.weight
        if labels is None:
            return F.linear(x, head)
        loss, z_loss = token_losses(x, head, labels, self.config.z_loss, self.config.loss_chunk)
        return self.with_auxiliary(loss, z_loss, routes, labels) if self.training else loss

    def with_auxiliary(self, loss: Tensor, z_loss: Tensor, routes: list[Routed], labels: Tensor) -> Tensor:
        """`loss`, with the gradients of the other losses of the scored tokens; their sums go into `sums`."""
        scored = labels != IGNORED
        parts = {"z_loss": z_loss} if self.config.z_loss else {}
        if routes:
            parts["balance_loss"] = torch.stack([routed.balance_loss for routed in routes]).sum(0) * scored
            parts["router_z_loss"] = torch.stack([routed.router_z_loss for routed in routes]).sum(0) * scored
            self._count("load", torch.stack([routed.load for routed in routes]))
        for name, part in parts.items():
            self._count(name, part.detach().double().sum())
            loss = loss + (part - part.detach())
        return loss

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
    def experts(self) -> list[Experts]:
        """The layers' mixtures of experts, in order."""
        return [layer.ffn for layer in self.layers if isinstance(layer.ffn, Experts)]

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self, length: int) -> float:
        """Of forward and backward, over rows of `length` positions: `train.model.cost` has the formula."""
        return cost.flops_per_token(self, length)
