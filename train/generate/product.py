"""Products with weights that never change: laid out once as oneDNN's kernels read them, where that is worth it.

With one new token a row, a product reads its weights once and computes little: on a CPU it takes as long as the memory. The BLAS of
PyTorch reads the layout of `nn.Linear` at a part of the speed of memory, and a smaller one with several rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 100_000  # elements of a weight; with fewer, beginning the kernel takes longer than it saves
ROWS = 16  # a hint for the layout: with 1, it is no faster for one row, and slower for several


class Product:
    """x -> x @ weight.T, of `weight` [O, I]; x is of its type. The layout is made when it is first used, and takes as much memory
    again, if the weight is used elsewhere too."""

    def __init__(self, weight: Tensor) -> None:
        self._weight: Tensor | None = weight
        self._packed: Tensor | None = None
        self._try = weight.device.type == "cpu" and weight.numel() >= LEAST

    def __call__(self, x: Tensor) -> Tensor:
        """Of x [..., I]: [..., O]."""
        packed = self._layout() if self._try else None
        if packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")  # type: ignore[no-any-return]
        assert self._weight is not None
        return F.linear(x, self._weight)

    def added(self, y: Tensor, x: Tensor) -> Tensor:
        """y + x @ weight.T, of y float32 [N, O] and x [N, I]: float32."""
        packed = self._layout() if self._try else None
        if x.dtype != torch.float32:
            return y + self(x)
        if packed is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x, y, packed, None, "add")  # type: ignore[no-any-return]
        assert self._weight is not None
        return torch.addmm(y, x, self._weight.T)

    def _layout(self) -> Tensor | None:
        """None, for good, where oneDNN does not compute in this type on this processor."""
        if self._packed is None:
            assert self._weight is not None
            try:
                self._packed = _laid_out(self._weight)
            except (RuntimeError, AttributeError):  # AttributeError: a build of PyTorch without oneDNN
                self._try = False
                return None
            self._weight = None
        return self._packed


def _laid_out(weight: Tensor) -> Tensor:
    """Raises `RuntimeError` or `AttributeError` where that is not to be had."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)  # type: ignore[no-any-return]
