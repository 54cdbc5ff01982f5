"""`memory.auto_micro_batch`: the largest micro-batch that fits into the device's memory, found before the first step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from corpusmill.common.errors import WorkError
from corpusmill.train.batch import Batch, inputs
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import prepare
from corpusmill.train.precision.adapt import computing

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.step import TrainState


def fit_micro_batch(state: TrainState, world: World, log: Callable[[str], None] | None = None) -> TrainConfig:
    """The config, also put into `state.config`, with the largest micro-batch that fits in every process: the given one, or
    the first divisor that fits, each at most half of the one before. Processes communicate only to agree.

    Raises `WorkError` if not even one sequence fits.
    """
    config = state.config
    size = config.data.micro_batch
    while world.highest(not rehearse(state, size)):  # it must fit in every process
        if size == 1:
            raise WorkError(
                f"not even one sequence of {config.data.sequence_length} tokens fits into the memory of {state.device}:"
                " set memory.checkpointing to full, lower data.sequence_length or the model's size"
            )
        smaller = next(n for n in range(size // 2, 0, -1) if size % n == 0)
        if log:
            log(f"data.micro_batch {size} does not fit into the memory of {state.device}: trying {smaller}")
        size = smaller
    if size != config.data.micro_batch:
        state.config = config.model_copy(
            update={"data": config.data.model_copy(update={"micro_batch": size})}
        )
    return state.config


def rehearse(state: TrainState, size: int) -> bool:
    """Whether steps with a micro-batch of this size fit in memory: optimizer states are allocated, then two passes forward
    and backward are made on synthetic tokens, the second with gradients present. Nothing of it remains: the run is
    bit-identical to one that is configured with this size."""
    config, model = state.config, state.model.parts[0]
    model.train()
    batch = state.model.own_part(rehearsal(size, config.data.sequence_length, config.data.cross_documents))
    keys = torch.zeros(size, dtype=torch.int64)
    fits, spare = True, None
    try:
        if not any(state.optimizer.state.values()):  # the optimizer allocates its own at its first step
            spare = make_optimizer(model, config.optimizer)
            spare.alone = True  # type: ignore[attr-defined]  # another process may run out of memory, and would be waited for
            prepare(spare)
        for _ in range(2):
            with computing(config, state.device):
                loss = model(**inputs(batch, state.device, keys)[0])
            (loss.sum() * 0.0).backward()
    except torch.OutOfMemoryError:
        fits = False
    del spare
    loss = None
    model.zero_grad(set_to_none=True)
    model.statistics.take()
    gc.collect()
    if state.device.type == "cuda":
        torch.cuda.empty_cache()
    return fits


def rehearsal(size: int, length: int, whole: bool = False) -> Batch:
    """Rows of two documents each, or one if `whole`, so that attention takes the same kernel as in training."""
    tokens = torch.arange(size * length, dtype=torch.int64).view(size, length) % 2
    second = torch.arange(length) >= (length if whole else length // 2)
    documents = second.to(torch.int32).expand(size, -1)
    positions = torch.arange(length, dtype=torch.int32).expand(size, -1)
    return {"tokens": tokens, "labels": tokens, "documents": documents, "positions": positions}
