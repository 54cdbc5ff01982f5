"""One optimizer step, as a function of explicit state: forward, backward, clip, update."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train.distributed import all_sum
from train.model.attend import sequence_starts
from train.model.decoder import Decoder
from train.model.initialise import key
from train.model.moe import move_biases
from train.optim import rate_at, set_rate

if TYPE_CHECKING:
    from schemas.training import TrainConfig

Batch = Mapping[str, Tensor]
ROWS = ("tokens", "labels", "documents", "positions", "source_id", "n")  # of a batch: a row for each sequence


@dataclass
class TrainState:
    """All that a step reads and writes. `window`: [sources, 2], loss and tokens summed since the last log line."""

    config: TrainConfig
    model: Decoder
    optimizer: torch.optim.Optimizer
    window: Tensor
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    world: int = 1
    step: int = 0
    parallel: nn.Module | None = None  # the model inside DistributedDataParallel


class Metrics(NamedTuple):
    """Of one step, on the device: reading them is what waits for it. The last two only if they were asked for."""

    rate: float
    grad_norm: Tensor  # before clipping
    param_norm: Tensor | None = None
    update_norm: Tensor | None = None  # of the step's change of all parameters
    # Of all processes: losses beside the cross entropy, per scored token; `load` [layers, E], tokens of each expert.
    auxiliary: dict[str, Tensor] | None = None
    activation_rms: Tensor | None = None  # of the residual stream after the last layer, over all processes


def train_step(state: TrainState, batch: Batch, valid: float, watch: bool = False) -> Metrics:
    """One step on this process's rows of a global batch; `valid` counts the scored tokens of all processes.

    The loss is the sum over tokens divided by `valid`, so neither the micro-batch nor the number of processes
    changes it. `watch` also measures parameters and update, for a copy of the parameters. Dropout is keyed by (seed, step, first row): no generator's state needs saving.
    """
    state.step += 1
    config, model = state.config, state.parallel or state.model
    state.model.train()
    state.model.watch = watch
    rows = len(batch["tokens"])
    starts = range(0, rows, config.data.micro_batch)
    for start in starts:
        part = {name: batch[name][start : start + config.data.micro_batch] for name in ROWS}
        # Where a ramp cuts a sequence number into several rows, the place among them tells them apart.
        number = int(part["n"][0])
        place = int((batch["n"][:start] == number).sum())
        torch.manual_seed(key("dropout", config.seed, state.step, number, *([place] if place else [])))
        last = start == starts[-1]
        wait = model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()
        with wait:
            with precision(config, state.device):
                loss = model(*inputs(part, state.device))
            # DistributedDataParallel takes the mean of the processes' gradients; we want their sum.
            (loss.sum() * (state.world / valid)).backward()
        count_losses(state.window, part, loss.detach())
    sums = state.model.take_sums(all_sum)
    activation = state.model.activation_rms(sums)
    parameters = list(state.model.parameters())
    norm = nn.utils.clip_grad_norm_(parameters, config.optimizer.grad_clip or float("inf"))
    rate = rate_at(config, state.step)
    set_rate(state.optimizer, rate)
    before = [p.detach().clone() for p in parameters] if watch else []
    state.optimizer.step()
    if "load" in sums:
        move_biases(state.model.experts, sums["load"])
    state.optimizer.zero_grad(set_to_none=True)
    if not watch:
        return Metrics(rate, norm)
    now = [p.detach() for p in parameters]
    auxiliary = {name: total if name == "load" else total / valid for name, total in sums.items()}
    update = total_norm(list(torch._foreach_sub(now, before)))
    return Metrics(rate, norm, total_norm(now), update, auxiliary, activation)


def total_norm(tensors: list[Tensor]) -> Tensor:
    """Euclidean norm of all tensors together."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


def precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 if the config says so; parameters, norms' sums and losses stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")


def inputs(batch: Batch, device: torch.device) -> tuple[Tensor, ...]:
    """The decoder's arguments. Rows of one document each need no mask, and get the faster kernel."""
    single = not bool(batch["documents"].any())
    names = ("tokens", "labels") if single else ("tokens", "labels", "documents", "positions")
    found = [batch[name] for name in names]
    if device.type == "cuda" and not single:
        found.append(sequence_starts(batch["documents"]))
    return tuple(part.to(device, non_blocking=True) for part in found)


def count_losses(sums: Tensor, batch: Batch, loss: Tensor) -> None:
    """Add the losses [rows, T] and scored tokens of a batch to its sources' rows of `sums` [sources, 2]."""
    tokens = (batch["labels"] >= 0).sum(1).to(sums.device)
    per_row = torch.stack((loss.double().sum(1).to(sums.device), tokens.double()), dim=1)
    sums.index_add_(0, batch["source_id"].to(sums.device), per_row)
