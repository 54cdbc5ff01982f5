"""From a config to an optimizer: PyTorch's own where it has one, ours where it has none that fits. Which parameters
decay and which Muon orthogonalises; the optimizer's state as named tensors, `<key>/<parameter name>`.

And the learning rate, a pure function of the tokens seen, so that a resumed run, and one whose batch or sequence length
grows, has the rate of its place in the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.model.mup import divisor, transfer, transfers
from corpusmill.train.optim import average, hypergradient
from corpusmill.train.optim.muon import Muon
from corpusmill.train.optim.optimizers import Adafactor, AdamW, Lamb, Lion, Sgd

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig, ParameterKind, ScheduleConfig
    from corpusmill.schemas.training import TrainConfig


def learning_rate(
    schedule: ScheduleConfig, peak: float, tokens: int, total_tokens: int, warmup_tokens: int,
    decay_from: int = 0,
) -> float:  # fmt: skip
    """The rate of the step that ends at `tokens`: a linear warm-up from `warmup_from`, then `kind` falls to `floor` x peak.

    `cosine`: Loshchilov & Hutter 2017. `inverse_sqrt`: peak x sqrt(warm-up / tokens), not below the floor (Vaswani
    et al. 2017). `wsd`: warm-up, stable, then a decay over the last `decay_share`, or all after the first `decay_from` tokens: linear
    (Hu et al. 2024), or 1 - sqrt (Hägele et al. 2024).
    `range_test`: floor x peak in the first step, peak in the last, the same factor between all (Smith 2017).
    """
    # Tokens counted in mean batches: where all batches are equal, this is the step, to the bit.
    at = tokens * schedule.steps / total_tokens
    warmup = warmup_tokens * schedule.steps / total_tokens
    if at <= warmup:
        first = schedule.warmup_from or 0.0
        return first + (peak - first) * at / warmup
    low = schedule.floor * peak
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "inverse_sqrt":
        start = max(warmup, 1.0)
        return max(low, peak * math.sqrt(start / max(at, start)))
    if schedule.kind == "range_test":
        return float(peak * schedule.floor ** (1 - (at - 1) / max(schedule.steps - 1, 1)))
    start = warmup
    if schedule.kind == "wsd":
        start = decay_from * schedule.steps / total_tokens or schedule.steps - schedule.decaying
    done = min(max((at - start) / max(schedule.steps - start, 1), 0.0), 1.0)
    if not done:
        return peak  # to the bit, whatever the floor
    done = math.sqrt(done) if schedule.decay_shape == "sqrt" else done
    if schedule.kind == "cosine":
        return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2
    return low + (peak - low) * (1 - done)


def rate_at(config: TrainConfig, step: int) -> float:
    """The rate of an optimizer step of a run, counted from 1."""
    data, schedule, peak = config.data, config.schedule, config.optimizer.lr
    total = data.tokens(schedule.steps)
    decay_from = data.tokens(schedule.steps - schedule.decay_steps) if schedule.decay_steps else 0
    return learning_rate(schedule, peak, data.tokens(step), total, _warmup_tokens(config), decay_from)


def in_warmup(config: TrainConfig, step: int) -> bool:
    """Whether a step belongs to the warm-up, over which the rate rises."""
    return config.data.tokens(step) <= _warmup_tokens(config)


def _warmup_tokens(config: TrainConfig) -> int:
    given = config.schedule.warmup_tokens
    return config.data.tokens(config.schedule.warmup_steps) if given is None else given


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its rate: `rate`, times the group's own `lr_ratio` if it has one."""
    for group in optimizer.param_groups:
        value = rate * group.get("lr_ratio", 1.0)
        if isinstance(group["lr"], float):
            group["lr"] = value
        else:  # torchao keeps it in a tensor that its compiled step reads
            group["lr"].fill_(value)


class Named(Protocol):
    """A module, or a `corpusmill.train.parallel.model.ParallelModel`."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


def kind_of(name: str, parameter: nn.Parameter) -> ParameterKind:
    """The kind of a parameter, by its name and dimensions. A tied head counts as an embedding."""
    if name.endswith("bias"):
        return "biases"
    if "embedding" in name:
        return "embeddings"
    if parameter.ndim < 2:
        return "norms"
    return "head" if name.endswith("head.weight") else "matrices"


def groups_of(model: Named, config: OptimizerConfig) -> list[dict[str, Any]]:
    """The optimizer's groups: those that decay first, those that do not after; Muon's matrices apart from the rest, and with muP
    hidden matrices.

    `lr_ratio` is a group's learning rate as a multiple of the run's (`set_rate`).
    """
    width = divisor(model, config)
    found: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = kind_of(name, parameter)
            muon = config.kind == "muon" and kind == "matrices"
            key = (muon, kind in config.decay, width != 1 and transfers(name, kind))
            found.setdefault(key, []).append(parameter)
    groups: list[dict[str, Any]] = []
    for muon, decays, hidden in sorted(found, reverse=True):
        group: dict[str, Any] = {
            "params": found[muon, decays, hidden], "weight_decay": config.weight_decay if decays else 0.0,
            "lr_ratio": 1.0,
        }  # fmt: skip
        if config.kind == "muon":
            group["muon"] = muon
        if muon and config.muon_lr:
            group["lr_ratio"] = config.muon_lr / config.lr
        if hidden:
            transfer(group, width)
        groups.append(group)
    return groups


def make_optimizer(model: Named, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of a config over a model's parameters, in groups (`groups_of`).

    Raises `UserError` if 8-bit states are asked for and torchao is not installed.
    """
    _without_compiler()
    groups, lr, betas, eps = groups_of(model, config), config.lr, config.betas, config.eps
    found: torch.optim.Optimizer
    match config.kind:
        case "adamw" if config.state_bits == 8:
            found = _adamw_8bit(groups, config)
        case "adamw":
            found = AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)
        case "muon":
            found = Muon(groups, lr, betas, eps, config.momentum, config.nesterov, config.muon_scale)
        case "lion":
            found = Lion(groups, lr, betas)
        case "lamb":
            found = Lamb(groups, lr, betas, eps)
        case "adafactor":
            found = Adafactor(groups, lr)
        case "sgd":
            nesterov = config.nesterov and config.momentum > 0
            found = Sgd(groups, lr=lr, momentum=config.momentum, nesterov=nesterov)
    set_rate(found, lr)
    found.ema, found.tuned = config.ema, config.hypergradient  # type: ignore[attr-defined]  # `prepare` asks
    return found


def _without_compiler() -> None:
    """PyTorch's optimizers import its compiler, two seconds of every start, to keep it out of themselves: where nothing is compiled
    there is nothing to keep out. Another PyTorch, which has no such mark, is only slower."""
    if "torch._dynamo" not in sys.modules:
        kind = torch.optim.Optimizer
        for method in (kind.add_param_group, kind.zero_grad, kind.state_dict, kind.load_state_dict):
            plain = getattr(method, "__wrapped__", None)
            if plain is not None:
                vars(plain).setdefault("__dynamo_disable", plain)


def _adamw_8bit(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW whose moments are 8-bit codes in blocks of 256 with a scale each (Dettmers et al. 2022)."""
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise UserError(
            "optimizer.state_bits: 8 needs torchao, which is not installed: pip install torchao, or set it to 32"
        ) from None

    class Symmetric(AdamW8bit):  # type: ignore[misc]
        """torchao's codes go from -0.99 to 1; these from -1, so that the largest value of a block is exact, whatever its
        sign: quantising twice changes nothing, and a checkpoint may hold values instead of codes."""

        @staticmethod
        def _subclass_zeros(p: Tensor, signed: bool, block_size: int) -> Tensor:
            state: Tensor = AdamW8bit._subclass_zeros(p, signed, block_size)
            if signed:
                state.qmap[0] = -1.0  # type: ignore[attr-defined]
            return state

    return Symmetric(groups, lr=config.lr, betas=config.betas, eps=config.eps)


def prepare(optimizer: torch.optim.Optimizer) -> None:
    """Give a new optimizer the state that a first step begins with, by a step of rate 0 with gradients of 0 that is not counted: without
    a state, nothing would notice that none was restored, and PyTorch makes none beside one of ours."""
    if any(optimizer.state.values()):
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [p.grad for p in parameters]
    first = optimizer.param_groups[0]
    rate = float(first["lr"]) / first.get("lr_ratio", 1.0)
    for p in parameters:
        p.grad = torch.zeros_like(p)
    set_rate(optimizer, 0.0)
    optimizer.step()
    set_rate(optimizer, rate)
    for p, grad in zip(parameters, kept, strict=True):
        p.grad = grad
    for value in (value for state in optimizer.state.values() for value in state.values()):
        if isinstance(value, Tensor) and not quantised(value):
            value.zero_()
    if getattr(optimizer, "ema", None):
        average.pairs(optimizer)
    if getattr(optimizer, "tuned", None):
        hypergradient.keep(optimizer)


def state_tensors(model: Named, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The live tensors of an optimizer's state, by name; names, unlike positions, survive a change of code."""
    return {
        f"{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def quantised(tensor: Tensor) -> bool:
    """Whether a tensor is one of torchao's, which looks like float32 and holds codes and scales; or a DTensor of such."""
    return hasattr(tensor.to_local() if hasattr(tensor, "to_local") else tensor, "codes")
