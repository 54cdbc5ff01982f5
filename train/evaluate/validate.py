"""Losses on the validation split: a fixed sample of each source during a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from corpusmill.train.data.shards import Source
from corpusmill.train.data.validation import sample
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.precision.autocast import autocast
from corpusmill.train.step import Batch, inputs

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.mesh import World


def validation_losses(
    model: ParallelModel, config: TrainConfig, sources: dict[str, Source], world: World
) -> dict[str, float]:
    """Mean loss (nats a token) of each source's fixed sample, the data ranks sharing the rows."""
    losses = {}
    for name, source in sources.items():
        if source.index.ntokens:
            batches = sample(
                source, config.data.sequence_length, config.validation.tokens, world.data_rank, world.data_size,
                config.data.micro_batch,
            )  # fmt: skip
            loss, tokens = world.sum(*score(model, config, world, list(batches)))
            losses[name] = loss / tokens
    return losses


@torch.no_grad()
def score(
    model: ParallelModel, config: TrainConfig, world: World, batches: list[Batch]
) -> tuple[float, float]:
    """(sum of losses in nats, scored tokens) of this data rank's batches, without dropout.

    Sharded processes compute together: who has fewer batches than others goes on with rows that are not scored.
    """
    model.train(False)
    total, tokens = 0.0, 0
    most = int(world.highest(len(batches)))
    for number in range(most):
        batch = batches[number] if number < len(batches) else unscored(config.data.sequence_length)
        with autocast(config, world.device):
            loss = model.losses(inputs(batch, world.device))
        total += float(loss.double().sum())
        tokens += int((batch["labels"] >= 0).sum())
    return total, float(tokens)


def unscored(length: int) -> Batch:
    """A row in which nothing is scored."""
    row = torch.zeros(1, length, dtype=torch.int64)
    return {"tokens": row, "labels": torch.full_like(row, IGNORED), "documents": row, "positions": row}
