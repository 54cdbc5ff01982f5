"""Experts: the grouped product is the loop, every token is served, and biases even out the load."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model import moe
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.moe import Experts, grouped, load_figures, move_biases, one_by_one

CONFIG = ModelConfig(dim=16, layers=3, heads=2, ffn_dim=24, moe={"experts": 8, "top_k": 2, "every": 2})


LOADS = [[3, 0, 9, 4], [16, 0, 0, 0], [0, 0, 0, 16]]


def results(function: Callable[..., Tensor], dtype: torch.dtype, load: list[int]) -> list[Tensor]:
    """Result and gradients."""
    generator = torch.Generator().manual_seed(0)
    x, weight, slope = (torch.randn(*shape, generator=generator) for shape in ((16, 32), (4, 8, 32), (16, 8)))
    x, weight = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
    y = function(x, weight, torch.tensor(load))
    return [y, *torch.autograd.grad((y * slope).sum(), (x, weight))]


@pytest.mark.parametrize("load", LOADS)
def test_the_loop_is_a_product_for_each_row(load: list[int]) -> None:
    def plain(x: Tensor, weight: Tensor, load: Tensor) -> Tensor:
        mine = torch.arange(4).repeat_interleave(load)
        return (weight[mine] @ x[..., None]).squeeze(-1)

    for a, b in zip(
        results(one_by_one, torch.float32, load), results(plain, torch.float32, load), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(moe.grouped_mm is None, reason="this PyTorch has no grouped_mm")
@pytest.mark.parametrize("load", LOADS)
def test_the_grouped_product_is_the_loop(load: list[int]) -> None:
    found, wanted = (results(f, torch.bfloat16, load) for f in (grouped, one_by_one))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=0.05, rtol=0.02)


def test_in_bfloat16_weights_are_cast_and_routes_stay() -> None:
    layer = Decoder(CONFIG, 50, seed=2).experts[0]
    x = torch.randn(2, 20, 16)
    with torch.no_grad():
        exact, routed = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            y, again = layer(x)
    assert y.dtype == torch.bfloat16 and torch.equal(again.load, routed.load)
    assert float((y.float() - exact).abs().max()) < 0.05 * float(exact.abs().max())


def test_a_token_goes_where_it_goes_whoever_is_beside_it() -> None:
    layer = Decoder(CONFIG, 50, seed=2).experts[0]
    x = torch.randn(3, 10, 16)
    whole, routed = layer(x)
    parts = [layer(row[None]) for row in x]
    torch.testing.assert_close(torch.cat([y for y, _ in parts]), whole)
    assert torch.equal(sum(r.load for _, r in parts), routed.load) and int(routed.load.sum()) == 60


def test_biases_move_against_the_load_and_even_it_out() -> None:
    model = Decoder(CONFIG, 50, seed=2)
    experts = model.experts
    assert list(experts) == [0, 2]
    move_biases(experts, torch.tensor([[9, 1, 4, 4, 4, 4, 4, 2], [7] + [0] * 7, [4] * 8]))
    wanted = 1e-3 * torch.tensor([-1, 1, 0, 0, 0, 0, 0, 1.0])
    torch.testing.assert_close(experts[0].bias, wanted)
    assert (experts[2].bias == 0).all()
    layer = experts[0]
    with torch.no_grad():
        layer.router.weight.mul_(20)
        layer.router.weight[0] += 1  # a favourite, for tokens on one side
    x = torch.randn(8, 64, 16, generator=torch.Generator().manual_seed(0)) + 0.3
    loads = []
    for _ in range(400):
        loads.append(layer.route(x)[2].load)
        move_biases({0: layer}, loads[-1][None])
    assert loads[0].max() > 2 * 128 and loads[-1].max() < 1.2 * 128 and loads[-1].min() > 0.8 * 128


@pytest.mark.parametrize("balance", ["loss", "none"])
def test_other_balances_move_no_bias(balance: str) -> None:
    config = CONFIG.model_copy(update={"moe": CONFIG.moe.model_copy(update={"balance": balance})})
    experts: dict[int, Experts] = Decoder(config, 50).experts
    move_biases(experts, torch.tensor([[9, 1, 4, 4, 4, 4, 4, 2]] * 3))
    assert all((layer.bias == 0).all() for layer in experts.values())


def test_what_is_reported_about_the_load() -> None:
    load = torch.tensor([[8, 0, 4, 4, 4, 4, 4, 4], [0] * 8, [4] * 8])
    assert load_figures(CONFIG, load) == {
        "layer_0": {"max": 2.0, "min": 0.0},
        "layer_2": {"max": 1.0, "min": 1.0},
    }
