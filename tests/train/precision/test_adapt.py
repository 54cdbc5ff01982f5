"""What a config asks for is done in order, or refused by name; compiled layers have the gradients of eager ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from schemas.config import validate
from schemas.errors import UserError
from schemas.precision import MemoryConfig
from schemas.training import TrainConfig, changed
from train.model.decoder import Decoder
from train.precision.adapt import adapt, compiles, offload_policy

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def losses_and_gradients(settings: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    config = TrainConfig.model_validate(settings)
    model = Decoder(config.model, 96, config.seed)
    names = list(model.state_dict())
    adapt(model, config, CPU)
    assert list(model.state_dict()) == names
    tokens = torch.randint(0, 96, (4, 24), generator=torch.Generator().manual_seed(1))
    documents = (torch.arange(24) > 9).long().expand(4, -1)
    with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "fp8"):
        loss = model(tokens, tokens, documents)
    loss.sum().backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


MEMORIES: list[dict[str, Any]] = [
    {}, {"checkpointing": "full"}, {"checkpointing": "selective", "offload": "activations"},
    {"checkpointing": "budget", "budget": 0.3},
]  # fmt: skip


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_compiled_layers_have_the_gradients_of_eager_ones(
    config: Callable[..., Any], memory: dict[str, Any]
) -> None:
    """By parameter: an equal loss would not show a gradient that is lost at the edge of what is compiled."""
    torch._dynamo.reset()
    eager = losses_and_gradients(config())
    compiled = losses_and_gradients(config(compile=True, memory=memory))
    torch.testing.assert_close(compiled[0], eager[0], rtol=1e-5, atol=1e-6)
    assert compiled[1].keys() == eager[1].keys() and len(eager[1]) == 20
    for name, gradient in eager[1].items():
        error = float((compiled[1][name] - gradient).norm() / gradient.norm())
        assert error < 1e-5, (name, error)


def test_fp8_compiles_whole(config: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    eager = losses_and_gradients(config(precision="fp8"))
    compiled = losses_and_gradients(config(precision="fp8", compile=True))
    for name, gradient in eager[1].items():
        error = float((compiled[1][name] - gradient).norm() / gradient.norm())
        assert error < 0.05, (name, error)  # what is rounded to 8 bits was not rounded to 16 before


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
    offload = MemoryConfig(offload="optimizer")
    with pytest.raises(UserError, match=r"memory.offload: optimizer .* set the ZeRO stage to 1"):
        offload_policy(offload, zero=0)
    assert type(offload_policy(offload, zero=1)).__name__ == "CPUOffloadPolicy"
    assert type(offload_policy(MemoryConfig(), zero=0)).__name__ == "OffloadPolicy"


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
