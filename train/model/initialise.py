"""First values of the parameters: each from a generator of its own, keyed by (seed, name), so that no layout,
no order of construction and no other parameter changes them."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

STD = 0.02


def key(*parts: int | str) -> int:
    """A 63-bit seed out of numbers and names."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@torch.no_grad()
def initialise(model: nn.Module, seed: int, layers: int) -> None:
    """Norms to 1; matrices normal with deviation 0.02, those that write into the residual stream divided by
    sqrt(2 x layers) (GPT-2)."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.fill_(1.0)
            continue
        std = STD / (2 * layers) ** 0.5 if name.endswith(("attention.o.weight", "ffn.down.weight")) else STD
        generator = torch.Generator(device="cpu").manual_seed(key("init", seed, name))
        parameter.copy_(
            torch.empty(parameter.shape, dtype=torch.float32).normal_(0.0, std, generator=generator)
        )
