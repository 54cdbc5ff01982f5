"""From a config to an optimizer: PyTorch's own where it has one, ours where it has none that fits; and which parameters
are alike for it: what decays, and what Muon orthogonalises. An optimizer's state as tensors with names:
`<key>/<parameter name>`, whatever the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.optim.muon import Muon
from corpusmill.train.optim.optimizers import Adafactor, Lamb, Lion
from corpusmill.train.optim.schedule import set_rate

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig, ParameterKind


class Named(Protocol):
    """A module, or what has the parameters of some (`corpusmill.train.parallel.model.ParallelModel`)."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


def kind_of(name: str, parameter: nn.Parameter) -> ParameterKind:
    """What a parameter is, by its name and dimensions. A head that is tied is an embedding."""
    if name.endswith("bias"):
        return "biases"
    if "embedding" in name:
        return "embeddings"
    if parameter.ndim < 2:
        return "norms"
    return "head" if name.endswith("head.weight") else "matrices"


def groups_of(model: Named, config: OptimizerConfig) -> list[dict[str, Any]]:
    """The optimizer's groups: those that decay first, those that do not after; Muon's matrices apart from the rest.

    `lr_ratio` is a group's learning rate as a multiple of the run's (`corpusmill.train.optim.schedule.set_rate`).
    """
    found: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = kind_of(name, parameter)
            muon = config.kind == "muon" and kind == "matrices"
            found.setdefault((muon, kind in config.decay), []).append(parameter)
    groups: list[dict[str, Any]] = []
    for muon, decays in sorted(found, reverse=True):
        group: dict[str, Any] = {
            "params": found[muon, decays], "weight_decay": config.weight_decay if decays else 0.0,
            "lr_ratio": 1.0,
        }  # fmt: skip
        if config.kind == "muon":
            group["muon"] = muon
        if muon and config.muon_lr:
            group["lr_ratio"] = config.muon_lr / config.lr
        groups.append(group)
    return groups


def make_optimizer(model: Named, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of a config over a model's parameters, in groups (`groups_of`).

    Raises `UserError` if 8-bit states are asked for and torchao is not installed.
    """
    groups, lr, betas, eps = groups_of(model, config), config.lr, config.betas, config.eps
    found: torch.optim.Optimizer
    match config.kind:
        case "adamw" if config.state_bits == 8:
            found = _adamw_8bit(groups, config)
        case "adamw":
            found = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)
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
            found = torch.optim.SGD(groups, lr=lr, momentum=config.momentum, nesterov=nesterov)
    set_rate(found, lr)
    return found


def _adamw_8bit(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW whose moments are 8-bit codes in blocks of 256 with a scale each (Dettmers et al. 2022)."""
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise UserError(
            "optimizer.state_bits: 8 needs torchao, which is not installed: pip install torchao, or set it to 32"
        ) from None

    class Symmetric(AdamW8bit):  # type: ignore[misc]
        """torchao's codes go from -0.99 to 1; these from -1, so that the largest value of a block is kept as it is, whatever
        its sign: quantising twice changes nothing, and a checkpoint may hold values instead of codes."""

        @staticmethod
        def _subclass_zeros(p: Tensor, signed: bool, block_size: int) -> Tensor:
            state: Tensor = AdamW8bit._subclass_zeros(p, signed, block_size)
            if signed:
                state.qmap[0] = -1.0  # type: ignore[attr-defined]
            return state

    return Symmetric(groups, lr=config.lr, betas=config.betas, eps=config.eps)


def prepare(optimizer: torch.optim.Optimizer) -> None:
    """Give a fresh optimizer its state, as a first step makes it, by a step of rate 0 with gradients of 0.

    Without this a fresh optimizer has no state, and nothing would notice that none was restored.
    """
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


def state_tensors(model: Named, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The live tensors of an optimizer's state, by name; names, not places, survive a change of code."""
    return {
        f"{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def quantised(tensor: Tensor) -> bool:
    """Whether it is one of torchao's, which passes for a tensor of float32 and holds codes and scales; or sharded, of such."""
    return hasattr(tensor.to_local() if hasattr(tensor, "to_local") else tensor, "codes")
