"""Adapters in every layout against one process: gradients of A, B and magnitudes to 1e-6 (or 1e-5 of themselves) at the first
step; and a gradient that is 1 % wrong is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.forks import launch

Case = list[Any]


def settings(model: dict[str, Any] | None = None, **adapter: Any) -> dict[str, Any]:
    return {"adapter": {"rank": 4, "alpha": 8.0, **adapter}, "init_from": "-", "model": model or {}}


LORA, DORA = settings(), settings(dora=True, rslora=True)
SOME = settings(
    {"tie_embeddings": False, "kv_heads": 2, "loss_chunk": 5, "dropout": 0.1}, targets=["q", "v", "o"]
)
BIASED = settings({"preset": "gpt2", "max_positions": 24, "bias": True}, dora=True)
GPT2 = settings({"preset": "gpt2", "max_positions": 24})
WIDE = {"dim": 64, "ffn_dim": 128, "heads": 4, "kv_heads": 2, "head_dim": 32}
MLA = {"kv_rank": 12, "nope_head_dim": 8, "rope_head_dim": 4, "value_head_dim": 8}
LATENT = settings({"mla": {**MLA, "q_rank": 20}, "dropout": 0.1}, dora=True)
LATENT_SOME = settings({"mla": MLA}, targets=["q", "kv_a", "o"])
NF4, NF4_DORA = settings(WIDE, quantise="nf4"), settings(WIDE, quantise="nf4", dora=True)
TALK = {"data": {"conversations": {}}, "init_from": "-"}
PROMPT = {**TALK, "adapter": {"kind": "prompt", "tokens": 3}}
PREFIX = {**TALK, "adapter": {"kind": "prefix", "tokens": 3}, "model": {"kv_heads": 2, "qk_norm": True}}
BF16 = {
    **DORA,
    "precision": "bf16",
    "optimizer": {"kind": "sgd"},
    "exact": [0.05, 0.01],
    "rough": [0.05, 0.01],
}
TWO: list[Case] = [
    ["ddp", {}, LORA], ["zero 1", {"zero": 1}, SOME], ["zero 3", {"zero": 3}, LORA], ["tensor", {"tensor": 2}, LORA],
    ["pipeline", {"pipeline": 2}, LORA], ["zero bubble", {"pipeline": 2, "schedule": "zero_bubble"}, LORA],
    ["ddp, dora", {}, DORA], ["zero 3, dora", {"zero": 3}, DORA], ["tensor, dora", {"tensor": 2}, DORA],
    ["pipeline, some", {"pipeline": 2}, SOME], ["tensor, some", {"tensor": 2}, SOME],
    ["tensor, dora with biases", {"tensor": 2}, BIASED], ["tensor, biases", {"tensor": 2}, GPT2],
    ["bf16 zero 3, dora", {"zero": 3}, BF16], ["bf16 tensor, dora", {"tensor": 2}, BF16],
    ["full checkpointing", {"zero": 3}, {**LORA, "memory": {"checkpointing": "full"}}],
    ["nf4 ddp", {}, NF4], ["nf4 zero 3", {"zero": 3}, NF4], ["nf4 tensor", {"tensor": 2}, NF4],
    ["nf4 pipeline", {"pipeline": 2}, NF4], ["nf4 tensor, dora", {"tensor": 2}, NF4_DORA],
    ["nf4 zero bubble", {"pipeline": 2, "schedule": "zero_bubble"}, NF4],
    ["latent ddp", {}, LATENT], ["latent tensor", {"tensor": 2}, LATENT], ["latent zero 3", {"zero": 3}, LATENT_SOME],
    ["latent tensor, some", {"tensor": 2}, LATENT_SOME], ["latent zero bubble", {"pipeline": 2, "schedule": "zero_bubble"}, LATENT],
    ["prompt ddp", {}, PROMPT], ["prompt zero 3", {"zero": 3}, PROMPT], ["prompt tensor", {"tensor": 2}, PROMPT],
    ["prefix ddp", {}, PREFIX], ["prefix zero 3", {"zero": 3}, PREFIX],
    ["prefix tensor", {"tensor": 2}, PREFIX], ["prefix pipeline", {"pipeline": 2}, PREFIX],
    ["broken", {"tensor": 2}, {**LORA, "broken": True}],
]  # fmt: skip
FOUR: list[Case] = [
    ["zero 3 x tensor", {"zero": 3, "tensor": 2}, DORA],
    ["tensor x zero bubble", {"tensor": 2, "pipeline": 2, "schedule": "zero_bubble"}, DORA],
    ["prefix zero 3 x tensor", {"zero": 3, "tensor": 2}, PREFIX],
    ["nf4 zero 3 x tensor", {"zero": 3, "tensor": 2}, NF4_DORA], ["nf4 tensor x pipeline", {"tensor": 2, "pipeline": 2}, NF4],
    ["ddp x tensor", {"tensor": 2}, SOME], ["zero 2 x pipeline", {"zero": 2, "pipeline": 2}, {**LORA, "micro_batch": 1}],
]  # fmt: skip
COMPILED: list[Case] = [["compiled tensor", {"tensor": 2}, {**DORA, "compile": "aot_eager"}],
                         ["compiled prefix", {"tensor": 2}, {**PREFIX, "compile": "aot_eager"}],
                         ["compiled nf4", {"tensor": 2}, {**NF4, "compile": "aot_eager"}],
                         ["compiled nf4 zero 3", {"zero": 3}, {**NF4, "compile": "aot_eager"}]]  # fmt: skip


@pytest.mark.parametrize(
    ("processes", "cases"),
    [
        pytest.param(2, TWO, id="2"),
        pytest.param(4, FOUR, id="4"),
        pytest.param(2, COMPILED, id="compiled", marks=pytest.mark.slow),
    ],
)
def test_an_adapter_trains_in_every_layout_as_in_one_process(processes: int, cases: list[Case]) -> None:
    done = launch(processes, "tests.train.finetune.adapter_layouts", json.dumps(cases))
    everything = done.stdout + done.stderr
    agreed = [line.removesuffix(" agrees") for line in done.stdout.splitlines() if line.endswith(" agrees")]
    assert agreed == [name for name, _, more in cases if "broken" not in more], everything
    assert ("broken differs in process 0: gradient at step 0 of " in done.stdout) == (cases is TWO), (
        everything
    )
    assert done.returncode == 0, everything
