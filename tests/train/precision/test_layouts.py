"""Loss scale, checkpointing, offload and compile in the layouts: each against one process without any of them.

An overflow on one process is a skipped step on all, and the scale stays the same everywhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.train.parallel.test_layouts import BIASED, GPT2, MIXED, check

SCALED = {"precision": "fp16", "loss_scale": {"initial": 4096.0, "hysteresis": 1, "growth_interval": 2}}
FP16 = {**SCALED, "optimizer": {"kind": "sgd"}, "close": {"rtol": 5e-3, "atol": 2e-3}}
# AdamW, which gets its learning rate on the device; its eps keeps it from dividing gradients of almost 0 by themselves.
INF = {**FP16, "overflow": 2, "optimizer": {"eps": 0.01}}
SELECTIVE, FULL = ({"memory": {"checkpointing": kind}} for kind in ("selective", "full"))

FP16_CASES: list[list[Any]] = [
    [f"{what} {name}", parallel, {**more, **extra}]
    for name, parallel, extra in (
        ("ddp", {}, {}), ("zero 1", {"zero": 1}, {}), ("zero 3", {"zero": 3}, {}), ("tensor", {"tensor": 2}, {}),
        ("pipeline", {"pipeline": 2}, {}), ("experts", {"zero": 2, "expert": 2}, BIASED),
    )
    for what, more in (("fp16", FP16), ("inf on one", INF))
]  # fmt: skip
MEMORY_CASES: list[list[Any]] = [
    ["selective tensor", {"tensor": 2}, {**SELECTIVE, **GPT2}], ["full zero 3", {"zero": 3}, {**FULL, **GPT2}],
    ["selective experts", {"zero": 1, "expert": 2}, {**SELECTIVE, **MIXED}], ["full pipeline", {"pipeline": 2}, FULL],
    ["full zero bubble", {"pipeline": 2, "schedule": "zero_bubble"}, FULL],
    ["selective zero 2, compiled", {"zero": 2}, {**SELECTIVE, "compile": "aot_eager"}],
    ["full tensor, compiled", {"tensor": 2}, {**FULL, "compile": "aot_eager"}],
    ["offloaded zero 2", {"zero": 2}, {"memory": {"offload": "optimizer"}}],
    ["offloaded pipeline", {"pipeline": 2}, {"memory": {"offload": "activations", "checkpointing": "full"}}],
]  # fmt: skip


@pytest.mark.parametrize(
    "cases",
    [pytest.param(FP16_CASES, id="fp16"), pytest.param(MEMORY_CASES, id="memory", marks=pytest.mark.slow)],
)
def test_a_layout_is_the_run_of_one_process(cases: list[list[Any]]) -> None:
    check(2, cases)
