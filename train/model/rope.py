"""Rotary positions (RoPE, Su et al. 2021), and the scaling of their frequencies for longer texts than those of the original
training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from corpusmill.schemas.model import RopeScaling

Rotation = tuple[Tensor, Tensor]  # cosine and sine, float32 [B or 1, 1, T, D]


def rotation(positions: Tensor, head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Rotation:
    """Cosine and sine of the angles of `positions` [B or 1, T]."""
    frequency, size = frequencies(head_dim, theta, scaling, positions.device)
    angle = positions[:, None, :, None].float() * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos() * size, angle.sin() * size


def rotate(x: Tensor, rope: Rotation) -> Tensor:
    """x [B, H, T, D] rotated by its positions' angles; pairs are (i, i + D/2), as in the Hugging Face layout."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def frequencies(
    head_dim: int, theta: float, scaling: RopeScaling | None, device: torch.device | None = None
) -> tuple[Tensor, float]:
    """Radians per position of each pair, float32 [D/2], and the factor of cosine and sine.

    linear: all divided by the factor (Chen et al. 2023). ntk: theta raised, so that the slowest pair is slower by the
    factor and the fastest unchanged (bloc97 2023). llama3: pairs with many rotations within the original length stay,
    those with few are divided, a ramp between (Dubey et al. 2024). yarn: the same over the number of the pair, and the
    attention a little sharper (Peng et al. 2023).
    """
    half = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    if scaling and scaling.kind == "ntk":
        return ntk_theta(theta, scaling.factor, head_dim) ** -half, 1.0
    plain = theta**-half
    if scaling is None:
        return plain, 1.0
    slow = plain / scaling.factor
    if scaling.kind == "linear":
        return slow, 1.0
    rotations = plain * (scaling.original_length / (2 * math.pi))  # of each pair within the original length
    if scaling.kind == "llama3":
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = ((rotations - low) / (high - low)).clamp(0, 1)
        return slow * (1 - kept) + plain * kept, 1.0

    def pair(rotations: float) -> float:  # the number of the pair with so many rotations, as a real number
        return (
            head_dim * math.log(scaling.original_length / (rotations * 2 * math.pi)) / (2 * math.log(theta))
        )

    low = max(math.floor(pair(scaling.beta_fast)), 0)
    high = min(math.ceil(pair(scaling.beta_slow)), head_dim - 1)
    number = torch.arange(head_dim // 2, device=device, dtype=torch.float32)
    stretched = ((number - low) / max(high - low, 1e-3)).clamp(0, 1)
    return slow * stretched + plain * (1 - stretched), 0.1 * math.log(scaling.factor) + 1.0


def ntk_theta(theta: float, factor: float, head_dim: int) -> float:
    """The base that replaces theta in NTK-aware scaling."""
    return float(theta * factor ** (head_dim / (head_dim - 2)))
