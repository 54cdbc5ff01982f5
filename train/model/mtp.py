"""Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2; Gloeckle et al. 2024, arXiv 2404.19737): in training, further
layers after the last one predict the tokens after the next.

Depth k = 1 .. D takes the stream of the depth before (of depth 1: the last layer's, before its norm) and the embedding of the token k
places on, each normed, joins them by a product, and passes them through a layer of its own; the head and the embedding are the
model's. A place without such a token in its document is not scored. The further layers are dense, attend to whole documents and
have no value embeddings, whatever the others do. Nothing but the loss of training uses them.

Shapes: B rows, T positions, C = dim; with tensor parallelism streams are [B, T / n, C], and ids and losses whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from corpusmill.train.model.layer import Layer, keys_of_layer, make_norm
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.attend import Boundaries
    from corpusmill.train.model.rope import Rotation


class Depth(nn.Module):
    """One further token: the stream [B, T / n, C] of the depth before, and embeddings, to the stream and what the head takes of it."""

    def __init__(self, config: ModelConfig, number: int, rows: int, attention: type[nn.Module]) -> None:
        super().__init__()
        self.stream_norm, self.token_norm = make_norm(config), make_norm(config)
        self.project = nn.Linear(2 * config.dim, config.dim, bias=False)
        self.layer = Layer(config, number, rows, attention)
        self.norm, self.ratio = make_norm(config), config.width_ratio

    def forward(
        self, x: Tensor, embedded: Tensor, rope: Rotation | None, within: Boundaries, ids: Tensor, keys: Tensor | None
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        joined = torch.cat((self.stream_norm(x), self.token_norm(embedded)), dim=-1)
        x, _, _ = self.layer(self.project(joined).to(x.dtype), rope, within, ids, keys)
        return x, self.norm(x) / self.ratio


class FurtherTokens(nn.ModuleDict):
    """The depths of a model, by number from 0."""

    def __init__(self, config: ModelConfig, rows: int, attention: type[nn.Module]) -> None:
        super().__init__()
        self.split: Split = WHOLE
        self.first, self.weight = config.layers, config.mtp_weight
        count = config.mtp or 0
        self.update({str(k): Depth(config, config.layers + k, rows, attention) for k in range(count)})

    def forward(
        self,
        x: Tensor,  # [B, T / n, C], the last layer's
        tokens: Tensor,  # int64 [B, T]
        labels: Tensor,
        documents: Tensor | None,
        embedding: Tensor,  # [V / n, C]
        score: Callable[
            [Tensor, Tensor], Tensor
        ],  # what the head takes [B, T, C], and labels, to losses [B, T]
        rope: Rotation | None,
        within: Boundaries,
        keys: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(the mean over the depths of the loss of each position, float32 [B, T], in nats, 0 where a depth does not score it; the same
        times the model's `mtp_weight`)."""
        total: Tensor | None = None
        for k, depth in enumerate(self.values(), 1):
            ids = further(tokens, k, 0)
            number = self.first + k - 1
            x, taken = depth(
                x,
                self.split.embed(ids, embedding).to(x.dtype),
                rope,
                within,
                ids,
                keys_of_layer(keys, number),
            )
            target = further(labels, k, IGNORED)
            if documents is not None:
                target = target.masked_fill(further(documents, k, -1) != documents, IGNORED)
            loss = score(self.split.gather(taken), target)
            total = loss if total is None else total + loss
        assert total is not None
        mean = total / len(self)
        return mean, mean * self.weight


def further(x: Tensor, places: int, fill: int) -> Tensor:
    """x [B, T] moved to the left by `places`, `fill` where a row ends."""
    beyond = x.new_full((len(x), min(places, x.shape[1])), fill)
    return torch.cat((x[:, places:], beyond), dim=1)
