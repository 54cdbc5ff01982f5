"""Multi-head latent attention (DeepSeek-V2 2024), as DeepSeek-V3 has it: a latent vector of each position, and one rotated key for all
heads, of which the keys and values of all heads are made.

Shapes beside those of `corpusmill.train.model.layer`: R = kv_rank, N = nope_head_dim, P = rope_head_dim, D = N + P, V = value_head_dim. The
first products, which all processes of tensor parallelism have whole, are of each one's part of the sequence, and so are their gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model.attend import Boundaries, attend
from corpusmill.train.model.blockwise import Scores
from corpusmill.train.model.layer import COLUMNS, ROWS, RMSNorm, row_parallel
from corpusmill.train.model.rope import Rotation, frequencies, rotate
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig

EPS = 1e-6  # of the norms of latent vectors, whatever that of the others is, as in DeepSeek's


class LatentAttention(nn.Module):
    """Causal self-attention of H heads whose queries and keys, of D dimensions, are rotated in P of them, and whose values have V.

    With YaRN all scores are sharpened as those of other attention are, not the rotated part alone (DeepSeek's `mscale_all_dim` of 1).
    """

    tensor_split: ClassVar[dict[str, int]] = {
        **{f"{name}.{part}": 0 for name in ("q", "q_b", "kv_b") for part in COLUMNS},
        **{f"o.{part}": 1 for part in ROWS}, "sinks": 0,
    }  # fmt: skip

    def __init__(self, config: ModelConfig, number: int, _rows: int) -> None:
        super().__init__()
        assert config.mla is not None
        self.split: Split = WHOLE
        self.sizes, self.number = config.mla, number
        self.local, self.rotated = config.is_local(number), config.is_rotated(number)
        self.softcap = config.attention_softcap
        # Cosine and sine of both queries and keys are multiplied by it.
        self.sharper = frequencies(self.sizes.rope_head_dim, config.rope_theta, config.rope_scaling)[1] ** 2
        self.sinks = nn.Parameter(torch.zeros(config.heads)) if config.attention_sinks else None
        of, heads, low = self.sizes, config.heads, self.sizes.q_rank
        self.q_a = nn.Linear(config.dim, low, bias=False) if low else None
        self.q_a_norm = RMSNorm(low, eps=EPS) if low else None
        self.q_b = nn.Linear(low, heads * of.head_size, bias=False) if low else None
        self.q = None if low else nn.Linear(config.dim, heads * of.head_size, bias=False)
        self.kv_a = nn.Linear(config.dim, of.kept, bias=False)
        self.kv_a_norm = RMSNorm(of.kv_rank, eps=EPS)
        self.kv_b = nn.Linear(of.kv_rank, heads * (of.nope_head_dim + of.value_head_dim), bias=False)
        self.o = nn.Linear(heads * of.value_head_dim, config.dim, bias=False)

    def forward(
        self, x: Tensor, rope: Rotation | None, within: Boundaries, _ids: Tensor, _first: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """[B, T, C]; no values, which other layers might take."""
        of = self.sizes
        latent, key = (part[:, None] for part in self.latent(x))
        q = self.queries(x)
        if rope is not None and self.rotated:
            plain, turned = torch.split(q, [of.nope_head_dim, of.rope_head_dim], dim=-1)
            plain = plain if self.sharper == 1 else plain * self.sharper
            q, key = joined(plain, rotate(turned, rope)), rotate(key, rope)
        here = within.of(self.local)
        gathered = (
            None if here.context is None or here.context.ring else here.context
        )  # a ring passes keys on
        if within.cache is not None or gathered is not None:
            kept = torch.cat((latent, key), dim=-1)  # [B, 1, T, R + P], then of all S positions
            if within.cache is not None:
                (kept,) = within.cache.extend(self.number, kept)
            if gathered is not None:
                (kept,) = gathered.whole(kept)
                here = here._replace(context=None)
            latent, key = torch.split(kept, [of.kv_rank, of.rope_head_dim], dim=-1)
            if within.cache is not None and absorbs(self, q.shape[2], kept.shape[2]):
                return self.combined(self.absorbed(q, kept, here)), None
        k, v = self.expanded(latent[:, 0], key)
        found = attend(q, k, v, here, Scores(self.softcap, self.sinks))
        return self.combined(found[..., : of.value_head_dim]), None

    def queries(self, x: Tensor) -> Tensor:
        """[B, H, T, D], without rotation."""
        if self.q is not None:
            (q,) = self.split.products(x, self.q)
        else:
            assert self.q_a is not None and self.q_a_norm is not None and self.q_b is not None
            low = self.q_a(x)
            (q,) = self.split.products(self.q_a_norm(low).to(low.dtype), self.q_b)
        return q.view(*q.shape[:2], -1, self.sizes.head_size).transpose(1, 2)

    def latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of the stream x [B, T / n, C]: the latent vectors [B, T, R], and the keys before their rotation, [B, T, P]."""
        sizes = [self.sizes.kv_rank, self.sizes.rope_head_dim]
        low, key = torch.split(self.kv_a(x), sizes, dim=-1)
        latent = self.kv_a_norm(low).to(low.dtype)
        if self.split.size == 1:
            return latent, key
        latent, key = torch.split(self.split.gather(torch.cat((latent, key), dim=-1)), sizes, dim=-1)
        return latent, key

    def expanded(self, latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, [B, H, S, D] each, of latent vectors [B, S, R] and rotated keys [B, 1, S, P]: kernels have values as long as
        keys, so these end in zeros."""
        of = self.sizes
        sizes = [of.nope_head_dim, of.value_head_dim]
        made = self.kv_b(latent).view(*latent.shape[:2], -1, sum(sizes))
        plain, v = torch.split(made, sizes, dim=-1)
        v = v if of.value_head_dim == of.head_size else F.pad(v, (0, of.head_size - of.value_head_dim))
        plain = plain.transpose(1, 2)
        return joined(plain, key.expand(-1, plain.shape[1], -1, -1)), v.transpose(1, 2)

    def absorbed(self, q: Tensor, kept: Tensor, here: Boundaries) -> Tensor:
        """Attention, [B, H, T, V], of q [B, H, T, D] on `kept` [B, 1, S, R + P] as they are: what makes keys of latent vectors is multiplied into
        queries, and what makes values of them into the result (section 2.1.2 of the paper)."""
        of, size = self.sizes, kept.shape[-1]
        weight = self.kv_b.weight.view(-1, of.nope_head_dim + of.value_head_dim, of.kv_rank)
        plain, turned = torch.split(q, [of.nope_head_dim, of.rope_head_dim], dim=-1)
        to_key, to_value = torch.split(weight, [of.nope_head_dim, of.value_head_dim], dim=1)
        # Scores are divided by the root of these longer queries' size, and should be by that of D.
        q = torch.cat((plain @ to_key, turned), dim=-1) * (size / of.head_size) ** 0.5
        found = attend(q, kept, kept, here, Scores(self.softcap, self.sinks))[..., : of.kv_rank]
        values: Tensor = found @ to_value.transpose(1, 2)
        return values

    def combined(self, found: Tensor) -> Tensor:
        """What heads [B, H, T, V] write into the stream, [B, T / n, C]."""
        B, _, T, _ = found.shape
        return row_parallel(self.o, found.transpose(1, 2).reshape(B, T, -1), self.split)


def joined(plain: Tensor, turned: Tensor) -> Tensor:
    """[B, H, T, N] and [B, H, T, P]: [B, H, T, D], in memory position by position, as kernels and the product behind them take it."""
    return torch.cat((plain.transpose(1, 2), turned.transpose(1, 2)), dim=-1).transpose(1, 2)


def absorbs(layer: LatentAttention, new: int, total: int) -> bool:
    """Whether a layer computes less for `new` positions of `total` ones if their keys and values are not made, by products of a head."""
    if type(layer.kv_b) is not nn.Linear:  # with an adapter it computes more than its weight says
        return False
    of = layer.sizes
    making = of.kv_rank * (of.nope_head_dim + of.value_head_dim)
    expanded = total * making + new * total * (of.head_size + of.value_head_dim)
    return new * making + new * total * (of.kept + of.kv_rank) < expanded
