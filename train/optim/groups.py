"""Which parameters are alike for an optimizer: what decays, and what Muon orthogonalises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

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
