"""From a config to an optimizer: PyTorch's own where it has one, ours where it has none that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.train.optim.adafactor import Adafactor
from corpusmill.train.optim.groups import Named, groups_of
from corpusmill.train.optim.lamb import Lamb
from corpusmill.train.optim.lion import Lion
from corpusmill.train.optim.muon import Muon
from corpusmill.train.optim.schedule import set_rate

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig


def make_optimizer(model: Named, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of a config over a model's parameters, in groups (`corpusmill.train.optim.groups`).

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


def _adamw_8bit(groups: list[dict], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW whose moments are 8-bit codes in blocks of 256 with a scale each (Dettmers et al. 2022)."""
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise UserError(
            "optimizer.state_bits: 8 needs torchao, which is not installed: pip install torchao, or set it to 32"
        ) from None

    class Symmetric(AdamW8bit):
        """torchao's codes go from -0.99 to 1; these from -1, so that the largest value of a block is kept as it is, whatever
        its sign: quantising twice changes nothing, and a checkpoint may hold values instead of codes."""

        @staticmethod
        def _subclass_zeros(p: Tensor, signed: bool, block_size: int) -> Tensor:
            state: Any = AdamW8bit._subclass_zeros(p, signed, block_size)
            if signed:
                state.qmap[0] = -1.0
            return state

    return Symmetric(groups, lr=config.lr, betas=config.betas, eps=config.eps)
