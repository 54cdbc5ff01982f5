"""Labels for models that shift them, single sequences, and batches that other loops take apart and put together."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
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


@settings(max_examples=12)
@given(
    shape=st.sampled_from(sorted(SHAPES)), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    world=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_single_sequences_go_on_wherever_they_stopped(
    shards: Folder, shape: str, cuts: list[int], world: int
) -> None:
    states: list[Any] = [None] * world
    seen: list[list[Any]] = [[] for _ in range(world)]
    for cut in cuts:
        for rank in range(world):
            with stream(shards, dp_rank=rank, dp_world=world, prefetch=1, **SHAPES[shape]) as part:
                rows = part.sequences()
                if states[rank]:
                    rows.load_state_dict(json.loads(json.dumps(states[rank])))
                    assert rows.state_dict() == states[rank]
                seen[rank] += [(int(row["n"]), row["labels"].tolist()) for row in islice(rows, cut)]
                states[rank] = rows.state_dict()
        assert all(state == states[0] for state in states)
    for rank in range(world):
        with stream(shards, dp_rank=rank, dp_world=world, **SHAPES[shape]) as part:
            wanted = [
                (int(n), labels.tolist())
                for batch in islice(part, sum(cuts) * world // 8 + 1)
                for n, labels in zip(batch["n"], batch["labels"], strict=True)
            ]
        assert seen[rank] == wanted[: len(seen[rank])] and len(seen[rank]) == sum(cuts)


def test_a_state_within_a_batch_is_one_of_single_sequences(shards: Folder) -> None:
    with stream(shards) as one, stream(shards) as other:
        rows = one.sequences()
        list(islice(rows, 11))
        state = rows.state_dict()
        assert (state["n"], state["rows"], state["ranks"]) == (8, 3, 1)
        with (
            stream(shards, dp_world=2) as half,
            pytest.raises(WorkError, match="of each of 1 ranks: .* on 2;"),
        ):
            half.sequences().load_state_dict(state)
        with pytest.raises(WorkError, match=r"after 3 sequences of it: load it into stream.sequences\(\)"):
            other.load_state_dict(state)
        list(islice(rows, 5))
        assert rows.state_dict() == {**one.state_dict(), "rows": 0, "ranks": 1} and one.n == 16
        other.load_state_dict(rows.state_dict())  # at the end of a batch, both take either's
        assert next(other)["n"].tolist() == list(range(16, 24))
        rows.load_state_dict(other.state_dict())
        assert int(next(rows)["n"]) == 24


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
