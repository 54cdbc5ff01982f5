"""The norm of all gradients: as exact for a large embedding as for a small matrix, so that layouts agree on it."""

from __future__ import annotations

import pytest
import torch

from corpusmill.train.parallel import sharded_parameter
from corpusmill.train.parallel.sharded_parameter import total_norm
from tests.train.fake_cuda import FakeCuda


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


def test_the_norm_of_several_processes_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often each element is held is made into a tensor once, not at every step."""
    monkeypatch.setattr(sharded_parameter.dist, "all_reduce", lambda *_, **__: None)
    whole = torch.arange(1.0, 13.0)
    with FakeCuda() as cuda:
        parts = [cuda.moved(whole), cuda.moved(whole[:5])]
        found = [total_norm(parts, [2, 1], object())]  # type: ignore[arg-type]
        cuda.waits.clear()
        found.append(total_norm(parts, [2, 1], object()))  # type: ignore[arg-type]
        assert cuda.waits == [] and found[0].is_cuda
        exact = (whole.square().sum() / 2 + whole[:5].square().sum()).sqrt()
        assert [float(value) for value in found] == pytest.approx([float(exact)] * 2)
