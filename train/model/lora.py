"""LoRA (Hu et al. 2021), rsLoRA (Kalajdzievski 2023) and DoRA (Liu et al. 2024): linear layers with an adapter, in
any layout.

A layer keeps the names `weight` and `bias`, so that checkpoints, cuts and a base model's tensors go on fitting. With tensor
parallelism, whose processes have part of the outputs (column-parallel) or of the inputs (row-parallel), `lora_b` is cut as the
outputs and `lora_a` as the inputs. Of what all processes have whole, each has a summand of the gradient, as of other such
parameters. For QLoRA (Dettmers et al. 2023) the place of `weight` is taken by buffers, its NF4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.model import nf4
from corpusmill.train.model.split import WHOLE, Split

if TYPE_CHECKING:
    from corpusmill.schemas.adapter import AdapterConfig

TINY = torch.finfo(torch.float32).tiny  # in place of the norm of a row of zeros


class LoRALinear(nn.Linear):
    """x [..., in] -> x W'^T + bias [..., out], with W' = W + scale B A of a frozen weight W [out, in] and trained `lora_a` A
    [rank, in] and `lora_b` B [out, rank]; for DoRA each row of W' times `magnitude` [out] over its norm, which is a constant in
    the gradient (section 4.3 of the paper)."""

    codes: Tensor
    scales: Tensor
    factors: Tensor

    def __init__(self, base: nn.Linear, adapter: AdapterConfig, row_parallel: bool = False) -> None:
        super().__init__(base.in_features, base.out_features, base.bias is not None, device="meta")
        self.bias = base.bias
        self.quantised = adapter.quantise is not None
        if self.quantised:
            self.register_parameter("weight", None)
            self.keep_codes(base.weight)
        else:
            self.weight = base.weight
        self.scale, self.row_parallel = adapter.scale, row_parallel
        self.split: Split = WHOLE
        self.active = True  # off: the frozen product alone, as in `adapters_off`
        device = base.weight.device
        self.lora_a = nn.Parameter(torch.empty(adapter.rank, base.in_features, device=device))
        self.lora_b = nn.Parameter(torch.empty(base.out_features, adapter.rank, device=device))
        self.magnitude: nn.Parameter | None = None
        if adapter.dora:
            self.magnitude = nn.Parameter(torch.empty(base.out_features, device=device))

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return self.frozen(x)
        low = F.linear(x, self.lora_a)
        if self.magnitude is None:
            return self.completed(self.frozen(x), low)
        return self.biased(self.completed(self.frozen(x, biased=False), low))

    def unbiased(self, x: Tensor) -> Tensor:
        """The product without the bias."""
        if not self.active:
            return self.frozen(x, biased=False)
        return self.completed(self.frozen(x, biased=False), F.linear(x, self.lora_a))

    def frozen(self, x: Tensor, biased: bool = True) -> Tensor:
        """The product with the frozen weight alone."""
        if not self.quantised:
            return F.linear(x, self.weight, self.bias if biased else None)
        y = nf4.product(x, nf4.NF4(self.codes, self.scales, self.factors))
        return self.biased(y) if biased else y

    def keep_codes(self, weight: Tensor) -> None:
        """Hold the NF4 of a weight [out, in]; on the meta device, its shapes."""
        if weight.is_meta:
            codes, scales, factors = nf4.shapes(*weight.shape)
            found = nf4.NF4(
                weight.new_empty(codes, dtype=torch.uint8), weight.new_empty(scales, dtype=torch.uint8),
                weight.new_empty(factors, dtype=torch.float32),
            )  # fmt: skip
        else:
            found = nf4.quantise(weight.detach())
        for name, value in found._asdict().items():
            self.register_buffer(name, value)

    def values(self) -> Tensor:
        """The frozen weight, [out, in]."""
        if not self.quantised:
            return self.weight
        return nf4.dequantise(self.codes, self.scales, self.factors)

    def completed(self, base: Tensor, low: Tensor) -> Tensor:
        """x W'^T of `base` x W^T [..., out] and `low` x A^T [..., rank]."""
        y = base + F.linear(low * self.scale, self.lora_b)
        if self.magnitude is None:
            return y
        return (y * (self.magnitude / self._norms())).to(y.dtype)

    def biased(self, y: Tensor) -> Tensor:
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _norms(self) -> Tensor:
        """Of the rows of W', float32 [out], over all processes that have a part of each."""
        with torch.autocast(self.lora_a.device.type, enabled=False):
            whole = changed_weight(
                self.values().detach(), self.lora_a.detach(), self.lora_b.detach(), self.scale
            )
        found = row_norms(whole)
        if self.row_parallel and self.split.size > 1:
            found = self.split.sum(found.square()).sqrt()
        return found.clamp(min=TINY)

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W', computed in float32 and rounded once to the type of the weight, [out, in]."""
        weight = self.values()
        whole = changed_weight(weight, self.lora_a, self.lora_b, self.scale)
        if self.magnitude is not None:
            whole *= (self.magnitude.float() / row_norms(whole).clamp(min=TINY))[:, None]
        return whole.to(weight.dtype)


def weight_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """The shapes of a model's weights by name, of those held as NF4 too."""
    found = {name: parameter.shape for name, parameter in model.named_parameters()}
    for name, linear in model.named_modules():
        if isinstance(linear, LoRALinear) and linear.quantised:
            found[f"{name}.weight"] = torch.Size((linear.out_features, linear.in_features))
    return found


def changed_weight(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale B A, float32 [out, in]."""
    return torch.addmm(weight.float(), b.float(), a.float(), alpha=scale)


def row_norms(weight: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(weight, dim=1)
    return found


def complete_columns(
    base: Sequence[Tensor], x: Tensor, linears: Sequence[nn.Linear], gather: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """The column-parallel products of linear layers, some of which have adapters: of `base`, the products [B, T, out / n] with
    their weights, without the bias of those with an adapter.

    x [B, T / n, in] is this process's part of the sequence. Products with A are made of it and then gathered: `rank` numbers a
    position are sent in place of `in`.
    """
    adapted = [linear for linear in linears if isinstance(linear, LoRALinear)]
    if not all(linear.active for linear in adapted):
        return [
            linear.biased(y) if isinstance(linear, LoRALinear) else y
            for y, linear in zip(base, linears, strict=True)
        ]
    low = gather(F.linear(x, torch.cat([linear.lora_a for linear in adapted])))
    parts = iter(torch.split(low, [len(linear.lora_a) for linear in adapted], dim=-1))
    return [
        linear.biased(linear.completed(y, next(parts))) if isinstance(linear, LoRALinear) else y
        for y, linear in zip(base, linears, strict=True)
    ]
