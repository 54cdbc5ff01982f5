"""A Llama-style decoder (Touvron et al. 2023): RMSNorm, RoPE, grouped-query attention, SwiGLU; each part on its own
few lines. Shapes: B rows, T positions, C = dim, H heads, K key-value heads, D = C / H, V = padded vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.initialise import initialise

if TYPE_CHECKING:
    from schemas.model import ModelConfig

IGNORED = -100  # label of a position that is not scored


class Attention(nn.Module):
    """Causal self-attention that stays within documents; H / K query heads share a key-value head (GQA)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.heads,
            config.key_value_heads,
            config.dim // config.heads,
        )
        self.q = nn.Linear(config.dim, self.heads * self.head_dim, bias=False)
        self.k = nn.Linear(config.dim, self.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(config.dim, self.kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(self.heads * self.head_dim, config.dim, bias=False)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        B, T, _ = x.shape
        q = rotate(self.q(x).view(B, T, self.heads, self.head_dim).transpose(1, 2), rope)
        k = rotate(self.k(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2), rope)
        v = self.v(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        # On CPU a mask costs nothing beside is_causal (measured); on GPU it gives up the flash kernel.
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.heads != self.kv_heads
        )
        return self.o(y.transpose(1, 2).reshape(B, T, -1))


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.ffn = FeedForward(config)
        self.dropout = config.dropout

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        x = x + F.dropout(self.attention(self.attention_norm(x), rope, mask), self.dropout, self.training)
        return x + F.dropout(self.ffn(self.ffn_norm(x)), self.dropout, self.training)


class Decoder(nn.Module):
    """Token ids in; logits, or the loss of each position, out.

    Dropout falls on the embeddings and on what each half of a layer adds. `seed` and a parameter's name decide
    its first values, whatever the layout (`train.model.initialise`).
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        padded = -(-vocab_size // config.vocab_multiple) * config.vocab_multiple
        self.embedding = nn.Embedding(padded, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.head = None if config.tie_embeddings else nn.Linear(config.dim, padded, bias=False)
        initialise(self, seed, config.layers)

    def forward(
        self,
        tokens: Tensor,  # int64 [B, T]
        labels: Tensor | None = None,  # int64 [B, T]; IGNORED is not scored
        documents: Tensor | None = None,  # int64 [B, T]; None: each row is one document
        positions: Tensor | None = None,  # int64 [B, T]; None: 0 .. T-1
    ) -> Tensor:
        """Logits [B, T, V], or, given labels, the loss of each position in nats, float32 [B, T] (0 if ignored)."""
        T = tokens.shape[1]
        place = torch.arange(T, device=tokens.device)[None] if positions is None else positions
        rope = rotation(place, self.config.dim // self.config.heads, self.config.rope_theta)
        mask = None if documents is None else document_mask(documents)
        x = F.dropout(self.embedding(tokens), self.config.dropout, self.training)
        for layer in self.layers:
            x = layer(x, rope, mask)
        logits = F.linear(self.norm(x), self.embedding.weight if self.head is None else self.head.weight)
        if labels is None:
            return logits
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), reduction="none", ignore_index=IGNORED
        )
        return loss.view(labels.shape)

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self, length: int) -> float:
        """Of forward and backward: 6 per weight of a matrix product (the embedding counts as the head, its look-up
        does not), and 6 · layers · dim · T for causal attention over `length` = T positions (PaLM, appendix B,
        halved for causality; document boundaries are not taken off)."""
        weights = sum(
            p.numel() for name, p in self.named_parameters() if p.ndim == 2 and "embedding" not in name
        )
        weights += self.embedding.weight.numel() if self.head is None else 0
        return 6.0 * weights + 6.0 * self.config.layers * self.config.dim * length


def rotation(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of RoPE's angles (Su et al. 2021), float32 [B or 1, 1, T, D]."""
    frequency = theta ** (
        -torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    )
    angle = positions[:, None, :, None].float() * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """x [B, H, T, D] turned by its positions' angles; pairs are (i, i + D/2), as in the Hugging Face layout."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def document_mask(documents: Tensor) -> Tensor:
    """bool [B, 1, T, T]: position i sees j if j <= i and both belong to one document."""
    T = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    return (same & torch.ones(T, T, dtype=torch.bool, device=documents.device).tril())[:, None]
