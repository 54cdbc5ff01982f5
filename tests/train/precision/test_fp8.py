"""Products in 8 bits: close to bfloat16 in value and gradient, no other parameter touched, a run that falls alike."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.precision import fp8

CPU = torch.device("cpu")
KERNEL = fp8._product
CONFIG = {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64, "vocab_multiple": 8}


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e5])  # a scale for each tensor: what is small is not lost
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_near_those_of_bfloat16(size: float, bias: bool) -> None:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    x, weight = random(4, 12, 64) * size, random(96, 64) / 8
    inputs = [x, weight, random(96) * size] if bias else [x, weight]
    slope = random(4, 12, 96) * size
    found = {}
    for product in (fp8.linear, F.linear):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        with torch.autocast("cpu", torch.bfloat16):
            y = product(*leaves)
        assert y.dtype == torch.bfloat16
        y.backward(slope.bfloat16())
        found[product] = [y.detach(), *(leaf.grad for leaf in leaves)]
    forward, to_x, to_weight, *to_bias = (
        error(a, b) for a, b in zip(found[fp8.linear], found[F.linear], strict=True)
    )
    assert 1e-3 < forward < 0.05  # e4m3 has 3 bits after the point, e5m2 2
    assert 1e-3 < to_x < 0.08 and 1e-3 < to_weight < 0.08
    assert all(part < 0.01 for part in to_bias)


def test_only_products_of_layers_of_the_right_size() -> None:
    moe = {"experts": 4, "ffn_dim": 32, "shared_experts": 1, "first": 1}
    model = Decoder(ModelConfig(**{**CONFIG, "ffn_dim": 72, "tie_embeddings": False, "moe": moe}), 96)
    names = list(model.state_dict())
    count = fp8.use_fp8(model, CPU)
    changed = {name for name, module in model.named_modules() if "forward" in vars(module)}
    attention = {f"layers.{layer}.attention.{name}" for layer in (0, 1) for name in "qkvo"}
    assert changed == attention | {f"layers.1.ffn.shared.{name}" for name in ("gate", "up", "down")}
    assert count == len(changed) and list(model.state_dict()) == names


def test_where_there_is_no_fp8_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Decoder(ModelConfig(**{**CONFIG, "dim": 40, "heads": 4, "head_dim": 10, "ffn_dim": 72}), 96)
    with pytest.raises(UserError, match=r"multiples of 16, .* set model.dim 40 to 48, or precision to bf16"):
        fp8.use_fp8(small, CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA A100")
    with pytest.raises(
        UserError, match=r"needs compute capability 8.9, NVIDIA A100 has 8.0: set precision to bf16"
    ):
        fp8.use_fp8(small, torch.device("cuda", 0))


def test_tokens_that_are_no_multiple_of_16_and_evaluation_take_bfloat16() -> None:
    weight = torch.randn(32, 48, requires_grad=True)
    for rows in (15, 16):
        x = torch.randn(rows, 48)
        assert torch.equal(fp8.linear(x, weight), F.linear(x, weight)) is (rows == 15)
        with torch.no_grad():
            assert torch.equal(fp8.linear(x, weight), F.linear(x, weight))


def test_a_tensor_of_zeros_and_one_that_overflowed() -> None:
    weight = torch.zeros(16, 16, requires_grad=True)
    y = fp8.linear(torch.zeros(16, 16, requires_grad=True), weight)
    assert not y.any()
    bad = torch.full((16, 16), torch.inf, requires_grad=True)
    assert (
        not fp8.linear(bad, torch.eye(16)).isfinite().all()
    )  # what is wrong stays wrong: the guard is to see it


def test_decoded_products_are_those_of_the_kernel(decoded_products: None) -> None:
    """What whole runs of other tests put in its place."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(size, generator=generator) for size in ((48, 32), (64, 32)))
    for kind in (fp8.E4M3, fp8.E5M2):
        (small_a, scale_a), (small_b, scale_b) = fp8._small(a, kind), fp8._small(b, fp8.E4M3)
        given = small_a, small_b.t(), scale_a, scale_b, torch.float32
        decoded = fp8._product(*given)
        torch.testing.assert_close(decoded, KERNEL(*given), rtol=1e-5, atol=1e-5)
        assert error(decoded, a @ b.t()) > 1e-3  # and so of 8 bits
