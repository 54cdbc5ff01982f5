"""Single sequences of a stream: in the order of its batches, from wherever they stopped."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from tests.train.data.test_stream import SHAPES, stream


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
