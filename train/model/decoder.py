"""A decoder (Touvron et al. 2023, Radford et al. 2019): embeddings, layers, a norm, a head.

Shapes: B rows, T positions, C = dim, V = padded vocabulary. A process may hold some of the layers (a stage of a pipeline)
or parts of the matrices (`corpusmill.train.model.split`): `corpusmill.train.parallel` removes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.attend import Boundaries, Part, boundaries, document_mask, visible_mask
from corpusmill.train.model.blockwise import capped
from corpusmill.train.model.flops import flops_per_token
from corpusmill.train.model.initialise import initialise
from corpusmill.train.model.layer import Attention, Layer, dropout, keys_of_layer, make_norm
from corpusmill.train.model.lora import weight_shapes
from corpusmill.train.model.losses import Statistics, token_losses
from corpusmill.train.model.mla import LatentAttention
from corpusmill.train.model.moe import Experts
from corpusmill.train.model.mtp import FurtherTokens
from corpusmill.train.model.rope import rotation
from corpusmill.train.model.split import WHOLE, Context, Split
from corpusmill.train.model.value_residual import apart, together
from corpusmill.train.model.virtual import with_prompt

if TYPE_CHECKING:
    from corpusmill.schemas.adapter import AdapterConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.probe import Probe


class Decoder(nn.Module):
    """Token ids in; logits, or the loss of each position, out.

    Dropout is applied to the embeddings and to the output of each half of a layer. The first values of a parameter depend
    on `seed` and its name, in any layout (`corpusmill.train.model.initialise`); on the meta device there are none.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        self.tensor_split = {"embedding.weight": 0, "head.weight": 0}
        self.config, self.vocab_size = config, vocab_size
        self.adapter: AdapterConfig | None = None  # set by `corpusmill.train.model.adapters`
        self.split: Split = WHOLE
        self.context: Context | None = None  # the processes with which this one shares sequences
        self.first, self.last = True, True  # whether it begins with embeddings and ends with the head
        padded = config.padded(vocab_size)
        self.embedding = _table(padded, config.dim)
        learned = config.positions == "learned"
        self.position_embedding = _table(config.max_positions, config.dim) if learned else None
        self.prompt_embedding: nn.Parameter | None = None  # [N, C], of virtual tokens
        kind: type[nn.Module] = LatentAttention if config.mla else Attention
        self.layers = nn.ModuleDict({str(n): Layer(config, n, padded, kind) for n in range(config.layers)})
        self.norm = make_norm(config)
        self.mtp = FurtherTokens(config, padded, kind) if config.mtp else None
        of_head = 1 if config.reward_head else padded
        self.head = None if config.tie_embeddings else nn.Linear(config.dim, of_head, bias=False)
        if config.reward_head:
            del self.tensor_split["head.weight"]  # a single row, which every process has
        self.score: Callable[..., tuple[Tensor, Tensor]] = (
            token_losses  # `corpusmill.train.precision.adapt` may compile it
        )
        self.statistics = Statistics(config)  # of training passes
        self.summed = True  # in training, the losses are differentiated as one sum: see `token_losses`
        self.probe: Probe | None = None  # set for one pass by `corpusmill.train.log.metrics`
        if not self.embedding.weight.is_meta:
            initialise(self, seed, config.layers, vocab_size, config.width_ratio)

    def forward(
        self,
        tokens: Tensor,  # int64 [B, T]; of a later stage: what the one before returned
        labels: Tensor | None = None,  # int64 [B, T]; IGNORED is not scored
        documents: Tensor | None = None,  # integers [B, T]; None: each row is one document
        positions: Tensor | None = None,  # integers [B, T]; None: 0 .. T-1
        cu_seqlens: Tensor | None = None,  # `sequence_starts(documents)`, for the faster kernel on CUDA
        keys: Tensor | None = None,  # int64 [B]: of dropout (`corpusmill.train.model.layer`); None: none
        ids: Tensor | None = None,  # of a later stage: the token ids, int64 [B, T]
        ancestors: Tensor | None = None,  # bool [B, S, S]: which of a row's documents each sees; None: itself
        places: Tensor | None = None,  # int64 [B, T]: places in shared rows, whose `documents` are whole
    ) -> Tensor:
        """Logits [B, T, V], or, given labels, the loss of each position in nats, float32 [B, T] (0 if ignored); from a
        stage without a head hidden states, float32 [B, T / n, C] (`corpusmill.train.model.value_residual`: and more).

        The value of the loss is the cross entropy alone; in training its gradient is that of all losses (`Statistics`).
        """
        if positions is None and places is not None:
            positions = places[:1]
        if positions is None:
            length = tokens.shape[1] * (1 if self.first else self.split.size)
            positions = torch.arange(length, device=tokens.device)[None]
        keys = keys if self.training else None
        ids = tokens if ids is None else ids

        embedded = (self.embed(tokens, positions, keys), None) if self.first else None
        x, first = embedded or apart(tokens, self.config, self.split.size)
        rope = self.rotation(positions)
        within = self.boundaries(ids, x.dtype, documents, cu_seqlens, ancestors, positions, places)
        if self.adapter is not None and self.adapter.virtual:
            within = within._replace(positions=positions)
        routes = {}
        for number, layer in self.layers.items():
            x, routed, values = layer(x, rope, within, ids, keys_of_layer(keys, int(number)), first)
            first = values if first is None else first
            if routed is not None:
                routes[int(number)] = routed
        if not self.last:
            if self.training and labels is not None:
                x = self.statistics.with_router_losses(x, routes, labels, self.split)
            return together(x, first)

        if self.training:
            self.statistics.add_activations(x)
        stream, x = x, self.split.gather(self.last_norm(x))
        head = self.embedding.weight if self.head is None else self.head.weight
        if self.probe and labels is not None:
            self.probe.see_logits(F.linear(x, head), self.vocab_size - self.split.rank * len(head))
        cap = self.config.logit_softcap
        if labels is None:
            return capped(F.linear(x, head), cap)
        summed, more = self.summed and self.training, {} if cap is None else {"softcap": cap}
        rest = self.config.loss_chunk, self.split, summed
        loss, z_loss = self.score(x, head, labels, self.config.z_loss, *rest, **more)
        if not self.training:
            return loss
        further = None if self.mtp is None else self.mtp(
            stream, tokens, labels, documents, self.embedding.weight,
            lambda x, labels: self.score(x, head, labels, 0.0, *rest, **more)[0], rope, within, keys,
        )  # fmt: skip
        return self.statistics.with_auxiliary_losses(loss, z_loss, routes, labels, self.split, further)

    def embed(self, tokens: Tensor, positions: Tensor, keys: Tensor | None) -> Tensor:
        """The input of the first layer, float32 [B, T / n, C]."""
        x = self.split.embed(tokens, self.embedding.weight)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.prompt_embedding is not None:
            x = with_prompt(x, self.prompt_embedding, self.split.take(positions))
        if self.position_embedding is not None:
            x = x + self.position_embedding(self.split.take(positions))
        return dropout(x, self.config.dropout, keys, 0, self.split)

    def last_norm(self, x: Tensor) -> Tensor:
        """The norm before the head, [B, T / n, C], with muP's factor of the logits; `corpusmill.train.precision.adapt` may compile it."""
        found: Tensor = self.norm(x)
        return found if self.config.width_ratio == 1 else found / self.config.width_ratio

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """Cosine and sine of rotary positions; None for a model with learned ones."""
        config = self.config
        if config.positions != "rope":
            return None
        return rotation(positions, config.rope_size, config.rope_theta, config.rope_scaling)

    def boundaries(
        self,
        ids: Tensor,
        dtype: torch.dtype,
        documents: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        ancestors: Tensor | None = None,
        positions: Tensor | None = None,
        places: Tensor | None = None,
    ) -> Boundaries:
        """The documents' boundaries in rows of `ids` [B, T], for the kernel that will compute attention, outside of autocast in `dtype`; a
        probe needs the mask. With `ancestors` a window counts `positions`."""
        window, causal = self.config.window, self.config.causal
        if ancestors is not None and documents is not None:
            mask, local = document_mask(documents, ancestors), None
            if window is not None and positions is not None:
                near = positions[:, None, :, None] - positions[:, None, None, :] < window
                local = Boundaries(mask=mask & near)
            return Boundaries(mask=mask, local=local)
        if self.probe and documents is not None:
            seen, local = self.probe.attention, None
            if window is not None:
                local = Boundaries(mask=visible_mask(ids, documents, window, None, causal), seen=seen)
            return Boundaries(mask=visible_mask(ids, documents, None, None, causal), seen=seen, local=local)
        if torch.is_autocast_enabled(ids.device.type):
            dtype = torch.get_autocast_dtype(ids.device.type)
        part = None
        if places is not None and self.context is not None:
            part = Part(self.context, places[0], ids.shape[1] * self.context.size)
        return boundaries(ids, documents, cu_seqlens, dtype, self.config, part)

    @property
    def experts(self) -> dict[int, Experts]:
        """The layers' mixtures of experts, by layer number."""
        return {int(n): layer.ffn for n, layer in self.layers.items() if isinstance(layer.ffn, Experts)}

    @property
    def parameter_count(self) -> int:
        return sum(shape.numel() for shape in weight_shapes(self).values())

    def flops_per_token(self, length: int) -> float:
        """FLOPs of forward and backward, in rows of `length` positions: `corpusmill.train.model.flops`."""
        shapes = weight_shapes(self)
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        frozen = [name for name in shapes if name not in trained]
        top_k = self.config.moe.top_k if self.config.moe else 0
        return flops_per_token(shapes, length, top_k, self.config.causal, frozen, self.config.windows)


def _table(rows: int, width: int) -> nn.Embedding:
    """Without first values: `initialise` gives them, and PyTorch's own would on the meta device import its compiler (2 s)."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))
