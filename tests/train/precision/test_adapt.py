"""What a config asks for is done in order, or refused by name; compiled layers have the gradients of eager ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.parallel import MemoryConfig
from corpusmill.schemas.training import TrainConfig, changed
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.precision.adapt import (
    adapt,
    autocast,
    automatic,
    compile_layers,
    compiles,
    offload_policy,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


MOE = {"experts": 4, "ffn_dim": 32, "balance": "loss", "first": 1}
KEPT = dict[int, torch.UntypedStorage]


def losses_and_gradients(
    settings: dict[str, Any], backend: str | None = None
) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """Of a model that is compiled with `backend`, None: not; beside them the bytes that its forward pass keeps."""
    config = TrainConfig.model_validate(settings)
    model = Decoder(config.model, 96, config.seed)
    names = list(model.state_dict())
    adapt(model, config, CPU)
    if backend:
        torch._dynamo.reset()
        compile_layers(model, config.memory.budget, backend)
    assert list(model.state_dict()) == names
    tokens = torch.randint(0, 96, (4, 24), generator=torch.Generator().manual_seed(1))
    documents = (torch.arange(24) > 9).long().expand(4, -1)
    kept: KEPT = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with autocast(config, CPU), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(tokens, tokens, documents)
    loss.sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), gradients, sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize(("has", "precision"), [("avx512_bf16", "bf16"), ("avx2", "fp32"), ("", "fp32")])
def test_auto_is_bf16_where_the_cpu_computes_in_it(
    has: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, has: True})
    assert automatic(CPU) == precision


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model.preset": "gpt2"},
        {"memory.checkpointing": "full"},
        {"memory.checkpointing": "selective", "model.moe": MOE},
    ],
    ids=str,
)
def test_layers_are_traced_whole_with_the_gradients_of_eager_ones(
    config: Callable[..., Any], settings: dict[str, Any]
) -> None:
    """By parameter: an equal loss would not show a gradient that is lost at the edge of what is compiled."""
    eager = losses_and_gradients(config(**settings))
    traced = losses_and_gradients(config(**settings), "aot_eager")
    torch.testing.assert_close(traced[0], eager[0], rtol=1e-5, atol=1e-6)
    assert traced[1].keys() == eager[1].keys() and len(eager[1]) >= 20
    for name, gradient in eager[1].items():
        assert error(traced[1][name], gradient) < 1e-5, name


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_compiler_gives_the_gradients_of_eager_layers_and_keeps_to_its_budget(
    config: Callable[..., Any],
) -> None:
    eager = losses_and_gradients(config())
    kept = []
    for memory in ({"checkpointing": "selective"}, {"checkpointing": "budget", "budget": 0.2}, {}):
        compiled = losses_and_gradients(config(compile=True, memory=memory), None if memory else "inductor")
        torch.testing.assert_close(compiled[0], eager[0], rtol=1e-5, atol=1e-6)
        assert compiled[1].keys() == eager[1].keys() and len(eager[1]) == 20
        for name, gradient in eager[1].items():
            assert error(compiled[1][name], gradient) < 1e-5, (name, memory)
        kept.append(compiled[2])
    assert kept[1] < 0.7 * kept[2] < 0.7 * eager[2]


def test_equal_layers_share_their_code(config: Callable[..., Any]) -> None:
    from torch._dynamo.utils import counters

    counters.clear()
    losses_and_gradients(config(**{"model.layers": 4, "memory.checkpointing": "full"}), "aot_eager")
    # Theirs, and those of the loss, the embeddings, the rotary angles and the last norm.
    assert counters["stats"]["unique_graphs"] == 5


def test_fp8_is_traced_whole(config: Callable[..., Any]) -> None:
    """Where bfloat16 is rounded in another place, 8 bits are too: each is as far from bfloat16 as the other."""
    exact, eager = (losses_and_gradients(config(precision=precision))[1] for precision in ("bf16", "fp8"))
    traced = losses_and_gradients(config(precision="fp8"), "aot_eager")[1]
    for name, gradient in exact.items():
        assert error(traced[name], gradient) < 1.5 * error(eager[name], gradient) + 0.01, name
        assert error(eager[name], gradient) < 0.2, name


def test_layers_are_compiled_on_cuda_unless_the_config_says_else(config: Callable[..., Any]) -> None:
    found = [
        compiles(TrainConfig.model_validate(config(compile=given)), device)
        for given in (None, True, False)
        for device in (CPU, CUDA)
    ]
    assert found == [False, True, True, True, False, False]


def test_what_is_impossible_names_the_key(config: Callable[..., Any]) -> None:
    parsed = TrainConfig.model_validate(config(memory={"checkpointing": "budget", "budget": 0.5}))
    with pytest.raises(
        UserError, match=r"budget is kept by torch.compile, which is off on cpu: set compile to true"
    ):
        adapt(Decoder(parsed.model, 96), parsed, CPU)
    assert type(offload_policy(MemoryConfig(offload="optimizer"))).__name__ == "CPUOffloadPolicy"
    assert type(offload_policy(MemoryConfig())).__name__ == "OffloadPolicy"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp17"}, "precision: 'fp17' is not allowed"),
        ({"loss_scale": {"floor": 4.0}}, "loss_scale: has no effect with precision fp32: leave it out"),
        ({"precision": "fp16", "loss_scale": {"floor": 4, "initial": 2}}, "lower floor to 2"),
        (
            {"memory": {"checkpointing": "budget"}},
            "memory: checkpointing budget needs a budget: set budget to 0.5",
        ),
        ({"memory": {"budget": 0.5}}, "budget: has no effect with checkpointing none"),
        ({"memory": {"checkpointing": "budget", "budget": 0.5}, "compile": False}, "set compile to true"),
        ({"memory": {"offload": "optimizer"}}, "parallel.zero is 0: set it to 1, 2 or 3"),
        (
            {"memory": {"auto_micro_batch": True}, "parallel": {"tensor": 2}},
            "memory.auto_micro_batch: processes of this layout wait for each other",
        ),
        ({"memory": {"ofload": "none"}}, "did you mean 'offload'?"),
    ],
)
def test_impossible_configs_name_what_to_change(
    config: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        validate(TrainConfig, config(**settings), "c.yaml")
    assert message in str(error.value) and str(error.value).startswith("c.yaml: ")


def test_a_run_may_go_on_with_other_memory_but_not_in_other_types(config: Callable[..., Any]) -> None:
    before, after = (
        TrainConfig.model_validate(config(precision=precision, compile=how, memory={"checkpointing": kind}))
        for precision, how, kind in (("bf16", False, "none"), ("fp16", True, "full"))
    )
    assert changed(before.model_dump(), after.model_dump()) == ["precision: bf16 -> fp16"]


def test_products_of_float32_round_to_tf32_on_cuda_unless_the_config_says_else(
    config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    for settings in ({}, {"tf32": True}, {"tf32": False}):
        parsed = TrainConfig.model_validate(config(**settings, compile=False))
        for device in (CPU, CUDA):
            adapt(Decoder(parsed.model, 96), parsed, device)
    assert asked == ["high", "high", "highest"]
    before = TrainConfig.model_validate(config()).model_dump()
    assert (
        changed({k: v for k, v in before.items() if k != "tf32"}, before) == []
    )  # runs begun without the key
