"""The type of matrix products and attention; parameters, sums of norms and losses stay float32 in every precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from schemas.training import TrainConfig

# fp8 is a matter of the layers' products (`train.precision.fp8`): around them it is bfloat16.
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass."""
    dtype = TYPES.get(config.precision)
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)
