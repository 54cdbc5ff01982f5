"""The fastest layouts: all are possible, none that fits is faster, for any preset and number of GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpusmill.schemas.model import PRESETS, ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train.model.flops import GPUS
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import Work, fits, layouts, memory
from corpusmill.train.tools.estimate.speed import Option, Timing, fastest
from tests.train.test_commands import command

H100 = GPUS["H100"]
LLAMA = shape_of(
    ModelConfig(dim=4096, layers=32, heads=32, kv_heads=8, ffn_dim=14336, tie_embeddings=False), 128256
)
WORK = Work(1, 4096, 64, OptimizerConfig())


def timing(**changes: Any) -> Timing:
    return Timing(LLAMA, replace(WORK, **changes), H100, 0.5)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_any_preset_and_number_of_gpus_has_a_layout(preset: str) -> None:
    shape = shape_of(ModelConfig.model_validate({"preset": preset}), 50304)
    for count in (8, 64, 96, 512, 1000, 4096):
        work = Work(1, 2048, 2048, OptimizerConfig(), checkpointing="full")
        found = fastest(Timing(shape, work, GPUS["H200"], 0.4), Layout(), 0.08, count)
        assert 1 <= len(found) <= 4
        times = [option.seconds.total for option in found]
        assert times == sorted(times) and len({option.layout for option in found}) == len(found)
        for option in found:
            assert option.layout.refusal(shape, 2048, 2048, option.micro_batch) is None
            assert fits(option.memory, GPUS["H200"], 0.08)
            assert option.layout.processes == found[0].layout.processes <= count
        if count in (8, 64, 512):
            assert found[0].layout.processes == count, "all of them, where the batch can be divided"


@pytest.mark.parametrize("count", [8, 16])
def test_nothing_that_fits_is_faster(count: int) -> None:
    clock = timing()
    best = fastest(clock, Layout(), 0.08, count)[0]
    every = [
        clock.step(layout, micro_batch).total
        for micro_batch in (1, 2, 4, 8)
        for layout in layouts(LLAMA, replace(WORK, micro_batch=micro_batch), Layout(), count)
        if fits(memory(LLAMA, layout, replace(WORK, micro_batch=micro_batch)), H100, 0.08)
    ]
    assert len(every) > 20 and best.seconds.total == min(every)


def test_what_a_step_waits_for() -> None:
    clock = timing(global_batch=512)
    alone, tensor = clock.step(Layout(), 1), clock.step(Layout(tp=8), 1)
    assert alone.bubble == alone.tensor == alone.data == 0
    assert tensor.tensor > 0 and tensor.compute < alone.compute / 4
    # Within a node gradients hide behind the backward pass; the fewer passes, the less.
    assert clock.step(Layout(dp=8), 1).data < clock.step(Layout(dp=512), 1).data
    slow = Timing(LLAMA, replace(WORK, global_batch=512), H100, 0.5, network=1e9)
    assert slow.step(Layout(dp=512), 1).data > 10 * clock.step(Layout(dp=512), 1).data
    assert slow.step(Layout(dp=8), 1) == clock.step(Layout(dp=8), 1)
    bubbles = [
        clock.step(Layout(pp=8, schedule=schedule), 1).bubble
        for schedule in ("1f1b", "interleaved", "zero_bubble")
    ]
    assert bubbles[0] > bubbles[1] > bubbles[2] > 0
    assert clock.step(Layout(pp=8), 1).bubble == pytest.approx(7 / 512 * clock.step(Layout(pp=8), 1).compute)
    near, far = clock.step(Layout(cp=8), 1), clock.step(Layout(cp=64), 1)
    assert alone.context == 0 < near.context < far.context and near.compute < alone.compute / 4
    assert far.context < clock.step(Layout(cp=64, ring=True), 1).context
    again = timing(checkpointing="full").step(Layout(), 1).compute / timing().step(Layout(), 1).compute
    assert 1.25 < again < 1.34


def test_of_more_gpus_than_can_be_used_the_most_are() -> None:
    found: list[Option] = fastest(timing(global_batch=4), Layout(), 0.08, 4096)
    assert found[0].layout.processes == 4 * 8  # a sequence for each stage, heads for 8


def test_the_command_has_layouts_where_the_config_has_none(write_config: Callable[..., Path]) -> None:
    file = write_config(**{"schedule.steps": 1000})
    found: dict[str, Any] = json.loads(command("estimate", file, "--count", 512, "--gpu", "H100", "--json"))
    assert "does not divide data.global_batch 8" in found["refused"] and found["memory"] is None
    best = found["fastest"][0]
    assert best["gpus"] <= 512 and best["seconds_per_step"] == pytest.approx(sum(best["seconds"].values()))
    printed = command("estimate", file, "--count", 512, "--gpu", "H100")
    assert (
        "the fastest layouts of 512 x H100" in printed and "set data.global_batch to 512 for all" in printed
    )
    two = command("estimate", file, "--count", 2, "--network", 100)
    assert "the fastest layouts of 2 x H200" in two and "does not divide" not in two
