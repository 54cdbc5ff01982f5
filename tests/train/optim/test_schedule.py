"""The rate is a function of tokens: with equal batches the one of steps, to the bit; with ramps that of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.optim import ScheduleConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import open_shards
from corpusmill.train.optim import learning_rate, rate_at

Make = Callable[..., dict[str, Any]]


def by_steps(schedule: ScheduleConfig, peak: float, step: int) -> float:
    """The schedule as it was when it counted steps."""
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    low = schedule.floor * peak
    if schedule.kind == "constant":
        return peak
    start = schedule.warmup_steps
    if schedule.kind == "wsd":
        start = schedule.steps - round(schedule.decay_share * schedule.steps)
    done = min(max((step - start) / max(schedule.steps - start, 1), 0.0), 1.0)
    if schedule.kind == "cosine":
        return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2
    return low + (peak - low) * (1 - done)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "wsd"])
@pytest.mark.parametrize(("steps", "warmup", "batch"), [(100, 10, 192), (1000, 0, 7), (37, 5, 3 * 2**20 + 1)])
def test_equal_batches_have_the_rates_of_steps_to_the_bit(
    kind: Any, steps: int, warmup: int, batch: int
) -> None:
    schedule = ScheduleConfig(steps=steps, warmup_steps=warmup, kind=kind, decay_share=0.27)
    for step in range(1, steps + 3):
        found = learning_rate(schedule, 3e-3, step * batch, steps * batch, warmup * batch)
        assert found == by_steps(schedule, 3e-3, step), step


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "wsd", "inverse_sqrt"])
def test_schedules(kind: Any) -> None:
    schedule = ScheduleConfig(steps=100, warmup_steps=10, kind=kind, floor=0.2, decay_share=0.3)
    rates = [learning_rate(schedule, 2.0, step * 8, 800, 80) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.2) and rates[9] == 2.0
    assert rates[:10] == sorted(rates[:10]) and rates[9:] == sorted(rates[9:], reverse=True)
    last = {"constant": 2.0, "inverse_sqrt": 2 * math.sqrt(10 / 100)}
    assert rates[-1] == pytest.approx(last.get(kind, 0.4))
    half = {"cosine": 1.2, "linear": 1.2, "constant": 2.0, "wsd": 2.0, "inverse_sqrt": 2 * math.sqrt(10 / 55)}
    assert rates[54] == pytest.approx(half[kind])
    if kind == "wsd":
        assert rates[69] == 2.0 and rates[84] == pytest.approx(1.2)


@pytest.mark.parametrize("kind", ["wsd", "constant"])
def test_before_a_decay_the_rate_is_the_peak_to_the_bit(kind: Any) -> None:
    """So that a branch, which decays to 0, has the rates of a trunk with another floor."""
    for peak in (3e-3, 1e-3, 7e-4, 0.0123, 6e-4, 0.015):
        for floor in (0.0, 0.07, 0.1, 0.33, 0.9):
            schedule = ScheduleConfig(steps=100, warmup_steps=10, kind=kind, floor=floor)
            assert {learning_rate(schedule, peak, step * 8, 800, 80) for step in range(10, 81)} == {peak}


def test_a_decay_in_steps_and_its_shapes() -> None:
    given = {"steps": 20, "warmup_steps": 4, "kind": "wsd", "floor": 0.2, "decay_steps": 4}
    for shape, rates in (
        ("linear", [0.8, 0.6, 0.4, 0.2]),
        ("sqrt", [0.6, 1 - 0.8 * math.sqrt(0.5), 1 - 0.8 * math.sqrt(0.75), 0.2]),
    ):
        schedule = ScheduleConfig.model_validate({**given, "decay_shape": shape})
        found = [learning_rate(schedule, 1.0, step, 20, 4) for step in range(16, 21)]
        assert found == pytest.approx([1.0, *rates]), shape
    for wrong, message in (
        (
            {"decay_steps": 17},
            "warmup_steps 4 and decay_steps 17 exceed steps 20: set decay_steps to 16 or less",
        ),
        ({"kind": "cosine"}, "decay_steps: has no effect on cosine"),
        (
            {"kind": "cosine", "decay_steps": None, "decay_shape": "sqrt"},
            "decay_shape: has no effect on cosine",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            ScheduleConfig.model_validate({**given, **wrong})
    assert (
        "decay_steps" not in ScheduleConfig().model_dump()
        and "decay_shape" not in ScheduleConfig().model_dump()
    )


def test_a_range_test_rises_by_the_same_factor() -> None:
    schedule = ScheduleConfig(steps=5, warmup_steps=0, kind="range_test", floor=1e-4)
    rates = [learning_rate(schedule, 10.0, step * 8, 40, 0) for step in range(1, 6)]
    assert rates == pytest.approx([1e-3, 1e-2, 1e-1, 1.0, 10.0])
    for wrong in ({"floor": 0.0}, {"warmup_steps": 1}):
        with pytest.raises(ValueError, match="range_test rises from floor x lr to lr"):
            ScheduleConfig.model_validate({"steps": 5, "warmup_steps": 0, "kind": "range_test", **wrong})


def test_inverse_square_root_stops_at_the_floor_and_needs_no_warmup() -> None:
    schedule = ScheduleConfig(steps=1000, warmup_steps=0, kind="inverse_sqrt", floor=0.1)
    rates = [learning_rate(schedule, 1.0, step, 1000, 0) for step in (1, 4, 100, 1000)]
    assert rates == pytest.approx([1.0, 0.5, 0.1, 0.1])


def test_a_ramp_spends_the_rate_on_tokens_not_on_steps(config: Make) -> None:
    settings = {"data.batch_ramp": {10: 4}, "schedule.kind": "linear", "schedule.floor": 0.0}
    ramped = TrainConfig.model_validate(config(**settings))  # 10 steps of 96 tokens, then 10 of 192
    assert ramped.data.tokens(20) == 10 * 96 + 10 * 192
    peak, warmup, total = ramped.optimizer.lr, 4 * 96, 2880
    assert rate_at(ramped, 4) == peak
    assert rate_at(ramped, 10) == pytest.approx(peak * (total - 960) / (total - warmup))
    assert rate_at(ramped, 20) == 0


def test_length_and_warmup_in_tokens_come_to_steps(config: Make) -> None:
    given = config(**{"data.batch_ramp": {10: 4}})
    given["schedule"] = {"tokens": 2881, "warmup_tokens": 400, "kind": "linear"}
    found = TrainConfig.model_validate(given)
    assert (found.schedule.steps, found.schedule.warmup_steps) == (21, 5)
    peak = found.optimizer.lr
    assert rate_at(found, 4) == pytest.approx(peak * 384 / 400)
    assert peak > rate_at(found, 5) > 0.95 * peak and rate_at(found, 21) == pytest.approx(0.1 * peak)
    again = TrainConfig.model_validate(found.model_dump(mode="json"))  # as a checkpoint keeps it
    assert again == found


def test_the_config_counts_the_tokens_that_the_plan_does(shards: Folder) -> None:
    data = DataConfig(
        shards=shards.url, sequence_length=24, global_batch=8, micro_batch=4, sequence_ramp={5: 6, 9: 12},
        batch_ramp={3: 32, 7: 16}, skip={4: 2},
    )  # fmt: skip
    plan = make_plan(data, open_shards(shards.url), seed=1)
    counts = [data.tokens(step) for step in range(31)]
    assert counts == [plan.tokens(step) for step in range(31)] and counts[1] == 192
    for tokens in range(1, counts[-1] + 1):
        steps = data.steps_for(tokens)
        assert counts[steps - 1] < tokens <= counts[steps]
