"""The loss from hidden states: plain and chunked are cross entropy, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from corpusmill.train.model.losses import IGNORED, token_losses


def case(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 11, 16, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(40, 16, generator=generator).requires_grad_()
    labels = torch.randint(0, 40, (3, 11), generator=generator)
    labels[0, 3:7] = IGNORED
    return hidden, weight, labels, torch.rand(3, 11, generator=generator)


@pytest.mark.parametrize("chunk", [None, 1, 5, 33, 100])
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("softcap", [None, 2.5])
def test_equal_to_cross_entropy_in_losses_and_gradients(
    chunk: int | None, z_loss: float, softcap: float | None
) -> None:
    hidden, weight, labels, slope = case()
    logits = F.linear(hidden, weight)
    if softcap:
        logits = softcap * (logits / softcap).tanh()
    wanted = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED
    ).view(3, 11)
    wanted_z = z_loss * logits.logsumexp(-1) ** 2 * (labels != IGNORED)
    loss, z = token_losses(hidden, weight, labels, z_loss, chunk, softcap=softcap)
    torch.testing.assert_close((loss, z), (wanted, wanted_z), atol=1e-5, rtol=1e-5)
    assert (loss[0, 3:7] == 0).all() and (z[0, 3:7] == 0).all()
    # weighted position by position: no gradient is taken for that of the mean
    grads = torch.autograd.grad((slope * loss + slope**2 * z).sum(), (hidden, weight))
    expected = torch.autograd.grad((slope * wanted + slope**2 * wanted_z).sum(), (hidden, weight))
    torch.testing.assert_close(grads, expected, atol=1e-5, rtol=1e-4)
    assert (grads[0][0, 3:7] == 0).all()


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("softcap", [None, 2.5])
def test_gradients_of_the_sum_are_computed_beside_the_losses(
    z_loss: float, dtype: torch.dtype, softcap: float | None
) -> None:
    hidden, weight, labels, _ = case(dtype)
    found = []
    for summed in (False, True):
        loss, z = token_losses(hidden, weight, labels, z_loss, 5, summed=summed, softcap=softcap)
        found.append((loss, z, *torch.autograd.grad(0.37 * (loss + z).sum(), (hidden, weight))))
    close = 1e-6 if dtype == torch.float32 else 0.01  # of the largest
    torch.testing.assert_close(found[0][:2], found[1][:2], atol=1e-6, rtol=1e-6)
    for a, b in zip(found[0][2:], found[1][2:], strict=True):
        assert a.dtype == b.dtype and float((a - b).abs().max()) < close * float(a.abs().max())


def test_another_gradient_than_that_of_the_sum_is_an_error() -> None:
    hidden, weight, labels, slope = case()
    for z_loss, weights in ((0.0, (slope, slope)), (0.3, (torch.ones(3, 11), 2 * torch.ones(3, 11)))):
        loss, z = token_losses(hidden, weight, labels, z_loss, 5, summed=True)
        with pytest.raises(RuntimeError, match="not summed"):
            (weights[0] * loss + weights[1] * z).sum().backward()
    with torch.no_grad():  # nothing is computed ahead
        assert not token_losses(hidden, weight, labels, chunk=5, summed=True)[0].requires_grad


def test_in_bfloat16_losses_stay_float32_and_chunks_change_nothing() -> None:
    hidden, weight, labels, _ = case()
    results = []
    for chunk in (None, 5):
        with torch.autocast("cpu", torch.bfloat16):
            loss, z = token_losses(hidden, weight, labels, 1e-2, chunk)
        assert loss.dtype == z.dtype == torch.float32
        results.append((loss, *torch.autograd.grad((loss + z).sum(), (hidden, weight))))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-6)
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        assert a.dtype == b.dtype and float((a - b).abs().max()) < 0.01 * float(a.abs().max())


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="PyTorch before 2.13")
def test_pytorchs_own_gives_the_same_in_float32() -> None:
    hidden, weight, labels, _ = case()
    theirs = F.linear_cross_entropy(
        hidden.flatten(0, 1), weight, labels.flatten(), reduction="none", ignore_index=IGNORED,
        options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=5),
    )  # fmt: skip
    ours, _ = token_losses(hidden, weight, labels, chunk=5)
    torch.testing.assert_close(theirs, ours.flatten(), atol=1e-5, rtol=1e-5)
    for a, b in zip(*(torch.autograd.grad(x.sum(), (hidden, weight)) for x in (theirs, ours)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [4, 64])
def test_the_head_s_gradient_is_summed_in_float32_whatever_its_type(chunk: int) -> None:
    """As ZeRO gathers it, in bfloat16, of many chunks whose summands have one sign: summed in bfloat16, it stands still
    where the next summand is less than half a place of it."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.rand(1, 4096, 16, generator=generator).bfloat16()
    labels = torch.zeros(1, 4096, dtype=torch.int64)
    found = {}
    for dtype in (torch.float64, torch.bfloat16):
        weight = torch.full((8, 16), 0.125, dtype=dtype, requires_grad=True)
        loss, _ = token_losses(hidden.to(dtype), weight, labels, chunk=chunk)
        loss.sum().backward()
        assert weight.grad is not None and weight.grad.dtype == dtype
        found[dtype] = weight.grad.double()
    error = (found[torch.bfloat16] - found[torch.float64]).norm() / found[torch.float64].norm()
    assert error < 2**-8  # one rounding to bfloat16 of the sum, and those of the summands, which cancel
