"""Products with weights in 8 or 4 bits, as `corpusmill compress --method int8` and `int4` round them, which PyTorch's kernels for CPUs
multiply with as they are. With one new token a row a product takes as long as reading its weights, and these are a quarter or an eighth
of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.train.tools.compress.quantise import quantise, regrouped

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder

Bits = Literal["int8", "int4"]
GROUP = 32  # weights of a row that share a scale, in four bits
ROWS, COLUMNS = 16, 32  # the kernels take a weight by so many, and read beyond the end of another one


class LowBits:
    """x -> x @ weight.T, of `weight` [O, I] rounded to `bits`, like a `Product`. Weights that have been compressed to as many bits keep
    their codes and scales, in groups of a multiple of `GROUP` too. The kernels are fast in bfloat16 alone: x and the sums are rounded to
    it, in four bits the scales too."""

    def __init__(self, weight: Tensor, bits: Bits) -> None:
        self._rows, self._width = weight.shape
        self._codes: Tensor
        self._scales: Tensor | None = None  # of rows, in eight bits
        padded = F.pad(weight.float(), (0, -self._width % COLUMNS, 0, -self._rows % ROWS))
        if bits == "int8":
            found = quantise(padded, 8)
            self._codes, self._scales = found.codes, found.scales[:, 0].float()
            self._factors = torch.ones(len(padded), dtype=torch.bfloat16)  # the scales are not rounded
            return
        found = regrouped(padded, 4, GROUP)
        above = found.codes.int() - found.lowest.int().repeat_interleave(GROUP, dim=1)
        self._codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(above, 1)
        scales = found.scales.float()
        # What the kernel multiplies with the first number is the code less 8, and it adds the second one: [groups, O, 2].
        pairs = torch.stack((scales, (found.lowest + 8) * scales), dim=-1)
        self._factors = pairs.transpose(0, 1).contiguous().bfloat16()

    @property
    def nbytes(self) -> int:
        scales = 0 if self._scales is None else self._scales.nbytes
        return self._codes.nbytes + self._factors.nbytes + scales

    def __call__(self, x: Tensor) -> Tensor:
        """Of x [..., I]: [..., O], of x's type."""
        rows = x.reshape(-1, self._width).bfloat16()
        if self._width % COLUMNS:
            rows = F.pad(rows, (0, -self._width % COLUMNS))
        if self._scales is not None:
            y = torch._weight_int8pack_mm(rows, self._codes, self._factors) * self._scales
        else:
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self._codes, GROUP, self._factors)
        return y[:, : self._rows].to(x.dtype).view(*x.shape[:-1], self._rows)

    def added(self, y: Tensor, x: Tensor) -> Tensor:
        """y + x @ weight.T, of y float32 [N, O] and x [N, I]: float32."""
        return y + self(x)


class LowBitsLinear(nn.Module):
    """A layer's `nn.Linear` with its weight in few bits."""

    def __init__(self, linear: nn.Linear, bits: Bits) -> None:
        super().__init__()
        self._product, self._bias = LowBits(linear.weight.detach(), bits), linear.bias

    def forward(self, x: Tensor) -> Tensor:
        y = self._product(x)
        return y if self._bias is None else y + self._bias


def in_few_bits(model: Decoder, bits: Bits) -> None:
    """Replace the products of a model's layers in place: all but routers, experts, whose weights are in one tensor, and what makes keys
    of latent vectors, which queries are multiplied with too (`corpusmill.train.model.mla`)."""
    for layer in model.layers.values():
        for name, module in list(layer.named_modules()):
            if isinstance(module, nn.Linear) and not name.endswith(("router", "kv_b")):
                parent, _, own = name.rpartition(".")
                setattr(layer.get_submodule(parent), own, LowBitsLinear(module, bits))
