"""The smallest layout: no smaller number of GPUs fits, nothing that fits sends less; and the command that prints it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from schemas.model import ModelConfig
from schemas.optim import OptimizerConfig
from tests.train.test_commands import command
from train.estimate.gpus import GPUS, Gpu
from train.estimate.layout import Layout
from train.estimate.memory import Work, memory
from train.estimate.search import fits, layouts, sent, smallest
from train.estimate.shape import shape_of

LLAMA = shape_of(
    ModelConfig(dim=4096, layers=32, heads=32, kv_heads=8, ffn_dim=14336, tie_embeddings=False), 128256
)
WORK = Work(1, 4096, 64, OptimizerConfig())


def test_the_smallest_is_the_smallest_and_sends_least() -> None:
    gpu = GPUS["A100-80GB"]
    answer = smallest(LLAMA, WORK, gpu, Layout(), 0.08)
    assert answer.best is not None
    count = answer.best.layout.processes
    assert [option.layout.processes for option in answer.nearest] == [
        2**i for i in range(count.bit_length() - 1)
    ]
    for option in answer.nearest:
        every = list(layouts(LLAMA, WORK, Layout(), option.layout.processes))
        assert not any(fits(memory(LLAMA, layout, WORK), gpu, 0.08) for layout in every)
        assert option.memory.total == min(memory(LLAMA, layout, WORK).total for layout in every)
    assert all(option.sent >= answer.best.sent for option in answer.others)
    assert fits(answer.best.memory, gpu, 0.08)


def test_nothing_fits_into_nothing() -> None:
    answer = smallest(LLAMA, WORK, Gpu("toy", 0.001, 1e12, 1), Layout(), 0.0, most=4)
    assert answer.best is None and [option.layout.processes for option in answer.nearest] == [1, 2, 4]


def test_what_cannot_be_dealt_is_refused() -> None:
    def refusal(layout: Layout, batch: int = 64) -> str:
        return layout.refusal(LLAMA, batch, 1) or ""

    assert refusal(Layout(tp=16)) == "kv_heads 8 is not a multiple of 16"
    assert refusal(Layout(dp=3)) == "global_batch / micro_batch 64 is not a multiple of 3"
    assert refusal(Layout(dp=2, ep=2, zero=1)) == "the model has no experts"
    assert refusal(Layout(pp=64)) == "32 layers make no 64 pieces"
    assert refusal(Layout(pp=8), 4) == "4 micro-batches leave 8 stages idle"
    assert refusal(Layout(pp=32, schedule="interleaved")) == "32 layers make no 64 pieces"


def test_communication() -> None:
    n = LLAMA.parameters
    assert sent(LLAMA, Layout(), WORK) == 0
    assert sent(LLAMA, Layout(dp=64), WORK) == pytest.approx(8 * n * 63 / 64)
    assert sent(LLAMA, Layout(dp=64, zero=1), WORK) == pytest.approx(6 * n * 63 / 64)
    assert sent(LLAMA, Layout(dp=64, zero=3), WORK) == pytest.approx(8 * n * 63 / 64)
    assert sent(LLAMA, Layout(tp=2), WORK) == 4 * 32 * 64 * (4096 * 4096 * 2)


def test_the_command(write_config: Callable[..., Path]) -> None:
    file = write_config(**{"schedule.steps": 1000})
    printed = command(
        "estimate", file, "--gpu", "H100", "--count", 2, "--zero", 1, "--price", 2, "--carbon", 0.4
    )
    assert "| optimizer" in printed and "| CO2e, kg" in printed and "dp 2 · zero 1: fits into" in printed
    assert "the smallest that fits" in printed
    found: dict[str, Any] = json.loads(
        command("estimate", file, "--count", 4, "--tp", 2, "--checkpointing", "full", "--json")
    )
    assert found["layout"]["dp"] == 2 and found["tokens"] == 192_000
    assert found["memory"]["total"] == pytest.approx(sum(found["memory"].values()) / 2, abs=10)
    assert found["smallest"]["gpus"] == 1 and found["too_small"] == [] and found["usd"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "H20"], "--gpu: 'H20' is not known; did you mean 'H200'?"),
        (["--count", 3, "--tp", 2], "--count: 3 GPUs are not a multiple of tp 2 x pp 1: set it to 4"),
        (["--count", 4, "--tp", 4], "layout dp 1 · tp 4: kv_heads 2 is not a multiple of 4"),
        (["--mfu", 40], "--mfu: must be above 0 and at most 1, is 40"),
        (["--precision", "int4"], "--precision: 'int4' is not allowed"),
        (["--set", "data.shards=/nowhere"], "data.shards: "),
    ],
)
def test_mistakes_get_a_line(write_config: Callable[..., Path], options: list[Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        command("estimate", write_config(), *options)
    assert message in str(error.value)
