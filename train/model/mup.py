"""muP, the maximal update parametrisation (Yang et al. 2022, table 8): a learning rate found at one width is right at another.

`width` is the model's width by that of the base. The factors of queries and logits are `ModelConfig.query_scale` and `width_ratio`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig, ParameterKind


def deviation(std: float, name: str, width: float) -> float:
    """Of the first values of a matrix, which is `std` at the base: of hidden ones by the root of their inputs, of a router, whose outputs
    do not grow in number, by its inputs; embeddings and head keep it."""
    if "embedding" in name or name == "head.weight":
        return std
    return std / (width if name.endswith("router.weight") else math.sqrt(width))


def divisor(model: Any, config: OptimizerConfig) -> float:
    """What the rate of a model's hidden matrices is divided by: of Adam and of the sign of Lion the width; of Muon, whose updates have one
    spectral norm, what its scale adds to that (Yang et al. 2023). 1 for a module that is no decoder."""
    width: float = getattr(getattr(model, "config", None), "width_ratio", 1.0)
    if config.kind == "muon":
        return 1.0 if config.muon_scale == "original" else math.sqrt(width)
    return width


def transfers(name: str, kind: ParameterKind) -> bool:
    """Whether a parameter is a hidden matrix, no adapter of one."""
    return kind == "matrices" and not name.endswith((".lora_a", ".lora_b"))


def transfer(group: dict[str, Any], divisor: float) -> None:
    """Give a group of hidden matrices its rate. What decays in a step, rate x weight decay, stays that of the base."""
    group["lr_ratio"] /= divisor
    group["weight_decay"] *= divisor
