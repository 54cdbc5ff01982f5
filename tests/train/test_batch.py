"""A batch on the device: the same rows as on the CPU, each copy from pinned memory, masks only where there are several documents."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from corpusmill.train.batch import micro_batches
from corpusmill.train.model.attend import sequence_starts
from tests.gpu.steps import LENGTH, batch_of, config_of
from tests.train.fake_cuda import CUDA, FakeCuda

CPU = torch.device("cpu")


def batch_with_single_rows() -> dict[str, torch.Tensor]:
    """The first two rows are one document each."""
    batch = batch_of(3, config_of({}))
    batch["documents"][:2] = 0
    batch["positions"][:2] = torch.arange(LENGTH)
    return batch


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_rows_on_the_device_are_those_on_the_cpu(dropout: float) -> None:
    config = config_of({"data.micro_batch": 2, "model.dropout": dropout})
    batch = batch_with_single_rows()
    assert not batch["tokens"].is_contiguous()
    here = micro_batches(batch, config, 5, CPU)
    with FakeCuda() as cuda:
        there = micro_batches(batch, config, 5, CUDA)
        assert cuda.waits == [] and len(there) == len(here) == 2
        found: list[dict[str, Any]] = [
            {name: value.cpu() for name, value in part.inputs.items()} for part in there
        ]
        for part, plain in zip(there, here, strict=True):
            assert all(value.is_cuda and value.is_contiguous() for value in part.inputs.values())
            assert torch.equal(part.scored.cpu(), plain.scored)
            assert torch.equal(part.source_id.cpu(), plain.source_id)
    starts = found[1].pop("cu_seqlens")
    assert torch.equal(starts, sequence_starts(batch["documents"][2:]))
    for got, part in zip(found, here, strict=True):
        assert got.keys() == part.inputs.keys()
        assert all(torch.equal(got[name], part.inputs[name]) for name in got)
    assert "documents" not in found[0] and "documents" in found[1]
    assert ("keys" in found[0]) == bool(dropout)


def test_what_is_on_the_device_stays_there() -> None:
    """As the benches have it: tokens and labels there, what the host reads here."""
    batch = batch_with_single_rows()
    with FakeCuda() as cuda:
        mixed = {name: cuda.moved(t) if name in ("tokens", "labels") else t for name, t in batch.items()}
        part = micro_batches(mixed, config_of({}), 1, CUDA)[0]
        assert cuda.waits == [] and torch.equal(part.inputs["tokens"].cpu(), batch["tokens"])
        assert part.scored.cpu().tolist() == (batch["labels"] >= 0).sum(1).tolist()
