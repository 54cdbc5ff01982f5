"""RoPE's scalings, each against what its paper says of single pairs. (Equality with `transformers`: tests of export.)"""

from __future__ import annotations

import math

import pytest
import torch

from corpusmill.schemas.model import RopeScaling
from corpusmill.train.model.rope import frequencies, ntk_theta, rotate, rotation

D, THETA = 64, 10_000.0
PLAIN = frequencies(D, THETA, None)[0]


def scaled(kind: str, **more: float) -> tuple[torch.Tensor, float]:
    return frequencies(D, THETA, RopeScaling.model_validate({"kind": kind, "factor": 8.0, **more}))


def test_plain_and_linear() -> None:
    assert PLAIN[0] == 1 and float(PLAIN[-1]) == pytest.approx(THETA ** (-(D - 2) / D))
    found, size = scaled("linear")
    torch.testing.assert_close(found, PLAIN / 8)
    assert size == 1


def test_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    found, size = scaled("ntk")
    ratio = PLAIN / found
    assert float(ratio[0]) == 1 and float(ratio[-1]) == pytest.approx(8, rel=1e-5) and size == 1
    assert (ratio.diff() > 0).all()
    torch.testing.assert_close(found, frequencies(D, ntk_theta(THETA, 8.0, D), None)[0])


@pytest.mark.parametrize(
    ("kind", "fast", "slow", "size"),
    [("llama3", 4.0, 1.0, 1.0), ("yarn", 32.0, 1.0, 0.1 * math.log(8) + 1)],
)
def test_pairs_that_turn_often_stay_and_those_that_turn_seldom_are_stretched(
    kind: str, fast: float, slow: float, size: float
) -> None:
    found, got = scaled(kind, original_length=1024)
    turns = PLAIN * 1024 / (2 * math.pi)
    ratio = PLAIN / found
    assert got == pytest.approx(size)
    # yarn rounds the ends of the ramp to whole pairs, away from its middle
    ends = (fast * 1.5, slow / 1.5) if kind == "yarn" else (fast, slow)
    torch.testing.assert_close(ratio[turns > ends[0]], torch.ones(int((turns > ends[0]).sum())))
    torch.testing.assert_close(ratio[turns < ends[1]], torch.full((int((turns < ends[1]).sum()),), 8.0))
    between = ratio[(turns < fast) & (turns > slow)]
    assert len(between) > 2 and (between > 1).all() and (between < 8).all() and (between.diff() > 0).all()


def test_yarns_size_is_on_the_scores() -> None:
    scaling = RopeScaling(kind="yarn", factor=8.0)
    x = torch.randn(1, 1, 1, D)
    turned = rotate(x, rotation(torch.tensor([[7]]), D, THETA, scaling))
    torch.testing.assert_close(turned.norm(), x.norm() * (0.1 * math.log(8) + 1))
