"""What optimizers keep of a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.tools.estimate.layout import Weight


def state_bytes(weight: Weight, config: OptimizerConfig) -> int:
    """What an optimizer keeps of a parameter: exactly the tensors that `corpusmill.train.optim` makes."""
    for option in ("ema", "hypergradient"):  # a copy of the weights each
        if getattr(config, option) is not None:
            return 4 * weight.numel + state_bytes(weight, config.model_copy(update={option: None}))
    n, step = weight.numel, 4
    if config.kind == "adafactor" and len(weight.shape) > 1:
        return 4 * (n // weight.shape[-1] + n // weight.shape[-2]) + step
    if config.kind == "adafactor":
        return 4 * n + step
    if config.kind == "lion" or (config.kind == "muon" and weight.kind == "matrices"):
        return 4 * n
    if config.kind == "sgd":
        return 4 * n if config.momentum else 0
    if config.state_bits == 8 and n >= 4096 and n % 256 == 0:  # codes, a scale for 256 of them, 256 values
        return 2 * (n + 4 * n // 256 + 4 * 256) + step
    return 8 * n + step
