"""A stand-in for the kernel that takes most of the time of an 8-bit run on a CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from corpusmill.train.precision import fp8


@pytest.fixture
def decoded_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 8-bit tensors as float32 products of their values: the same to float32 rounding (test_fp8.py), where the
    CPU's kernel, a reference implementation, takes 50 times as long."""

    def product(
        a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, dtype: torch.dtype, fast: bool = False
    ) -> Tensor:
        return (a.float() @ b.float() * (scale_a * scale_b)).to(dtype)

    monkeypatch.setattr(fp8, "_product", product)
