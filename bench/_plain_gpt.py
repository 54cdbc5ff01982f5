"""A plain decoder and a plain loop, as nanoGPT (Karpathy 2022) would write this model: what `train` is measured beside.

RMSNorm, RoPE, SwiGLU, grouped queries, `scaled_dot_product_attention`, a tied head, `F.cross_entropy`, fused AdamW. It knows
no documents, sources or layouts. Parameters have the names of `corpusmill.train.model.decoder`, so that it takes its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Item = TypeVar("Item")


class Sizes(NamedTuple):
    """`hidden` is SwiGLU's width, `length` the longest row."""

    vocabulary: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    length: int
    qk_norm: bool = False
    theta: float = 10_000.0


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.size = sizes.dim // sizes.heads
        self.q = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.k = nn.Linear(sizes.dim, sizes.kv_heads * self.size, bias=False)
        self.v = nn.Linear(sizes.dim, sizes.kv_heads * self.size, bias=False)
        self.o = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.q_norm = nn.RMSNorm(self.size, eps=1e-5) if sizes.qk_norm else None
        self.k_norm = nn.RMSNorm(self.size, eps=1e-5) if sizes.qk_norm else None
        self.grouped = sizes.kv_heads != sizes.heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, -1, self.size).transpose(1, 2) for w in (self.q, self.k, self.v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return self.o(y.transpose(1, 2).reshape(B, T, C))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.dim, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.dim, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.attention = Attention(sizes)
        self.ffn_norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.ffn = FeedForward(sizes)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class PlainGPT(nn.Module):
    """Tokens and labels int64 [B, T] -> their mean loss in nats."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        half = torch.arange(0, sizes.dim // sizes.heads, 2, dtype=torch.float32) * sizes.heads / sizes.dim
        angle = torch.outer(torch.arange(sizes.length, dtype=torch.float32), sizes.theta**-half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim > 1:
                last = name.endswith(("o.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * sizes.layers) if last else 0.02)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x, T = self.embedding(tokens), tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:T], self.sin[:T])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def make_adamw(model: nn.Module, lr: float = 1e-3) -> torch.optim.AdamW:
    """Weight decay on what has two dimensions, as nanoGPT."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: Iterable[tuple[Tensor, Tensor]], count: int,
    number: int, bf16: bool = False, called: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """One optimizer step over `count` micro-batches, the rate on a cosine; the last micro-batch's loss, unread.

    `called`: what is called for the loss in the model's place, such as the same compiled.
    """
    loss, called = torch.zeros(()), model if called is None else called
    for tokens, labels in micro_batches:
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bf16):
            loss = called(tokens, labels)
        (loss / count).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rate = 1e-3 * (0.55 + 0.45 * math.cos(math.pi * min(number / 10_000, 1.0)))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def forever(items: Sequence[Item]) -> Iterator[Item]:
    """Over and over."""
    while True:
        yield from items
