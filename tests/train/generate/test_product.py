"""Products in oneDNN's layout are those of the plain weight, whatever the number of rows; and where it cannot be had, plain ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from corpusmill.train.generate import product
from corpusmill.train.generate.product import Product

SHAPES = [(512, 256), (700, 300), (37, 3001)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@torch.inference_mode()
def test_laid_out(rows: int, columns: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) / columns**0.5
    made = Product(weight)
    for shape in ((1,), (2,), (16,), (3, 5), (300,)):
        x, y = torch.randn(*shape, columns), torch.randn(*shape, rows)
        torch.testing.assert_close(made(x), F.linear(x, weight), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(made.added(y, x), y + F.linear(x, weight), atol=1e-5, rtol=1e-5)
    assert made._packed is not None and made._weight is None  # nothing is held twice


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_small_weights_stay_as_they_are(dtype: torch.dtype) -> None:
    weight, x, y = torch.randn(30, 20).to(dtype), torch.randn(4, 20).to(dtype), torch.randn(4, 30)
    made = Product(weight)
    assert torch.equal(made(x), F.linear(x, weight))
    torch.testing.assert_close(made.added(y, x), y + F.linear(x, weight))
    assert made.added(y, x).dtype == torch.float32 and made._packed is None


@pytest.mark.parametrize("error", [RuntimeError, AttributeError])
@torch.inference_mode()
def test_without_the_layout(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """bf16 on a processor without its instructions; a build of PyTorch without oneDNN."""

    def refused(*_: object) -> None:
        raise error("not supported")

    monkeypatch.setattr(product, "_laid_out", refused)
    weight, x, y = torch.randn(512, 256), torch.randn(4, 256), torch.randn(4, 512)
    made = Product(weight)
    assert torch.equal(made(x), F.linear(x, weight))
    torch.testing.assert_close(made.added(y, x), y + F.linear(x, weight))
