"""Products of the layers in 8 bits: e4m3 forward, e5m2 for gradients, a scale for each tensor (Micikevicius et al. 2022).

Each tensor is scaled by its current largest value, so there is no history to keep. Norms, embeddings, head, router and
stacks of experts are not changed, nor are products with a dimension that is no multiple of 16. It pays only when compiled:
eager, the casts cost more than the product saves.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.model.layer import Layer

CAPABLE = (8, 9)  # the lowest compute capability with 8-bit products
TILE = 16
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def use_fp8(model: nn.Module, device: torch.device) -> int:
    """Compute the products of a model's layers in 8 bits; returns how many. Names of parameters stay.

    Raises `UserError` where the hardware has no 8-bit products or the model none of the right size.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABLE:
        raise UserError(
            f"precision: fp8 needs compute capability {CAPABLE[0]}.{CAPABLE[1]}, {torch.cuda.get_device_name(device)} has"
            f" {'.'.join(map(str, torch.cuda.get_device_capability(device)))}: set precision to bf16"
        )
    layers = [layer for layer in model.modules() if isinstance(layer, Layer)]
    products = [
        module for layer in layers for name, module in layer.named_modules()
        if isinstance(module, nn.Linear) and not name.endswith("router") and not _odd(*module.weight.shape)
    ]  # fmt: skip
    if layers and not products:
        size = len(next(layers[0].attention_norm.parameters()))
        raise UserError(
            f"precision: fp8 needs products whose dimensions are multiples of {TILE}, and this model has none: set"
            f" model.dim {size} to {-(-size // TILE) * TILE}, or precision to bf16"
        )
    for module in products:
        module.forward = MethodType(_forward, module)  # type: ignore[method-assign]
    return len(products)


def _forward(module: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, module.weight, module.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of x [..., K] and weight [N, K] in 8 bits, or in bfloat16 if the number of tokens is no multiple of 16;
    in the type of autocast, or x's."""
    if not torch.is_grad_enabled() or _odd(x.numel() // x.shape[-1], *weight.shape):
        return F.linear(x, weight, bias)
    autocast = torch.is_autocast_enabled(x.device.type)
    dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
    y: Tensor = _Product.apply(x.flatten(0, -2), weight, dtype)  # type: ignore[no-untyped-call]
    return torch.unflatten(y if bias is None else y + bias.to(dtype), 0, x.shape[:-1])


class _Product(torch.autograd.Function):
    """y [M, N] = x [M, K] w^T; saves x and w in 8 bits, and their scales."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        (small_x, scale_x), (small_w, scale_w) = _small(x, E4M3), _small(weight, E4M3)
        ctx.save_for_backward(small_x, scale_x, small_w, scale_w)
        ctx.types = x.dtype, weight.dtype, dtype
        return _product(small_x, small_w.t(), scale_x, scale_w, dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scale_x, w, scale_w = ctx.saved_tensors
        type_x, type_w, dtype = ctx.types
        g, scale_g = _small(grad_output, E5M2)
        to_x = _product(g, _columns(w), scale_g, scale_w, dtype)
        to_w = _product(g.t().contiguous(), _columns(x), scale_g, scale_x, dtype)
        return to_x.to(type_x), to_w.to(type_w), None


def _small(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x in 8 bits, scaled so that its largest value is the type's; and the inverse of that scale, float32."""
    largest = x.abs().amax().float().clamp(min=1e-12)
    most = torch.finfo(dtype).max
    return (x.float() * (most / largest)).clamp(-most, most).to(dtype).contiguous(), largest / most


def _columns(x: Tensor) -> Tensor:
    """The same matrix in column-major order, as the product needs its right factor."""
    return x.t().contiguous().t()


def _product(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, dtype: torch.dtype, fast: bool = False
) -> Tensor:
    """`fast`: accumulation in fewer bits, precise enough for the forward pass alone."""
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype, use_fast_accum=fast)


def _odd(*sizes: int) -> bool:
    return any(size % TILE for size in sizes)
