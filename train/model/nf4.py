"""NF4 (QLoRA, Dettmers et al. 2023): frozen weights in 4.1 to 4.6 bits each, as plain tensors.

Codes are bitsandbytes' 16 quantiles of a normal distribution, for blocks of 64 weights along the inputs with one scale each. The
scales are quantised too: to 8 bits of the row's largest one, so that rows, and blocks within them, can be cut among processes
without changing a value. (bitsandbytes takes 256 blocks in the order of memory for this, which may begin in the middle of a row.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # schemas.adapter.NF4_BLOCK; not imported, as the trainer's core asks for torch and numpy alone
SMALLEST = 1e-30  # rows of smaller numbers are zeros: their scales would be no normal float32
# Appendix E of the paper.
TABLE = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


class NF4(NamedTuple):
    """A weight [out, in]: `codes` uint8 [out, in / 2], the first of two in the high bits; `scales` uint8 [out, in / 64], in 255ths
    of `factors` float32 [out, 1]."""

    codes: Tensor
    scales: Tensor
    factors: Tensor


def shapes(out: int, inputs: int) -> tuple[tuple[int, int], ...]:
    """Of `codes`, `scales` and `factors`. Raises `ValueError` if blocks do not divide the inputs."""
    if inputs % BLOCK:
        raise ValueError(f"rows of {inputs} weights are no multiple of {BLOCK}, which share a scale")
    return (out, inputs // 2), (out, inputs // BLOCK), (out, 1)


@torch.no_grad()
def quantise(weight: Tensor) -> NF4:
    """A finite weight [out, in], each element rounded to the nearest code. What `dequantise` makes of it has the same codes, scales and
    factors again: codes are found with a block's own scale, before that is rounded, and no scale is rounded to 0."""
    _, counts, _ = shapes(*weight.shape)
    blocks = weight.float().view(*counts, BLOCK)
    largest = blocks.abs().amax(-1)
    factors = largest.amax(-1, keepdim=True)
    factors = factors.where(factors >= SMALLEST, 0.0)
    share = torch.where(factors > 0, largest / factors, 0.0)
    scales = (share * 255).round().clamp(min=1).where(share > 0, 0.0).to(torch.uint8)
    units = torch.where((scales > 0)[..., None], blocks / largest[..., None], 0.0)
    table = torch.tensor(TABLE, device=weight.device)
    found = torch.bucketize(units, (table[1:] + table[:-1]) / 2).to(torch.uint8).view(len(weight), -1, 2)
    return NF4(found[..., 0] << 4 | found[..., 1], scales, factors)


def dequantise(codes: Tensor, scales: Tensor, factors: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weight [out, in] of what `NF4` holds, computed in float32."""
    table = torch.tensor(TABLE, device=codes.device)
    both = torch.stack((codes >> 4, codes & 15), -1).long()
    values = table[both].view(*scales.shape, BLOCK) * (factors * (scales.float() / 255))[..., None]
    return values.view(len(codes), -1).to(dtype)


class _Product(torch.autograd.Function):
    """x W^T, which keeps no values of W: they are made of its codes again for the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scales: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(codes, scales, factors)
        return F.linear(x, dequantise(codes, scales, factors, x.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        codes, scales, factors = ctx.saved_tensors
        return grads[0] @ dequantise(codes, scales, factors, grads[0].dtype), None, None, None


def product(x: Tensor, weight: NF4) -> Tensor:
    """x [..., in] -> x W^T [..., out], in the type of autocast or of x; the weight has no gradient."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    made: Tensor = _Product.apply(x, *weight)  # type: ignore[no-untyped-call]
    return made
