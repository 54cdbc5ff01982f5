"""Plans from configs: shares in three ways, caps, and messages that name the number to change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import DataConfig
from corpusmill.train.data.order import order
from corpusmill.train.data.plan import Plan
from corpusmill.train.data.planning import (
    MOST_BATCHES,
    MOST_LANES,
    WAVES,
    chunk_size,
    epochs,
    exact_over,
    largest_remainder,
    make_plan,
)
from corpusmill.train.data.shards import open_shards
from tests.train.conftest import write_shards


def data(shards: Folder, **settings: object) -> DataConfig:
    base = {"shards": shards.url, "sequence_length": 24, "global_batch": 8, "micro_batch": 1}
    return DataConfig.model_validate({**base, **settings})


def plan(shards: Folder, steps: int | None = None, **settings: object) -> Plan:
    return make_plan(data(shards, **settings), open_shards(shards.url), 0, steps)


def shares(found: Plan, stage: int = 0) -> dict[str, float]:
    counts = found.stages[stage].counts
    return {s.name: c / sum(counts) for s, c in zip(found.sources, counts, strict=True)}


def test_without_weights_the_tokens_decide(shards: Folder) -> None:
    found = plan(shards, global_batch=1000)
    tokens = {s.name: s.tokens for s in found.sources}
    exact = {name: count / sum(tokens.values()) for name, count in tokens.items()}
    assert shares(found) == pytest.approx(exact, abs=1e-3)
    repeats = {"wiki": 3, "code": 1.5}
    total = sum(tokens[name] * times for name, times in repeats.items())
    asked = {name: tokens[name] * times / total for name, times in repeats.items()}
    assert shares(plan(shards, global_batch=1000, repeats=repeats)) == pytest.approx(asked, abs=1e-3)
    hot = {name: count ** (1 / 5) for name, count in tokens.items()}
    exact = {name: weight / sum(hot.values()) for name, weight in hot.items()}
    assert shares(plan(shards, global_batch=1000, temperature=5)) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"wikis": 1}}, "data.weights.wikis: the shard set has no such source"),
        ({"weights": {"wikis": 1}}, "did you mean 'wiki'?"),
        ({"stages": [{"from_step": 9, "repeats": {"book": 1}}]}, "data.stages[0].repeats.book: "),
        ({"weights": {"wiki": 9999, "code": 1}}, "data: 'code' has a share of 0.0001, which is no sequence in 8"),
        ({"weights": {"wiki": 9999, "code": 1}}, "set data.lanes to 8192 (the mixture is then exact over 1024 batches)"),
        ({"sequence_length": 150}, "lower it to 149"),
        ({"sequence_length": 150}, "write shards with longer blocks (shard.block_tokens=256 or more)"),
    ],
)  # fmt: skip
def test_impossible_plans_name_the_number_to_change(shards: Folder, settings: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        plan(shards, **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"wiki": 1}, "temperature": 2}, "weights and temperature exclude each other"),
        ({"temperature": 0.5}, "greater than or equal to 1"),
        ({"stages": [{"from_step": 9}, {"from_step": 9}]}, "from_step must rise from stage to stage"),
        ({"sequence_ramp": {5: 9}}, "9 does not divide sequence_length 24: set it to 8"),
        ({"sequence_ramp": {5: 6}, "batch_ramp": {5: 6}}, "set the batch there to 8"),
        ({"lanes": 12}, "lanes 12 is not a multiple of 8 sequences of 24: set lanes to 16"),
        ({"lanes": 8, "batch_ramp": {5: 3}}, "lanes 8 is not a multiple of 3 sequences of 24: set lanes to 9"),
        ({"batch_ramp": {5: 3}, "micro_batch": 2}, "batch_ramp: 3 is not a multiple of micro_batch 2"),
        ({"skip": {0: 3}}, "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_impossible_configs_name_the_number_to_change(shards: Folder, settings: dict, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        data(shards, **settings)
    assert message in str(error.value)


def test_the_advised_lanes_are_enough_and_each_batch_has_the_mixture_to_one(shards: Folder) -> None:
    found = plan(shards, weights={"wiki": 100.0, "code": 1.0}, lanes=64)
    assert found.stages[0].counts == (63, 1) and found.stages[0].sequences == 8


@pytest.mark.parametrize(
    ("weights", "batch", "lanes", "counts"),
    [
        ({"wiki": 0.3, "books": 0.45, "code": 0.25}, 16, 80, (24, 36, 20)),
        ({"wiki": 0.96, "books": 0.04}, 16, 400, (384, 16)),
        ({"wiki": 1, "books": 1, "code": 1}, 8, 24, (8, 8, 8)),
        ({"wiki": 0.5, "books": 0.5}, 1, 2, (1, 1)),
        ({"wiki": 0.75, "books": 0.25}, 16, 16, (12, 4)),
    ],
)  # fmt: skip
def test_shares_are_exact_over_a_few_batches_and_to_a_sequence_in_each(
    shards: Folder, weights: dict[str, float], batch: int, lanes: int, counts: tuple[int, ...]
) -> None:
    found = plan(shards, weights=weights, global_batch=batch)
    assert found.stages[0].counts == counts and sum(counts) == lanes
    wanted = np.array(list(weights.values())) / sum(weights.values())
    total = np.zeros(len(counts))
    for step in range(1, lanes // batch + 1):
        mine = np.bincount(order(found, found.numbers(step)).source, minlength=len(counts))
        assert (abs(mine - wanted * batch) < 1).all()
        total += mine
    assert total.tolist() == list(counts)


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=8), st.integers(1, 600))
def test_any_shares_come_nearer_than_in_one_batch(weights: list[float], batch: int) -> None:
    shares = [weight / sum(weights) for weight in weights]
    lanes = exact_over(shares, batch)
    assert lanes % batch == 0 and lanes <= max(MOST_LANES, MOST_BATCHES * batch)

    def error(size: int) -> float:
        counts = largest_remainder(shares, size)
        return max(abs(c / size / share - 1) for c, share in zip(counts, shares, strict=True))

    assert error(lanes) <= error(batch)


def test_left_out_and_zero_weight_sources_are_not_read(shards: Folder) -> None:
    found = plan(shards, weights={"wiki": 1, "books": 0})
    assert [source.name for source in found.sources] == ["wiki"]
    later = plan(shards, weights={"wiki": 1}, stages=[{"from_step": 4, "weights": {"code": 1}}])
    assert [source.name for source in later.sources] == ["wiki", "code"]
    assert data(shards, weights={"wiki": 1}, stages=[{"from_step": 4, "weights": {"code": 1}}]).reads("code")
    assert not data(shards, weights={"wiki": 1}).reads("code")


def test_caps_count_what_is_drawn(shards: Folder) -> None:
    found = plan(shards)
    times = epochs(found, 40)
    most = max(times, key=lambda name: times[name])
    plan(shards, 40, max_epochs=times[most] + 1e-6)
    with pytest.raises(UserError, match=f"data.max_epochs: '{most}' would be read"):
        plan(shards, 40, max_epochs=times[most] - 1e-3)
    plan(shards, 40, max_epochs={most: times[most] + 1e-6})
    with pytest.raises(UserError, match=f"'{most}' would be read"):
        plan(shards, 40, max_epochs={most: times[most] + 1e-6}, skip={3: 9})
    with pytest.raises(UserError, match=r"data\.max_epochs\.wikis: not a source that is read"):
        plan(shards, 40, max_epochs={"wikis": 1})


def test_chunks_are_blocks_where_there_are_enough_and_smaller_where_not() -> None:
    assert chunk_size(total=255 * 10_000, block=255, lanes=64, window=2) == 255
    small = chunk_size(total=255 * 90, block=255, lanes=64, window=2)
    assert small == 255 * 90 // (WAVES * 64 * 2) and chunk_size(total=5, block=5, lanes=64, window=2) == 1


def test_a_missing_shard_set_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give the folder of a shard set"):
        open_shards(str(tmp_path / "nothing"))


def test_a_changed_index_is_refused(tmp_path: Path) -> None:
    folder = write_shards(Folder(tmp_path), {"wiki": 1})
    file = folder / "wiki/train/index.json"
    file.write(file.read() + b" ")
    with pytest.raises(WorkError, match="changed since"):
        open_shards(folder.url)
