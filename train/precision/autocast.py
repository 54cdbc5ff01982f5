"""The type of matrix products and attention; parameters, sums of norms and losses stay float32 in every precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from corpusmill.train.precision.activation_checkpointing import offloaded

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig

# Sharded weights travel in these too. fp8 is a matter of the layers' products (`corpusmill.train.precision.fp8`): around them it is bfloat16.
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass."""
    dtype = TYPES.get(config.precision)
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def computing(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Around a forward pass of training: `autocast`, and what is kept for the backward pass goes where it is to wait."""
    with autocast(config, device), offloaded(config.memory, device):
        yield
