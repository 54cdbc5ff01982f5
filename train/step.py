"""One optimizer step, as a function of explicit state: forward, backward, clip, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.batch import Batch, MicroBatch, micro_batches
from corpusmill.train.model.losses import activation_rms
from corpusmill.train.model.moe import move_biases
from corpusmill.train.optim import average, hypergradient, rate_at, set_rate
from corpusmill.train.optim.make import prepare
from corpusmill.train.optim.take import step_where
from corpusmill.train.outer.exchange import agreed
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.precision.adapt import computing
from corpusmill.train.precision.loss_scale import LossScale

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.outer.worker import Outer
    from corpusmill.train.parallel.mesh import World

Context = Callable[[], AbstractContextManager[Any]]  # of a forward pass


class OfStep(Protocol):
    """An objective in one step: called with the losses [B, T] of a micro-batch and its number, it gives what is differentiated. `units`:
    what that is divided by, of the whole batch. `rows()`: of each row of each micro-batch, what `TrainState.window` sums."""

    @property
    def units(self) -> float: ...
    def __call__(self, losses: Tensor, number: int) -> Tensor: ...
    def rows(self) -> list[Tensor]: ...


class Objective(Protocol):
    """In place of the next token (`corpusmill.train.finetune`). `named`: figures by name, of sums of the window's columns."""

    names: tuple[str, ...]

    def prepared(self, batch: Batch, step: int) -> Batch: ...
    def begin(self, parts: Sequence[MicroBatch], context: Context) -> OfStep: ...
    def named(self, sums: Sequence[float]) -> dict[str, float]: ...


class Teacher(Protocol):
    """Computes before a step, within whose passes the student's loss is another one."""

    def begin(self, parts: Sequence[MicroBatch], context: Context) -> None: ...
    def learning(self, student: ParallelModel) -> AbstractContextManager[None]: ...


@dataclass
class TrainState:
    """All that a step reads and writes. `window`: [sources, 2 + k], loss and tokens summed since the last log line; of an objective its
    values, the answers or pairs that they are of, and the sums of its k `names`."""

    config: TrainConfig
    model: ParallelModel
    optimizer: torch.optim.Optimizer
    window: Tensor
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    step: int = 0
    loss_scale: LossScale | None = None  # of fp16
    objective: Objective | None = None  # None: the next token
    distiller: Teacher | None = None  # None: without a teacher
    # Set by the guard for the next step: the loss and the gradient norm above which it is not taken (None: no limits),
    # and the factor of its learning rate.
    limits: tuple[float, float] | None = None
    lr_factor: float = 1.0
    outer: Outer | None = None  # of a worker that trains by itself
    tuned: float = 1.0  # the factor of `optimizer.hypergradient`


class Metrics(NamedTuple):
    """Of one step, on the device, for which a reader waits. Norms of parameters and update, and the auxiliary losses,
    only with `collect_stats`."""

    rate: float
    grad_norm: Tensor  # before clipping
    loss_scale: Tensor | None = None  # of this step, with fp16; it does not fall below its floor
    param_norm: Tensor | None = None
    update_norm: Tensor | None = None  # of the step's change of all parameters
    # Of all processes: losses beside the cross entropy, per scored token; `load` [layers, E], tokens of each expert.
    auxiliary: dict[str, Tensor] | None = None
    activation_rms: Tensor | None = None  # of the residual stream after the last layer, over all processes
    signals: Tensor | None = None  # what the guard judges: `step_signals`


def train_step(state: TrainState, batch: Batch, valid: float, collect_stats: bool = False) -> Metrics:
    """One step on this data rank's rows of a global batch; `valid` counts the scored tokens of all data ranks (an objective counts its
    own).

    The loss is the sum over tokens divided by `valid`, so the gradient is the same for any number of processes and
    micro-batches. A step beyond `state.limits`, or with a number that is not finite (if there are limits or a loss scale),
    changes neither weights nor optimizer. `collect_stats`: also the norms of the parameters and of their update.
    On CUDA the host never waits for the device here, with the exceptions that docs/speed.md lists.
    """
    state.step += 1
    config, model, scaler = state.config, state.model, state.loss_scale
    model.train()
    if state.step == 1 and (config.optimizer.ema or config.optimizer.hypergradient):
        prepare(state.optimizer)
    if state.step == 1 and state.outer:
        state.outer.begin()
    model.collect_activations(collect_stats or state.limits is not None)
    parts = micro_batches(model.own_part(batch), config, state.step, state.device)
    context = partial(computing, config, state.device)
    objective = None if state.objective is None else state.objective.begin(parts, context)
    valid = valid if objective is None else objective.units
    weight = 1 / valid if scaler is None else scaler.scale / valid
    rows = [part.inputs for part in parts]
    if state.distiller is not None:
        state.distiller.begin(parts, context)
    with nullcontext() if state.distiller is None else state.distiller.learning(model):
        found = model.backward(rows, weight, context, objective)
    losses = torch.zeros_like(state.window)
    if model.counts:
        for part, own in zip(parts, found if objective is None else objective.rows(), strict=True):
            losses.index_add_(0, part.source_id, of_tokens(part, own) if objective is None else own)
    model.complete()
    sums = model.take_sums()
    activation = activation_rms(sums)
    if scaler is not None:
        scaler.unscale([local(p.grad) for p in model.parameters() if p.grad is not None])
    # With offloaded gradients the norm is on the CPU, and everything that it is compared with on the device.
    norm = model.clip(config.optimizer.grad_clip, config.optimizer.grad_clip_value).to(state.device)
    signals, taken, scale = None, None, None
    if scaler is not None:
        taken, scale = norm.isfinite(), scaler.scale
        scaler.update(taken)
    if state.limits is not None:
        signals = step_signals(losses[:, 0].sum() / valid, norm, activation, state.limits)
        signals = signals if state.outer is None else agreed(signals)
        taken = signals[3] > 0
    state.window += losses if taken is None else losses.where(taken, 0.0)
    rate = rate_at(config, state.step) * state.lr_factor
    if tuning := config.optimizer.hypergradient:
        state.tuned = hypergradient.factor_of(model, state.optimizer, tuning, state.step, state.tuned)
        rate *= state.tuned
    set_rate(state.optimizer, rate)
    changes = step_where(state.optimizer, taken, model.trained() if collect_stats else None)
    if config.optimizer.ema:
        average.update(state.optimizer, config.optimizer.ema, state.step, taken)
    if "load" in sums:  # equal loads move nothing
        load = sums["load"] if taken is None else sums["load"].where(taken, 0)
        for piece in model.parts:
            move_biases(piece.experts, load)
    state.optimizer.zero_grad(set_to_none=True)
    if state.outer:
        state.outer.after(state.step, state.step == config.schedule.steps)
    if not collect_stats:
        return Metrics(rate, norm, scale, signals=signals)
    auxiliary = {name: total if name == "load" else total / valid for name, total in sums.items()}
    weights = model.norm([local(p.detach()) for p in model.trained()])
    return Metrics(rate, norm, scale, weights, model.combined(changes), auxiliary, activation, signals)


def label_count(batch: Batch, world: World, all_of: int | None) -> float:
    """Labels of a global batch, the same in every process; `all_of`: their number where every token is one, and nobody asks."""
    return float(all_of) if all_of is not None else world.sum(float((batch["labels"] >= 0).sum()))[0]


def of_tokens(part: MicroBatch, loss: Tensor) -> Tensor:
    """Of each row of a micro-batch, float64 [rows, 2]: the sum of its losses [rows, T], and its scored tokens."""
    return torch.stack((loss.double().sum(1).to(part.scored.device), part.scored), dim=1)


def step_signals(
    loss: Tensor, norm: Tensor, activation: Tensor | None, limits: tuple[float, float]
) -> Tensor:
    """[loss, gradient norm, activation RMS, whether the step is taken], float64 [4], the same in every process.

    `loss`: this process's share of the step's loss (shares are summed); `norm`: of the whole gradient, the same in all
    processes but for rounding; `activation`: RMS over all processes (None: unknown, reported as 0). A norm that is not
    finite in one process is NaN in all.
    """
    bad = ~norm.isfinite()
    total = torch.stack(
        (loss.double(), norm.double().where(~bad, 0.0), bad.double(), torch.ones_like(loss).double())
    )
    if dist.is_initialized():
        dist.all_reduce(total)
    rms = torch.zeros_like(total[0]) if activation is None else activation.double()
    values = torch.stack((total[0], (total[1] / total[3]).where(total[2] == 0, math.nan), rms))
    # Numbers, not a tensor of them: they reach the device as kernel arguments.
    taken = values[:2].isfinite().all() & (values[0] <= limits[0]) & (values[1] <= limits[1])
    return torch.cat((values, taken.double()[None]))
