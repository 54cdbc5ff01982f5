"""The smallest layout: no smaller number of GPUs fits, nothing that fits sends less; and the command that prints it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.parallel import ParallelConfig
from corpusmill.train.model.flops import GPUS, Gpu
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import Work, fits, layouts, memory, sent, smallest
from tests.train.test_commands import command

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


def test_what_cannot_be_dealt_is_refused_with_the_number_to_change() -> None:
    def refusal(layout: Layout, batch: int = 64) -> str:
        return layout.refusal(LLAMA, 4096, batch, 1) or ""

    assert refusal(Layout(tp=16)) == "tp 16 does not divide model.kv_heads 8: set tp to 8"
    wanted = "data.micro_batch 1 x dp 3 does not divide data.global_batch 64: set data.global_batch to 66"
    assert refusal(Layout(dp=3)) == wanted
    assert refusal(Layout(dp=2, ep=2, zero=1)) == "ep 2, and the model has no experts: set ep to 1"
    for layout in (
        Layout(pp=64),
        Layout(pp=32, schedule="interleaved"),
        Layout(pp=32, schedule="zero_bubble"),
    ):
        assert refusal(layout) == "64 pieces are more than model.layers 32: lower pp or chunks"
    wanted = "4 micro-batches leave some of 8 stages idle: set data.global_batch to 8"
    assert refusal(Layout(pp=8), 4) == wanted


@pytest.mark.parametrize("moe", [None, {"experts": 6, "ffn_dim": 20, "top_k": 2}])
def test_what_the_trainer_refuses_is_refused(moe: dict[str, Any] | None) -> None:
    """Every layout of up to 4 x 4 x 4, of a model and sequences that few of them divide."""
    model = ModelConfig(dim=48, layers=6, heads=12, kv_heads=6, ffn_dim=90, moe=moe, vocab_multiple=12)
    data = DataConfig(shards="-", sequence_length=36, global_batch=48, micro_batch=1)
    shape, both = shape_of(model, 100), [0, 0]
    for tp, pp, ep, cp, schedule in itertools.product(
        (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 4), (1, 2, 3), ("1f1b", "interleaved", "zero_bubble")
    ):
        config = ParallelConfig(zero=1, tensor=tp, pipeline=pp, expert=ep, context=cp, schedule=schedule)
        refused = Layout(4, tp, pp, ep, 1, schedule=schedule, cp=cp).refusal(shape, 36, 48, 1) is not None
        try:
            config.check(model, data)
        except ValueError:
            assert refused, config
        both[refused] += 1
    assert min(both) > 10


def test_communication() -> None:
    n = LLAMA.parameters
    assert sent(LLAMA, Layout(), WORK) == 0
    assert sent(LLAMA, Layout(dp=64), WORK) == pytest.approx(8 * n * 63 / 64)
    assert sent(LLAMA, Layout(dp=64, zero=1), WORK) == pytest.approx(6 * n * 63 / 64)
    assert sent(LLAMA, Layout(dp=64, zero=3), WORK) == pytest.approx(8 * n * 63 / 64)
    assert sent(LLAMA, Layout(tp=2), WORK) == 5 * 32 * 64 * (4096 * 4096 * 2)
    # Keys and values of 8 heads of 128 there, their gradients back; gradients of weights as with dp.
    own = 4096 // 4 * 2 * 8 * 128 * 2
    assert sent(LLAMA, Layout(cp=4), WORK) == pytest.approx(8 * n * 3 / 4 + 32 * 64 * 2 * 3 * own)
    # In a ring they pass in the forward and the backward pass, and come home with gradients in float32.
    around = 2 * 3 * own + 4 * own * 4 / WORK.width
    assert sent(LLAMA, Layout(cp=4, ring=True), WORK) == pytest.approx(8 * n * 3 / 4 + 32 * 64 * around)
    assert str(Layout(2, cp=4, ring=True)) == "dp 2 · cp 4 in a ring"


def test_processes_that_share_sequences_shard_as_others_and_keep_a_part_of_each() -> None:
    alone, shared, others = (memory(LLAMA, layout, WORK) for layout in (
        Layout(), Layout(cp=4, zero=3), Layout(dp=4, zero=3)
    ))  # fmt: skip
    assert shared[:3] == others[:3] and shared.logits == alone.logits / 4
    kv = (
        4096 // 4 * 32 * 2 * (2 * 8 * 128)
    )  # a quarter of the positions, in bf16: those of all are kept, not their own alone
    assert shared.activations == pytest.approx(alone.activations / 4 + 3 * kv)
    assert Layout(2, cp=4, tp=2).processes == 16 and str(Layout(2, cp=4)) == "dp 2 · cp 4"
    assert all(layout.cp == 4 for layout in layouts(LLAMA, WORK, Layout(cp=4), 16))
    wanted = "2 x cp x tp 6 does not divide data.sequence_length 4096: set 2 x cp x tp to 4"
    assert Layout(cp=3).refusal(LLAMA, 4096, 64, 1) == wanted


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
        (["--count", 4, "--tp", 4], "layout dp 1 · tp 4: tp 4 does not divide model.kv_heads 2: set tp to 2"),
        (["--mfu", 40], "--mfu: must be above 0 and at most 1, is 40"),
        (["--precision", "int4"], "--precision: 'int4' is not allowed"),
        (["--budget", 0.5], "--budget: goes with --checkpointing budget alone (it is none)"),
        (["--checkpointing", "budget"], "--budget: goes with --checkpointing budget alone"),
        (["--set", "data.shards=/nowhere"], "data.shards: "),
        (
            ["--set", "init_from=x", "--set", "adapter={}"],
            "adapter: the estimate knows what the training of all",
        ),
    ],
)
def test_mistakes_get_a_line(write_config: Callable[..., Path], options: list[Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        command("estimate", write_config(), *options)
    assert message in str(error.value)
