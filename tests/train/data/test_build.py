"""Batches that other loops take apart and put together, and labels for models that shift them."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.data.build import Batch
from corpusmill.train.data.pack import IGNORED
from tests.train.data.test_stream import SHAPES, T, same, stream


@pytest.mark.parametrize("shape", SHAPES)
def test_unshifted_labels_ask_for_the_same_predictions(shards: Folder, shape: str) -> None:
    with (
        stream(shards, **SHAPES[shape]) as ours,
        stream(shards, shift_labels=False, **SHAPES[shape]) as theirs,
    ):
        for a, b in islice(zip(ours, theirs, strict=True), 12):
            assert list(b) == ["input_ids", "labels", "position_ids"]
            assert {(tensor.dtype, tensor.shape) for tensor in b.values()} == {
                (torch.int64, (len(a["n"]), a["labels"].shape[1] + 1))
            }
            # A model that shifts compares its outputs but the last with the labels but the first.
            assert torch.equal(b["input_ids"][:, :-1], a["tokens"])
            assert torch.equal(b["labels"][:, 1:], a["labels"]) and (b["labels"][:, 0] == IGNORED).all()
            assert torch.equal(b["position_ids"][:, :-1], a["positions"].long())
            assert (b["position_ids"].diff(dim=1)[:, -1] == 1).all()  # the last position begins no document
            if "packing" not in SHAPES[shape]:
                assert torch.equal(b["labels"][:, 1:], b["input_ids"][:, 1:])


def test_loops_rebuild_a_batch_from_its_tensors(shards: Folder) -> None:
    """As `send_to_device` of Accelerate, `apply_to_collection` of Lightning and `default_convert` of torch do."""
    with stream(shards) as one:
        batch = next(one)
        moved = type(batch)({name: tensor + 1 for name, tensor in batch.items()})
    assert isinstance(moved, Batch) and list(moved) == list(batch) and len(moved) == 8
    assert all(torch.equal(moved[name], batch[name] + 1) for name in batch)
    with pytest.raises(KeyError):
        moved["text"]
    less = Batch({"tokens": batch["tokens"]})
    assert list(less) == ["tokens"]
    with pytest.raises(KeyError):
        less["documents"]


def test_a_loop_that_divides_batches_gets_what_can_be_divided(shards: Folder) -> None:
    with stream(shards) as one, stream(shards) as other, stream(shards, shift_labels=False) as third:
        one.set_epoch(0)
        third.sequences().set_epoch(1)
        batch = next(one)
        assert {tuple(tensor.shape) for tensor in batch.values()} == {(8, T), (8,)}
        assert same(batch, {name: next_of for name, next_of in next(other).items() if "seqlen" not in name})
        assert list(next(third)) == ["input_ids", "labels", "position_ids"]
    with (
        stream(shards, dp_rank=1, dp_world=2) as part,
        pytest.raises(UserError, match="part 1 of 2 would be div"),
    ):
        part.set_epoch(0)
