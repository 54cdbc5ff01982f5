"""A model as generation uses it: new tokens in, logits of the next ones out, with a cache and without autograd."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.generate.cache import Cache
from corpusmill.train.generate.fused import Fused
from corpusmill.train.generate.low_bits import Bits, in_few_bits
from corpusmill.train.generate.product import Product
from corpusmill.train.model.adapters import virtual_tokens
from corpusmill.train.model.attend import Boundaries
from corpusmill.train.model.blockwise import capped
from corpusmill.train.precision.adapt import TYPES

if TYPE_CHECKING:
    from corpusmill.train.generate.low_rank import LowRank
    from corpusmill.train.model.decoder import Decoder

SPARE = 64


class Runner:
    """`context`: positions that the model can look back on, of which virtual tokens take `virtual`; then those for texts. `precision` as of a training run; the weights of matrix products
    are converted to its type, once for all tokens. `sole`: nothing else uses the model, so its weights are freed when they have been
    laid out for generation. `weights`: bits of those of products in layers (None: all of `precision`); raises `UserError` for them on a
    GPU."""

    def __init__(
        self, model: Decoder, vocab_size: int, eos_id: int, context: int, precision: str = "fp32", sole: bool = False,
        weights: Bits | None = None,
    ) -> None:  # fmt: skip
        if weights and model.embedding.weight.device.type != "cpu":
            raise UserError(
                f"--weights {weights}: computes on a CPU, not on {model.embedding.weight.device.type}; leave it out"
            )
        self.model, self.vocab_size, self.eos_id = model.eval(), vocab_size, eos_id
        if model.config.positions == "learned":
            context = min(context, model.config.max_positions)
        self.virtual = virtual_tokens(model)
        self.context = max(context - self.virtual, 1)
        self.device = model.embedding.weight.device
        dtype = TYPES[precision]
        self.autocast = torch.autocast(self.device.type, dtype or torch.bfloat16, enabled=dtype is not None)
        self.dtype = dtype or torch.float32
        head = model.embedding.weight if model.head is None else model.head.weight
        self.head = Product(head[:vocab_size].detach().to(self.dtype))  # without padding
        self._sole, self._weights = sole, weights
        self.adapters: LowRank | None = None  # set before the first use
        self._fits = Fused.fits(model.config) and not self.virtual
        if not self._fits:
            if weights:
                in_few_bits(model, weights)
            for module in model.modules():
                if isinstance(module, nn.Linear):
                    module.requires_grad_(False).to(self.dtype)

    @cached_property
    def fused(self) -> Fused | None:
        """The layers in fewer operations, made when they are first used, if they are written for this architecture."""
        if not self._fits:
            return None
        made = Fused(self.model, self.dtype, self.context + SPARE, self._weights)
        if self._sole:
            for module in self.model.modules():
                if isinstance(module, nn.Linear):
                    module.weight = nn.Parameter(module.weight.new_empty(0), requires_grad=False)
        return made

    @property
    def folded(self) -> bool:
        """Whether `fused` has weights of norms in those of the products behind them."""
        return Fused.folds(self.dtype, self._weights)

    def cache(self, rows: int, spare: int = 0) -> Cache:
        """For texts of `context` positions, and `spare` ones (at most `SPARE`) for what a row is padded with behind them."""
        capacity = self.virtual + self.context + spare
        return Cache(self.model.config, rows, capacity, self.dtype, self.device)

    def forward(
        self, cache: Cache, first: int, tokens: Sequence[Sequence[int]], adapters: Sequence[int] = ()
    ) -> Tensor:
        """Read the next tokens of the rows from `first` on, any number (at least one) each; logits float32 [B, V] of what
        follows the last one of each. `adapters`: the number of each row's, 0 or left out: none."""
        hidden = self.hidden(cache, first, tokens, adapters)
        if hidden.shape[1] == 1:
            return self.logits(hidden[:, 0])
        last = torch.tensor([len(part) - 1 for part in tokens], device=self.device)
        return self.logits(hidden[torch.arange(len(tokens), device=self.device), last])

    @torch.inference_mode()
    def hidden(
        self, cache: Cache, first: int, tokens: Sequence[Sequence[int]], adapters: Sequence[int] = ()
    ) -> Tensor:
        """The hidden states before the head, [B, T, C], T the most tokens that a row reads; rows are padded behind."""
        width = max(map(len, tokens))
        padded = tokens if width == 1 else [[*part, *[self.eos_id] * (width - len(part))] for part in tokens]
        rows = torch.tensor(padded, device=self.device)
        mask, window = cache.begin(first, len(tokens), width), self.model.config.window
        if self.fused is not None:
            which = torch.tensor(adapters, device=self.device) if any(adapters) else None
            x = self.fused(rows, mask, cache, self.adapters, which)
        else:
            local = None if window is None else Boundaries(mask=cache.near(mask, window))
            within = Boundaries(mask=mask, cache=cache, positions=cache.positions, local=local)
            x = self._layers(rows, cache.positions, within)
        cache.advance([len(part) for part in tokens])
        return x

    def _layers(self, rows: Tensor, positions: Tensor, within: Boundaries) -> Tensor:
        if self.model.position_embedding is not None:  # of padding: any
            positions = positions.clamp(max=self.model.config.max_positions - 1)
        with self.autocast:
            x = self.model.embed(rows, positions, None)
            rope = self.model.rotation(positions)
            first = None
            for layer in self.model.layers.values():
                x, _, values = layer(x, rope, within, rows, None, first)
                first = values if first is None else first
            return self.model.last_norm(x)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of hidden states [..., C]: float32 [..., V]."""
        return capped(self.head(hidden.to(self.dtype)).float(), self.model.config.logit_softcap)
