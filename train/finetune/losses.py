"""Losses of preferences, of the summed log-probabilities of answers; with TRL's conventions where papers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from corpusmill.schemas.preference import PreferenceConfig


class Sums(NamedTuple):
    """Of answers: `policy` and `reference`, their summed log-probabilities in nats, float [n] (without a reference: zeros; of a reward
    model the policy's are rewards), and `tokens`, how many labels each has."""

    policy: Tensor
    reference: Tensor
    tokens: Tensor

    @property
    def ratio(self) -> Tensor:
        """log of the policy's probability over the reference's."""
        return self.policy - self.reference

    @property
    def mean(self) -> Tensor:
        """Log-probability per token."""
        return self.policy / self.tokens


def pair_losses(config: PreferenceConfig, chosen: Sums, rejected: Sums, likelihood: float = 1.0) -> Tensor:
    """The loss of each pair, float [n]. `likelihood`: of `orpo`, pairs / tokens of chosen answers in the batch, by which the mean over
    tokens is a mean over pairs."""
    beta = config.beta
    delta = chosen.ratio - rejected.ratio
    if config.loss == "dpo":
        smooth = config.label_smoothing
        return -(1 - smooth) * F.logsigmoid(beta * delta) - smooth * F.logsigmoid(-beta * delta)
    if config.loss == "hinge":
        return F.relu(1 - beta * delta)
    if config.loss == "ipo":
        per_token = chosen.ratio / chosen.tokens - rejected.ratio / rejected.tokens
        return (per_token - 1 / (2 * beta)).square()
    if config.loss == "simpo":
        return -F.logsigmoid(beta * (chosen.mean - rejected.mean) - config.gamma)
    if config.loss == "reward":
        centre = config.centring * (chosen.policy + rejected.policy).square()
        return centre - F.logsigmoid(chosen.policy - rejected.policy)
    if config.loss == "orpo":
        odds = chosen.mean - rejected.mean - (_log_rest(chosen.mean) - _log_rest(rejected.mean))
        return -chosen.policy * likelihood - beta * F.logsigmoid(odds)
    raise ValueError(f"{config.loss} is no loss of pairs")


def _log_rest(log_p: Tensor) -> Tensor:
    """log(1 - p), of log-probabilities that may round to 0."""
    return torch.log1p(-log_p.clamp(max=-1e-7).exp())


def single_losses(config: PreferenceConfig, answers: Sums, rejected: Tensor, z: Tensor) -> Tensor:
    """KTO's loss of each answer, float [n]. `rejected`: bool [n]; `z`: the divergence from the reference that is expected of any
    answer, at least 0, without a gradient."""
    beta = config.beta
    wanted = config.desirable_weight * (1 - torch.sigmoid(beta * (answers.ratio - z)))
    unwanted = config.undesirable_weight * (1 - torch.sigmoid(beta * (z - answers.ratio)))
    return torch.where(rejected, unwanted, wanted)
