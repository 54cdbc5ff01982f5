"""Attention within documents: the reference, and that every other kernel is equal to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from corpusmill.schemas.model import ModelConfig
from corpusmill.train.data.pack import Marks, Rows
from corpusmill.train.model.attend import Boundaries, attend, boundaries, document_mask, sequence_starts

CONFIG = ModelConfig(dim=256, heads=4, kv_heads=2)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def laid_out(begins: list[np.ndarray], length: int) -> Marks:
    """As the loader marks rows in which documents begin at these places, beyond the first."""
    blank = np.zeros((len(begins), length), dtype=np.int64)
    return Rows(blank, blank, lambda row: begins[row]).marks()


def packed(rows: int, length: int, seed: int = 0) -> Tensor:
    """Numbers of documents of random lengths, [rows, length], each row counted from 0."""
    rng = np.random.default_rng(seed)
    begins = [np.sort(rng.choice(np.arange(1, length), 5, replace=False)) for _ in range(rows)]
    return torch.from_numpy(laid_out(begins, length).documents)


def heads(rows: int, length: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(rows, n, length, 64, generator=generator).to(device, dtype).requires_grad_()
        for n in (4, 2, 2)
    ]


def test_the_reference_is_each_document_by_itself() -> None:
    documents = packed(2, 40)
    q, k, v = heads(2, 40)
    found = attend(q, k, v, boundaries(documents, documents, None, q.dtype, CONFIG))
    for row in range(2):
        for number in documents[row].unique():
            at = documents[row] == number
            alone = attend(
                q[row : row + 1, :, at], k[row : row + 1, :, at], v[row : row + 1, :, at], Boundaries()
            )
            torch.testing.assert_close(found[row : row + 1, :, at], alone)


def test_starts_are_those_that_the_loader_counts() -> None:
    rows, length = 3, 50
    begins = [np.array([4, 20]), np.array([7, 27, 40]), np.array([], dtype=np.int64)]
    numbers, _, starts, _ = laid_out(begins, length)
    found = sequence_starts(torch.from_numpy(numbers))
    assert found.dtype == torch.int32 and len(found) == 16  # 8 documents and the end, up to a power of 2
    assert found[: len(starts)].tolist() == starts.tolist() and (found[len(starts) :] == rows * length).all()


def test_rows_of_one_document_need_no_mask() -> None:
    assert boundaries(torch.zeros(2, 16), None, None, torch.float32, CONFIG) == Boundaries()
    q, k, v = heads(2, 16)
    whole = torch.zeros(2, 16, dtype=torch.int64)
    masked = attend(q, k, v, Boundaries(mask=document_mask(whole)))
    torch.testing.assert_close(attend(q, k, v, Boundaries()), masked)


@CUDA
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("starts", [True, False])
def test_kernels_on_cuda_equal_the_reference(dtype: torch.dtype, starts: bool) -> None:
    """Variable-length flash attention in half precision given the starts, FlexAttention else."""
    documents = packed(2, 256)
    q, k, v = heads(2, 256, "cuda", dtype)
    cu_seqlens = sequence_starts(documents).cuda() if starts else None
    within = boundaries(documents.cuda(), documents.cuda(), cu_seqlens, dtype, CONFIG)
    assert (within.cu_seqlens is not None) == (starts and dtype != torch.float32) and within.mask is None
    found = attend(q, k, v, within)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = attend(*exact, Boundaries(mask=document_mask(documents.cuda())))
    near = {"atol": 2e-2, "rtol": 2e-2} if dtype != torch.float32 else {"atol": 2e-3, "rtol": 2e-3}
    torch.testing.assert_close(found.double(), wanted, **near)
    slope = torch.randn_like(found)
    grads = torch.autograd.grad((found * slope).sum(), (q, k, v))
    expected = torch.autograd.grad((wanted * slope).sum(), exact)
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got.double(), want, **near)
