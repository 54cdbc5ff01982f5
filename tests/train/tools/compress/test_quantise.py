"""Rounded weights are within half a step of their own, or in few bits nearer as a group; GPTQ's are further from them and nearer in
what the product gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from corpusmill.train.tools.compress import quantise as quantise_module
from corpusmill.train.tools.compress.quantise import Quantised, awq, gptq, highest, quantise


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def steps(found: Quantised) -> Tensor:
    """The scale of each weight."""
    return found.scales.float().repeat_interleave(found.group, dim=1)[:, : found.codes.shape[1]]


def plain(weight: Tensor, bits: int, group: int) -> Tensor:
    """Squared errors of groups whose largest weight has the largest code, [rows, groups]."""
    parts = torch.nn.functional.pad(weight, (0, -weight.shape[1] % group)).view(len(weight), -1, group)
    scale = (parts.abs().amax(-1, keepdim=True) / highest(bits)).clamp(2.0**-17).half().float()
    return ((parts / scale).round().clamp(-highest(bits), highest(bits)) * scale - parts).square().sum(-1)


@given(
    st.sampled_from([(8, None), (4, 32), (4, 64), (4, 128)]),
    st.integers(1, 5),
    st.integers(1, 200),
    st.floats(-6, 3),
    st.integers(0, 1000),
)
def test_no_weight_moves_by_more_than_half_a_step_or_few_bits_by_less_together(
    kind: tuple[int, int | None], rows: int, width: int, size: float, seed: int
) -> None:
    bits, group = kind
    weight = normal(rows, width, seed=seed) * 10.0**size
    weight[:, ::7] = 0.0
    found, group = quantise(weight, bits, group), min(group or width, width)
    assert found.codes.shape == weight.shape and found.codes.dtype == torch.int8
    assert found.scales.shape == (rows, -(-width // group))
    lowest = found.lowest.repeat_interleave(group, dim=1)[:, :width]
    above = found.codes.int() - lowest
    assert found.lowest.shape == found.scales.shape and (found.lowest <= 0).all()
    assert int(above.min()) >= 0 and int(above.max()) < 2**bits and (found.scales > 0).all()
    assert bits == 4 or (found.lowest == -128).all()
    moved = found.values() - weight
    assert highest(bits) == 2 ** (bits - 1) - 1 and (found.values()[:, ::7] == 0).all()
    # The smallest and the largest code of four bits stand for weights beyond them too.
    beyond = (bits == 4) & ((above == 0) | (above == 15))
    assert ((moved.abs() <= steps(found) * 0.5001) | beyond).all()
    errors = torch.nn.functional.pad(moved, (0, -width % group)).view(rows, -1, group).square().sum(-1)
    assert (errors <= plain(weight, bits, group) * 1.0001).all()


def test_by_hand() -> None:
    found = quantise(torch.tensor([[0.0, 1.0, -127.0, 63.4, 0.5], [0.0] * 5]), 8)
    assert found.codes.tolist() == [[0, 1, -127, 63, 0], [0] * 5]
    assert found.values()[0].tolist() == [0.0, 1.0, -127.0, 63.0, 0.0]
    grouped = quantise(torch.tensor([[8.0, -3.0, -7.0, 7.0, -1.0, 14.0, 0.0, 0.0]]), 4, 2)
    assert grouped.codes.tolist() == [[8, -3, -7, 7, -1, 14, 0, 0]]
    assert grouped.scales[0, :3].tolist() == [1, 1, 1] and grouped.lowest[0].tolist() == [-7, -8, -1, -8]
    assert grouped.values().tolist() == [[8, -3, -7, 7, -1, 14, 0, 0]]


def test_in_few_bits_steps_are_finer_than_the_largest_weight_asks_for() -> None:
    """Of normal weights the squared error is about 0.63 of what plain scales leave; of weights on one side of 0 it is less than half."""
    for weight, share in ((normal(256, 256), 0.65), (normal(256, 256).abs(), 0.3)):
        error = (quantise(weight, 4, 32).values() - weight).square().sum()
        assert error < share * plain(weight, 4, 32).sum()


def test_the_scale_is_that_of_least_squares_for_its_codes() -> None:
    """Where the last step chose it, another scale near it would be worse for the same codes."""
    weight = normal(64, 32)
    found = quantise(weight, 4, 32)
    codes, scale = found.codes.float(), found.scales.float()
    fitted = (codes * weight).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True)
    assert ((fitted - scale).abs() < 0.02 * scale).all()
    assert ((fitted - scale).abs() < 0.001 * scale).float().mean() > 0.5


def correlated(count: int, width: int, seed: int) -> Tensor:
    """Inputs whose features depend on each other, of unequal size."""
    return (
        normal(count, width, seed=seed) @ normal(width, width, seed=seed + 1) * torch.linspace(0.1, 2, width)
    )


def error(weight: Tensor, values: Tensor, hessian: Tensor) -> float:
    """The mean square of what changes in the product's outputs."""
    moved = (weight - values).double()
    return float(((moved @ hessian) * moved).sum())


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("width", [96, 160, 300])
def test_gptq_changes_the_outputs_less_than_rounding(group: int, width: int) -> None:
    for seed in range(3):
        weight, x = normal(24, width, seed=seed), correlated(2 * width, width, 10 + seed).double()
        hessian = x.T @ x / len(x)
        found = gptq(weight, hessian, 4, group)
        above = found.codes - found.lowest.repeat_interleave(min(group, width), dim=1)[:, :width]
        assert int(above.min()) >= 0 and int(above.max()) <= 15
        assert found.scales.shape == found.lowest.shape == (24, -(-width // group))
        nearest = quantise(weight, 4, group)
        assert error(weight, found.values(), hessian) < 0.8 * error(weight, nearest.values(), hessian)
        assert (found.values() - weight).square().sum() > (nearest.values() - weight).square().sum()


def test_gptq_chooses_scales_by_what_inputs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    found, grid = [], quantise_module._grid
    for weighted in (True, False):
        if not weighted:
            monkeypatch.setattr(quantise_module, "_grid", lambda parts, bits, _: grid(parts, bits))
        errors = []
        for seed in range(3):
            weight, x = normal(24, 128, seed=seed), salient(400, 128).double()
            hessian = x.T @ x / len(x)
            errors.append(error(weight, gptq(weight, hessian, 4, 64).values(), hessian))
        found.append(errors)
    assert all(a < 0.9 * b for a, b in zip(*found, strict=True)), found


def test_of_independent_inputs_gptq_is_rounding() -> None:
    weight = normal(8, 96)
    for hessian in (torch.eye(96), torch.zeros(96, 96)):
        found, nearest = gptq(weight, hessian, 4, 32), quantise(weight, 4, 32)
        for a, b in zip(found[:-1], nearest[:-1], strict=True):
            assert torch.equal(a, b)


def test_a_feature_that_was_never_seen_is_rounded() -> None:
    weight, x = normal(8, 64), correlated(200, 64, 5).double()
    x[:, 9] = 0.0
    found = gptq(weight, x.T @ x / len(x), 4, 64)
    codes = torch.clamp((weight / found.scales.float()).round(), found.lowest, found.lowest + 15)
    assert torch.equal(found.codes[:, 9], codes[:, 9].to(torch.int8)) and not torch.equal(found.codes, codes)


def test_the_block_of_columns_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that reach far columns late are those that reach them at once."""
    weight, x = normal(8, 160), correlated(400, 160, 5).double()
    hessian = x.T @ x / len(x)
    found = gptq(weight, hessian, 4, 32)
    monkeypatch.setattr("corpusmill.train.tools.compress.quantise.BLOCK", 32)
    other = gptq(weight, hessian, 4, 32)
    assert (found.codes != other.codes).float().mean() < 0.01


def salient(count: int, width: int) -> Tensor:
    """Inputs of which a few features are much larger than the others."""
    sizes = torch.ones(width)
    sizes[:: width // 4] = 30.0
    return normal(count, width, seed=5) * sizes


def test_awq_keeps_what_large_inputs_are_multiplied_with() -> None:
    """On such inputs the products change far less than by rounding; for several products there is one scale of inputs."""
    weights, x = [normal(24, 128, seed=seed) for seed in range(2)], salient(400, 128).double()
    hessian, sizes = x.T @ x / len(x), x.abs().mean(0)
    found = awq(weights, hessian, sizes, 4, 64)
    for weight, values in zip(weights, found, strict=True):
        nearest = quantise(weight, 4, 64).values()
        assert error(weight, values, hessian) < 0.5 * error(weight, nearest, hessian)
        assert (values - weight)[:, 0].abs().mean() < (values - weight)[:, 1].abs().mean()


@pytest.mark.parametrize("width", [96, 300])
@pytest.mark.parametrize("grid", [0, 1, 20])
def test_awq_is_never_worse_than_rounding(width: int, grid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.train.tools.compress.quantise.GRID", grid)
    for seed in range(3):
        weights, x = [normal(24, width, seed=seed)], correlated(2 * width, width, 10 + seed).double()
        hessian = x.T @ x / len(x)
        (values,) = awq(weights, hessian, x.abs().mean(0), 4, 32)
        nearest = quantise(weights[0], 4, 32).values()
        assert error(weights[0], values, hessian) <= error(weights[0], nearest, hessian) * (1 + 1e-5)


def test_of_inputs_of_one_size_awq_is_rounding() -> None:
    weight = normal(8, 96)
    (values,) = awq([weight], torch.eye(96), torch.full((96,), 0.7), 4, 32)
    assert torch.equal(values, quantise(weight, 4, 32).values())
