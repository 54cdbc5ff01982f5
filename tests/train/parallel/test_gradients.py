"""The norm of all gradients: as exact for a large embedding as for a small matrix, so that layouts agree on it."""

from __future__ import annotations

import pytest
import torch

from corpusmill.train.parallel.sharded_parameter import total_norm


def test_a_large_tensor_loses_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    tensors = [
        torch.randn(20_000, 512, generator=generator),
        torch.randn(7, generator=generator),
        torch.empty(0, 3),
    ]
    exact = torch.stack([t.double().norm() for t in tensors]).norm()
    assert float(total_norm(tensors, [1, 1, 1], None)) == pytest.approx(float(exact), rel=1e-6)
    in_shards = [*tensors[0].tensor_split(8), *tensors[1:]]
    assert float(total_norm(in_shards, [1] * len(in_shards), None)) == pytest.approx(float(exact), rel=1e-6)


def test_it_is_finite_as_long_as_its_value_is_and_no_longer() -> None:
    assert float(total_norm([torch.full((4,), 1e15)], [1], None)) == pytest.approx(2e15)
    assert not total_norm([torch.tensor([1.0, torch.inf])], [1], None).isfinite()
    assert total_norm([torch.tensor([torch.nan])], [1], None).isnan()
