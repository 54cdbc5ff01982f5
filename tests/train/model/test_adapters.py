"""Adapters of a decoder in one process: nothing changes while B is 0, merging is the formula of the papers, and nothing but
adapters is trained."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.train.model.adapters import adapted, merge, set_magnitudes, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import first_values
from tests.train.models import model_of

KINDS: list[dict[str, Any]] = [{}, {"rslora": True}, {"dora": True}]
IDS = torch.arange(40).view(2, 20)


def with_values(adapter: AdapterConfig, settings: dict[str, Any] | None = None) -> Decoder:
    """A model whose adapters are not at their first values."""
    model = with_adapters(model_of(settings or {"kv_heads": 2}), adapter, seed=3)
    set_magnitudes(model)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for linear in adapted(model).values():
            for parameter in (linear.lora_b, linear.magnitude):
                if parameter is not None:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings", [{"kv_heads": 2, "qk_norm": True}, {"preset": "gpt2", "max_positions": 24}]
)
def test_while_b_is_0_logits_are_those_of_the_base_to_the_bit(
    kind: dict[str, Any], settings: dict[str, Any]
) -> None:
    base = model_of(settings)
    wanted = base(IDS)
    model = with_adapters(model_of(settings), AdapterConfig(rank=4, **kind), seed=3)
    set_magnitudes(model)
    found = model(IDS)
    if kind.get("dora") and base.config.bias:  # which is added after the rows are scaled
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(found, wanted)
    merged = merge(model)
    assert list(merged.state_dict()) == list(base.state_dict())
    for name, value in merged.state_dict().items():
        assert torch.equal(value, base.state_dict()[name]), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [{"kv_heads": 2}, {"preset": "gpt2", "max_positions": 24}])
def test_merging_is_the_formula_and_changes_no_logit(kind: dict[str, Any], settings: dict[str, Any]) -> None:
    adapter = AdapterConfig(rank=4, alpha=6.0, **kind)
    model = with_values(adapter, settings)
    before = model(IDS)
    wanted = {}
    for name, linear in adapted(model).items():
        w, a, b = (x.detach().double() for x in (linear.weight, linear.lora_a, linear.lora_b))
        whole = w + 6.0 / (2.0 if kind.get("rslora") else 4) * b @ a
        if linear.magnitude is not None:
            whole = linear.magnitude.detach().double()[:, None] * whole / whole.norm(dim=1, keepdim=True)
        wanted[f"{name}.weight"] = whole
    merged = merge(model)
    assert not adapted(merged) and all(p.requires_grad for p in merged.parameters())
    for name, weight in wanted.items():
        torch.testing.assert_close(merged.get_parameter(name).detach().double(), weight, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(merged(IDS), before, rtol=1e-5, atol=1e-5)
    base = model_of(settings)
    assert (base(IDS) - before).abs().max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_formula_with_dora_s_norm_a_constant(kind: dict[str, Any]) -> None:
    linear = next(iter(adapted(with_values(AdapterConfig(rank=4, **kind))).values()))
    x = torch.randn(5, linear.in_features, generator=torch.Generator().manual_seed(1))
    linear(x).square().sum().backward()
    a, b = (p.detach().clone().requires_grad_() for p in (linear.lora_a, linear.lora_b))
    whole = linear.weight + linear.scale * b @ a
    if linear.magnitude is not None:
        m = linear.magnitude.detach().clone().requires_grad_()
        whole = m[:, None] * whole / whole.detach().norm(dim=1, keepdim=True)
    (x @ whole.T).square().sum().backward()
    torch.testing.assert_close(linear.lora_a.grad, a.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(linear.lora_b.grad, b.grad, rtol=1e-4, atol=1e-5)
    if linear.magnitude is not None:
        torch.testing.assert_close(linear.magnitude.grad, m.grad, rtol=1e-4, atol=1e-5)


def test_a_row_of_zeros_stays_one() -> None:
    model = with_adapters(model_of({}), AdapterConfig(rank=2, dora=True), seed=3)
    linear = adapted(model)["layers.0.attention.q"]
    with torch.no_grad():
        linear.weight[3] = 0.0
    set_magnitudes(model)
    found = linear(torch.ones(1, linear.in_features))
    assert found.isfinite().all() and found[0, 3] == 0 and linear.merged().isfinite().all()


def test_only_the_targets_have_adapters_and_only_adapters_are_trained() -> None:
    model = with_adapters(model_of({}), AdapterConfig(rank=2, targets=["v", "down"]), seed=3)
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    ends = ("attention.v", "ffn.down")
    assert names == {f"layers.{n}.{end}.lora_{x}" for n in range(3) for end in ends for x in "ab"}
    model(IDS, IDS).sum().backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == names
    whole, plain = model_of({}), model.flops_per_token(20)
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    products = whole.flops_per_token(20) - 3 * 2 * 3 * 32 * 20  # without attention
    assert plain == whole.flops_per_token(20) - products / 3 + 6 * adapters


def test_first_values_of_a_are_uniform_and_any_slice_is_that_of_the_whole() -> None:
    whole = first_values("layers.0.ffn.up.lora_a", (64, 100), (slice(None),) * 2, 7, 3, 50)
    assert whole.abs().max() <= 0.1 and whole.abs().max() > 0.099
    assert (
        float(whole.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.03) and abs(float(whole.mean())) < 0.003
    )
    part = first_values("layers.0.ffn.up.lora_a", (64, 100), (slice(8, 16), slice(50, 100)), 7, 3, 50)
    assert torch.equal(part, whole[8:16, 50:])
    assert not first_values("layers.0.ffn.up.lora_b", (64, 100), (slice(2), slice(None)), 7, 3, 50).any()
    row = first_values("layers.0.ffn.up.lora_a", (9, 999), (slice(1), slice(None)), 1, 3, 50)
    counts = torch.histc(row * math.sqrt(999), 10, -1, 1)  # of ten equal parts, each within 4 deviations
    assert len(row.unique()) > 990 and (counts - 99.9).abs().max() < 40
