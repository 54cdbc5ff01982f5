"""Losses on the validation split: a fixed sample of each source during a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from train.data.shards import Source
from train.data.validation import sample
from train.model.decoder import Decoder
from train.precision.autocast import autocast
from train.step import Batch, inputs

if TYPE_CHECKING:
    from schemas.training import TrainConfig
    from train.distributed import World


def validation_losses(
    model: Decoder, config: TrainConfig, sources: dict[str, Source], world: World
) -> dict[str, float]:
    """Mean loss (nats a token) of each source's fixed sample, the processes sharing the rows."""
    losses = {}
    for name, source in sources.items():
        if source.index.ntokens:
            batches = sample(
                source, config.data.sequence_length, config.validation.tokens, world.rank, world.size,
                config.data.micro_batch,
            )  # fmt: skip
            loss, tokens = world.sum(*score(model, config, world.device, batches))
            losses[name] = loss / tokens
    return losses


@torch.inference_mode()
def score(
    model: Decoder, config: TrainConfig, device: torch.device, batches: Iterable[Batch]
) -> tuple[float, float]:
    """(sum of losses in nats, scored tokens) of batches, without dropout."""
    model.eval()
    total, tokens = 0.0, 0
    for batch in batches:
        with autocast(config, device):
            loss = model(*inputs(batch, device))
        total += float(loss.double().sum())
        tokens += int((batch["labels"] >= 0).sum())
    return total, float(tokens)
