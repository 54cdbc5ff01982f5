"""Losses of preferences: their values where policy and reference agree, beside formulas written another way, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from corpusmill.schemas.preference import PreferenceConfig
from corpusmill.train.finetune.losses import Sums, pair_losses, single_losses

LOSSES = ("dpo", "ipo", "hinge", "orpo", "simpo")


def config(loss: str, **more: Any) -> PreferenceConfig:
    return PreferenceConfig.model_validate({"loss": loss, **more})


def sums(seed: int, n: int = 6, same: bool = False) -> Sums:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, 9, (n,), generator=generator).double()
    policy = -tokens * (0.5 + torch.rand(n, generator=generator, dtype=torch.float64))
    reference = policy if same else policy + torch.randn(n, generator=generator, dtype=torch.float64)
    return Sums(policy, reference, tokens)


def by_hand(loss: str, beta: float, c: list[float], r: list[float], gamma: float = 0.5) -> float:
    """`c` and `r`: log-probability, that of the reference, tokens."""
    delta = (c[0] - c[1]) - (r[0] - r[1])
    if loss == "dpo":
        return math.log(1 + math.exp(-beta * delta))
    if loss == "hinge":
        return max(0.0, 1 - beta * delta)
    if loss == "ipo":
        return ((c[0] - c[1]) / c[2] - (r[0] - r[1]) / r[2] - 1 / (2 * beta)) ** 2
    means = c[0] / c[2], r[0] / r[2]
    if loss == "simpo":
        return math.log(1 + math.exp(-(beta * (means[0] - means[1]) - gamma)))
    odds = [math.exp(mean) / (1 - math.exp(mean)) for mean in means]
    return -c[0] - beta * math.log(1 / (1 + odds[1] / odds[0]))


@pytest.mark.parametrize("loss", LOSSES)
def test_values_are_those_of_the_formulas(loss: str) -> None:
    chosen, rejected = sums(1), sums(2)
    found = pair_losses(config(loss, beta=0.3), chosen, rejected)
    rows = [torch.stack(tuple(side)).T.tolist() for side in (chosen, rejected)]
    wanted = [by_hand(loss, 0.3, c, r) for c, r in zip(*rows, strict=True)]
    assert found.tolist() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("centring", [0.0, 0.3])
def test_a_reward_model_s_loss(centring: float) -> None:
    chosen, rejected = sums(1), sums(2)
    found = pair_losses(config("reward", centring=centring), chosen, rejected)
    wanted = [
        math.log(1 + math.exp(r - c)) + centring * (c + r) ** 2
        for c, r in zip(chosen.policy.tolist(), rejected.policy.tolist(), strict=True)
    ]
    assert found.tolist() == pytest.approx(wanted, rel=1e-6)
    at = [side.policy.clone().requires_grad_() for side in (chosen, rejected)]
    assert torch.autograd.gradcheck(
        lambda c, r: pair_losses(
            config("reward", centring=centring), chosen._replace(policy=c), rejected._replace(policy=r)
        ).sum(),
        at,
    )
    same = chosen._replace(policy=torch.zeros(6, dtype=torch.float64))
    assert pair_losses(config("reward"), same, same).tolist() == pytest.approx([math.log(2)] * 6, abs=1e-12)


def test_where_policy_and_reference_agree() -> None:
    same = sums(3, same=True), sums(4, same=True)
    for loss, value in (("dpo", math.log(2)), ("hinge", 1.0), ("ipo", 1 / (4 * 0.1**2))):
        assert pair_losses(config(loss), *same).tolist() == pytest.approx([value] * 6, rel=1e-12)
    for rejected in (True, False):
        found = single_losses(
            config("kto"), same[0], torch.full((6,), rejected), torch.zeros((), dtype=torch.float64)
        )
        assert found.tolist() == [0.5] * 6


def test_smoothing_is_the_mean_of_both_ways_round() -> None:
    chosen, rejected = sums(1), sums(2)
    ways = [pair_losses(config("dpo"), *pair) for pair in ((chosen, rejected), (rejected, chosen))]
    found = pair_losses(config("dpo", label_smoothing=0.2), chosen, rejected)
    torch.testing.assert_close(found, 0.8 * ways[0] + 0.2 * ways[1])


def test_kto_weighs_wanted_and_unwanted_answers() -> None:
    answers, rejected = sums(5), torch.tensor([True, False] * 3)
    z = torch.tensor(0.4, dtype=torch.float64)
    found = single_losses(config("kto", desirable_weight=2.0, undesirable_weight=0.5), answers, rejected, z)
    for value, ratio, bad in zip(found.tolist(), answers.ratio.tolist(), rejected.tolist(), strict=True):
        side = (0.4 - ratio) if bad else (ratio - 0.4)
        assert value == pytest.approx((0.5 if bad else 2.0) * (1 - 1 / (1 + math.exp(-0.1 * side))))


@pytest.mark.parametrize("loss", [*LOSSES, "kto"])
def test_gradients_are_those_of_finite_differences(loss: str) -> None:
    chosen, rejected = sums(1), sums(2)
    z, kinds = torch.tensor(0.1, dtype=torch.float64), torch.tensor([True, False] * 3)

    def value(c: Tensor, r: Tensor) -> Tensor:
        if loss == "kto":
            return single_losses(config(loss), chosen._replace(policy=c), kinds, z).sum() + 0 * r.sum()
        return pair_losses(config(loss), chosen._replace(policy=c), rejected._replace(policy=r), 0.25).sum()

    at = [side.policy.clone().requires_grad_() for side in (chosen, rejected)]
    assert torch.autograd.gradcheck(value, at)


def test_keys_without_an_effect_are_refused() -> None:
    with pytest.raises(ValueError, match="gamma: has no effect on dpo: leave it out"):
        config("dpo", gamma=1.0)
    with pytest.raises(ValueError, match="label_smoothing: has no effect on ipo"):
        config("ipo", label_smoothing=0.1)
    assert not config("orpo").needs_reference and config("kto").needs_reference
