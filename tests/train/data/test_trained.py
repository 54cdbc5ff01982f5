"""Which tokens a run was trained on: those that its stream gave, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import best_fit
from corpusmill.train.data.shards import open_shards
from corpusmill.train.data.trained import drawn, numbers, spread, trained_on
from tests.train.data.test_stream import SHAPES, stream
from tests.train.data.toy import toy

ALL = 2**62


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", [5, 40])
def test_it_is_what_the_stream_gave(shards: Folder, shape: str, steps: int) -> None:
    """In 40 steps most sequences are drawn several times."""
    source = stream(shards, **SHAPES[shape])
    plan = source.plan
    source.close()
    expected: dict[tuple[int, int], set[int]] = {}
    opened = [open_shards(shards.url).train[one.name] for one in plan.sources]
    data: dict[tuple[int, int], Any] = {}
    found = drawn(plan, steps)
    for key, (block, chosen) in zip(
        dict.fromkeys(zip(found.source.tolist(), found.block.tolist(), strict=True)),
        trained_on(plan, opened, found, FetchConfig()),
        strict=True,
    ):
        data[key] = block, set(np.flatnonzero(chosen).tolist())
    for step in range(1, steps + 1):
        length = plan.segment_of(step).stage.length
        parts = plan.sequence_length // length
        at = order(plan, plan.numbers(step))
        for s, b, q in zip(at.source.tolist(), at.block.tolist(), at.sequence.tolist(), strict=True):
            tokens = data[s, b][0]
            mine = expected.setdefault((s, b), set())
            if plan.packing == "windows":
                mine |= set(range(q * plan.sequence_length + 1, (q + 1) * plan.sequence_length + 1))
                continue
            count = (len(tokens.tokens) - 1) // plan.sequence_length * parts
            for row in best_fit(tokens.starts, len(tokens.tokens), length, count)[
                q * parts : (q + 1) * parts
            ]:
                for start, size in row:
                    mine |= set(range(start, start + size))
    assert {key: chosen for key, (_, chosen) in data.items()} == expected


def test_labels_are_those_of_the_batches(shards: Folder) -> None:
    """The tokens themselves, from the stream's own tensors: as many of each as the batches of one epoch hold."""
    source = stream(shards)
    batches = [next(source) for _ in range(4)]
    source.close()
    seen = np.sort(np.concatenate([batch["labels"].numpy().ravel() for batch in batches]))
    opened = [open_shards(shards.url).train[one.name] for one in source.plan.sources]
    pairs = trained_on(source.plan, opened, drawn(source.plan, 4), FetchConfig())
    found = np.sort(np.concatenate([block.tokens[chosen] for block, chosen in pairs]))
    assert len(seen) == 4 * 8 * 24 and np.array_equal(seen, found)


def test_skipped_steps_and_skipped_data_do_not_count() -> None:
    plan = toy((1, (4, 3, 1)), (5, (2, 2, 4)), skip=((3, 2), (6, 1)))
    every = np.concatenate([plan.numbers(step) for step in range(1, 9) if step not in (2, 7)])
    found, lengths = numbers(plan, 8, {2, 7}, ALL)
    assert found.tolist() == every.tolist() and set(lengths.tolist()) == {16}
    assert (
        numbers(plan, 3, {2, 7}, ALL)[0].tolist()
        == np.concatenate([plan.numbers(s) for s in (1, 3)]).tolist()
    )


def test_of_many_draws_some_are_looked_at_evenly() -> None:
    plan = toy((1, (4, 3, 1)), (50, (2, 2, 4)))
    every = numbers(plan, 100, (), ALL)[0]
    some = numbers(plan, 100, (), 80)[0]
    assert len(every) == 800 and some.tolist() == every[::10].tolist()


def test_a_limit_takes_whole_blocks_and_says_of_how_many() -> None:
    plan = toy()
    whole, part = drawn(plan, 10), drawn(plan, 10, most=20 * 16)
    assert whole.of == part.of == len(whole.sequence) > 20 >= len(part.sequence) > 5
    pairs = set(zip(part.source.tolist(), part.block.tolist(), part.sequence.tolist(), strict=True))
    every = set(zip(whole.source.tolist(), whole.block.tolist(), whole.sequence.tolist(), strict=True))
    blocks = {pair[:2] for pair in pairs}
    assert pairs == {one for one in every if one[:2] in blocks}


def test_spread_keeps_to_its_limit() -> None:
    sizes = np.array([5, 5, 50, 5, 5, 5])
    assert spread(sizes, 75).tolist() == [0, 1, 2, 3, 4, 5]
    for most in range(1, 75):
        kept = spread(sizes, most)
        assert len(kept) >= 1 and (sizes[kept].sum() <= most or len(kept) == 1)
    assert spread(np.zeros(0, dtype=np.int64), 5).tolist() == []
