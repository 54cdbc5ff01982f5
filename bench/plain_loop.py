"""A plain training loop in the style of nanoGPT (Karpathy 2022), at its defaults for a small model on a CPU, on the tokens of a
shard set for a given wall time: what `bench.learning` measures the trainer beside.

A GPT-2 style decoder (learned positions, LayerNorm, GELU, a tied head, no biases), crops of the training tokens at random
places, whatever documents they cut, AdamW with a cosine rate. It shares no code with `corpusmill.train` but the reading of
the shards, and the rows of the validation split in which every token is scored once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Options(NamedTuple):
    """The values of nanoGPT's `train_shakespeare_char.py` with the changes that its README gives for a CPU: the rate reaches
    its floor at iteration `decay` and stays there (None: at the end of the wall time)."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    block: int = 64
    batch: int = 12
    rate: float = 1e-3
    floor: float = 1e-4
    warmup: int = 100
    decay: int | None = 2000
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1
    clip: float = 1.0


class Result(NamedTuple):
    """`curve`: (seconds of training, bits per byte over all validation tokens); no validation in the seconds."""

    curve: list[tuple[float, float]]
    tokens_per_second: float
    parameters: int
    tokens: int  # trained on


class Layer(nn.Module):
    """Causal attention and a feed-forward of four times the width, each after a norm and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.mixed = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        qkv = self.qkv(self.norms[0](x)).view(B, T, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(y.transpose(1, 2).reshape(B, T, C))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return x


class Model(nn.Module):
    def __init__(self, vocabulary: int, options: Options) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, options.width)
        self.places = nn.Embedding(options.block, options.width)
        self.layers = nn.ModuleList(Layer(options.width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                into_stream = name.endswith(("mixed.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * options.layers) if into_stream else 0.02)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss of each position, [B, T], 0 where the label is -100."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)


def rate_at(options: Options, number: int, share: float) -> float:
    """The rate of iteration `number` (from 0), at a `share` of the wall time."""
    if number < options.warmup:
        return options.rate * (number + 1) / (options.warmup + 1)
    if options.decay is not None:
        share = (number - options.warmup) / max(options.decay - options.warmup, 1)
    cosine = 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
    return options.floor + (options.rate - options.floor) * cosine


def adamw(model: Model, options: Options) -> torch.optim.AdamW:
    """Weight decay on matrices and embeddings, none on the norms."""
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.rate, betas=(options.beta1, options.beta2), fused=True)


def run(
    shards: str, seconds: float, threads: int, seed: int, *, points: int = 6, sources: Sequence[str] | None = None,
    options: Options = Options(),
) -> Result:  # fmt: skip
    """Train for so many seconds on the train splits of `sources` (None: all) and score the model `points` times, at equal
    distances and at the end."""
    from corpusmill.train.data.shards import open_shards

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    opened = open_shards(shards)
    train = training_tokens(shards, sources)
    model = Model(opened.set.vocab_size, options)
    optimizer = adamw(model, options)
    curve: list[tuple[float, float]] = []
    number, spent, next_point = 0, 0.0, seconds / points
    while spent < seconds:
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(options, number, spent / seconds)
        starts = draw.integers(0, len(train) - options.block, options.batch)
        rows = torch.from_numpy(train[starts[:, None] + np.arange(options.block + 1)].astype(np.int64))
        loss = model(rows[:, :-1], rows[:, 1:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        number, spent = number + 1, spent + time.perf_counter() - began
        if spent >= min(next_point, seconds):
            curve.append((spent, bits_per_byte(model, shards, options.block)))
            next_point = seconds * (len(curve) + 1) / points
    tokens = number * options.batch * options.block
    return Result(curve, tokens / spent, sum(weight.numel() for weight in model.parameters()), tokens)


def training_tokens(shards: str, sources: Sequence[str] | None) -> npt.NDArray[np.unsignedinteger]:
    """All tokens of the train splits, one after the other."""
    from corpusmill.train.data.shards import open_shards
    from corpusmill.train.evaluate.baselines import all_blocks

    train = open_shards(shards).train
    chosen = [train[name] for name in (train if sources is None else sources)]
    return np.concatenate([block.tokens for source in chosen for block in all_blocks(source)])


@torch.no_grad()
def bits_per_byte(model: Model, shards: str, length: int) -> float:
    """Of every validation token, in rows of `length` that begin without context."""
    from corpusmill.train.data.shards import open_shards
    from corpusmill.train.evaluate.batches import whole

    total, size = 0.0, 0
    for source in open_shards(shards).validation.values():
        if source.index.ntokens:
            size += source.index.text_bytes
            for rows in whole(source, length, 64):
                total += float(model(rows["tokens"], rows["labels"]).double().sum())
    return total / math.log(2) / size
