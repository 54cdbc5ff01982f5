"""NF4: the table is bitsandbytes', quantising again changes nothing, products and gradients are those of the values, and cutting
rows or blocks gives the cut values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from corpusmill.schemas.adapter import NF4_BLOCK, AdapterConfig
from corpusmill.train.model import nf4
from corpusmill.train.model.adapters import adapted, held, merge, set_magnitudes, with_adapters
from corpusmill.train.model.decoder import Decoder
from tests.train.models import model_of

IDS = torch.arange(40).view(2, 20)
WIDE = {"dim": 64, "ffn_dim": 128, "heads": 4, "kv_heads": 2}


def test_the_table_is_the_quantiles_that_bitsandbytes_takes() -> None:
    offset = 0.9677083  # bitsandbytes.functional.create_normal_map
    above = norm.ppf(torch.linspace(offset, 0.5, 9)[:-1].double().numpy())
    below = -norm.ppf(torch.linspace(offset, 0.5, 8)[:-1].double().numpy())
    wanted = torch.tensor(sorted([*above, 0.0, *below])) / above[0]
    torch.testing.assert_close(torch.tensor(nf4.TABLE).double(), wanted, rtol=0, atol=1e-6)


def test_configs_check_the_blocks_that_are_quantised() -> None:
    assert nf4.BLOCK == NF4_BLOCK


def test_the_error_on_normal_weights_is_that_of_the_table() -> None:
    weight = torch.randn(512, 1024, generator=torch.Generator().manual_seed(1))
    found = (nf4.dequantise(*nf4.quantise(weight)) - weight).abs().mean()
    blocks = weight.view(-1, 64)
    units = blocks / blocks.abs().amax(1, keepdim=True)
    nearest = (units[..., None] - torch.tensor(nf4.TABLE)).abs().amin(-1)
    wanted = (nearest * blocks.abs().amax(1, keepdim=True)).mean()
    assert float(found) == pytest.approx(float(wanted), rel=0.01) and 0.06 < found < 0.08


@given(
    st.integers(0, 2**31), st.floats(-36, 36), st.sampled_from([64, 192]),
    st.sampled_from(["normal", "one large", "sparse", "zeros"]),
)  # fmt: skip
def test_quantising_the_values_again_changes_nothing(seed: int, scale: float, inputs: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, inputs, generator=generator) * 10.0**scale
    if kind == "one large":
        weight[:, 0] *= 1e4
    elif kind == "sparse":
        weight *= torch.rand(weight.shape, generator=generator) < 0.02
    elif kind == "zeros":
        weight[1:3] = 0.0
    weight = weight.nan_to_num(posinf=3e38, neginf=-3e38)
    first = nf4.quantise(weight)
    values = nf4.dequantise(*first)
    assert values.isfinite().all()
    for a, b in zip(first, nf4.quantise(values), strict=True):
        assert torch.equal(a, b)


def test_cut_codes_are_the_cut_weight() -> None:
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(2))
    codes, scales, factors = nf4.quantise(weight)
    whole = nf4.dequantise(codes, scales, factors)
    assert torch.equal(nf4.dequantise(codes[4:], scales[4:], factors[4:]), whole[4:])
    assert torch.equal(nf4.dequantise(codes[:, 64:], scales[:, 2:], factors), whole[:, 128:])
    assert codes.nbytes + scales.nbytes + factors.nbytes == 8 * (128 + 4 + 4)
    with pytest.raises(ValueError, match="no multiple of 64"):
        nf4.quantise(weight[:, :100])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_and_gradients_are_those_of_the_values(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    weight = nf4.quantise(torch.randn(24, 128, generator=generator))
    x = torch.randn(2, 3, 128, generator=generator, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
        found, wanted = nf4.product(x, weight), torch.nn.functional.linear(y, nf4.dequantise(*weight))
    assert found.dtype == dtype and torch.equal(found, wanted)
    found.float().square().sum().backward()
    wanted.float().square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-4)


@pytest.mark.parametrize("dora", [False, True])
def test_merged_logits_are_those_beside_the_codes(dora: bool) -> None:
    base = model_of(WIDE)
    model = with_adapters(model_of(WIDE), AdapterConfig(rank=4, quantise="nf4", dora=dora), seed=3)
    set_magnitudes(model)
    with torch.no_grad():
        for linear in adapted(model).values():
            linear.lora_b.normal_(std=0.1, generator=torch.Generator().manual_seed(4))
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert model.parameter_count - adapters == base.parameter_count
    plain = with_adapters(model_of(WIDE), AdapterConfig(rank=4, dora=dora))
    assert model.flops_per_token(20) == plain.flops_per_token(20)
    assert not any(name.endswith("q.weight") for name in model.state_dict()) and " as NF4" in held(model)
    before = model(IDS)
    merged = merge(model)
    assert list(merged.state_dict()) == list(base.state_dict())
    torch.testing.assert_close(merged(IDS), before, rtol=1e-5, atol=1e-5)


def steps(model: Decoder, lr: float, count: int, stride: int) -> float:
    """Train on rows that count by `stride`, of which a fifth of the tokens is random; the mean loss of the last 10 steps."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr)
    generator, losses = torch.Generator().manual_seed(7), []
    for _ in range(count):
        ids = (torch.randint(40, (8, 1), generator=generator) + torch.arange(21) * stride) % 40
        other = torch.randint(40, ids.shape, generator=generator)
        ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, other, ids)
        loss = model(ids[:, :-1], ids[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses[-10:]) / 10


def trained(quantise: str | None) -> float:
    model = model_of(WIDE)
    model.summed = False
    steps(model, 3e-3, 60, 1)
    with_adapters(model, AdapterConfig.model_validate({"rank": 8, "quantise": quantise}), seed=3)
    return steps(model, 1e-3, 100, 3)


def test_the_loss_after_100_steps_is_within_2_percent_of_lora_s() -> None:
    assert trained("nf4") == pytest.approx(trained(None), rel=0.02)
