"""One step: accumulation changes nothing; clipping and dropout do what they should; impossible configs name a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data import StreamingTokens
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.step import TrainState, train_step


def state_of(settings: dict[str, Any]) -> TrainState:
    config = TrainConfig.model_validate(settings)
    model = Decoder(config.model, 96, config.seed)
    optimizer = make_optimizer(model, config.optimizer)
    return TrainState(config, ParallelModel([model]), optimizer, torch.zeros(3, 2, dtype=torch.float64))


def gradients(settings: dict[str, Any], shards: Folder) -> dict[str, torch.Tensor]:
    state, found = state_of(settings), {}
    state.optimizer.step = lambda: found.update(  # type: ignore[method-assign]
        {name: p.grad.clone() for name, p in state.model.named_parameters()}
    )
    with StreamingTokens(shards.url, sequence_length=24, global_batch=8, seed=1) as stream:
        batch = dict(next(stream))
    batch["labels"] = batch["labels"].clone()
    batch["labels"][0, :17] = -100  # rows of unequal weight: a mean of means would differ
    train_step(state, batch, float((batch["labels"] >= 0).sum()))
    assert float(state.window[:, 1].sum()) == 8 * 24 - 17
    return found


def test_accumulation_gives_every_parameter_the_same_gradient(
    shards: Folder, config: Callable[..., Any]
) -> None:
    whole = gradients(config(**{"data.micro_batch": 8, "optimizer.grad_clip": None}), shards)
    parts = gradients(config(**{"data.micro_batch": 2, "optimizer.grad_clip": None}), shards)
    assert whole.keys() == parts.keys() and len(whole) == 20
    for name, gradient in whole.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(parts[name], gradient, atol=1e-7, rtol=1e-4, msg=name)


AUXILIARY = {
    "model.z_loss": 1e-2,
    "model.moe": {"experts": 4, "ffn_dim": 32, "balance": "loss", "router_z_loss": 1e-2, "first": 1},
}


def test_accumulation_gives_the_other_losses_the_same_gradient(
    shards: Folder, config: Callable[..., Any]
) -> None:
    """Of a balance over the micro-batch, as most have it, this would not hold."""
    sizes = [{**AUXILIARY, "data.micro_batch": size, "optimizer.grad_clip": None} for size in (8, 2)]
    whole, parts = (gradients(config(**settings), shards) for settings in sizes)
    without = gradients(config(**{**sizes[0], "model.z_loss": 0.0}), shards)
    assert not torch.allclose(without["embedding.weight"], whole["embedding.weight"], atol=1e-5)
    for name, gradient in whole.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(parts[name], gradient, atol=1e-7, rtol=1e-4, msg=name)


def test_biases_move_once_a_step_by_the_load_of_all_micro_batches(
    shards: Folder, config: Callable[..., Any]
) -> None:
    moe = {"experts": 4, "ffn_dim": 32, "bias_rate": 0.25}
    state = state_of(config(**{"model.moe": moe, "data.micro_batch": 2}))
    with StreamingTokens(shards.url, sequence_length=24, global_batch=8, seed=1) as stream:
        metrics = train_step(state, next(stream), 8 * 24.0, collect_stats=True)
    assert metrics.auxiliary is not None
    load = metrics.auxiliary["load"]
    assert load.sum(1).tolist() == [8 * 24 * 2] * 2
    experts = state.model.parts[0].experts
    assert list(experts) == [0, 1]
    for layer, row in zip(experts.values(), load, strict=True):
        assert torch.equal(layer.bias, 0.25 * (96 - row).sign().float())


def test_the_gradient_is_clipped_and_its_norm_reported(shards: Folder, config: Callable[..., Any]) -> None:
    clipped = gradients(config(**{"optimizer.grad_clip": 0.01}), shards)
    norm = torch.stack([g.norm() for g in clipped.values()]).norm()
    torch.testing.assert_close(norm, torch.tensor(0.01), atol=1e-6, rtol=1e-3)


def test_elements_of_the_gradient_are_clipped_by_value_before_its_norm(
    shards: Folder, config: Callable[..., Any]
) -> None:
    def of(**settings: Any) -> dict[str, Any]:
        return gradients(config(**{f"optimizer.{name}": value for name, value in settings.items()}), shards)

    whole = of(grad_clip=None)
    clamped = of(grad_clip=None, grad_clip_value=1e-3)
    assert sum(int((g.abs() > 1e-3).sum()) for g in whole.values()) > 100
    for name, gradient in whole.items():
        assert torch.equal(clamped[name], gradient.clamp(-1e-3, 1e-3))
    both = of(grad_clip=0.01, grad_clip_value=1e-3)
    norm = torch.stack([g.norm() for g in clamped.values()]).norm()
    assert norm > 0.01
    for name, gradient in clamped.items():
        torch.testing.assert_close(both[name], gradient * 0.01 / norm, atol=1e-9, rtol=1e-3)


def test_dropout_is_keyed_by_the_step_not_by_what_ran_before(
    shards: Folder, config: Callable[..., Any]
) -> None:
    settings = config(**{"model.dropout": 0.2})
    first = gradients(settings, shards)
    torch.rand(1000)
    again = gradients(settings, shards)
    assert all(torch.equal(first[name], again[name]) for name in first)
    in_parts = gradients(config(**{"model.dropout": 0.2, "data.micro_batch": 2}), shards)
    for name, gradient in first.items():
        torch.testing.assert_close(in_parts[name], gradient, atol=1e-7, rtol=1e-4)
    other = gradients(config(**{"model.dropout": 0.2, "seed": 8}), shards)
    assert not torch.equal(first["norm.weight"], other["norm.weight"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data.global_batch": 10},
            "data: global_batch 10 is not a multiple of micro_batch 4: set micro_batch to 2",
        ),
        ({"data.micro_batch": 16}, "lower micro_batch to 8"),
        ({"data.weights": {"wiki": -1}}, "weights.wiki: must be a number of 0 or more"),
        ({"data.weights": {"wiki": 0}}, "give at least one source a share"),
        ({"model.dim": 30}, "model: dim 30 is not a multiple of heads 4: set dim to 32"),
        ({"model.dim": 36}, "RoPE rotates pairs: set dim to 40"),
        ({"model.kv_heads": 3}, "set kv_heads to 2"),
        ({"schedule.warmup_steps": 20}, "set warmup_steps to 2"),
        ({"schedule.kind": "wsd", "schedule.decay_share": 1.0}, "set decay_share to 0.8"),
        ({"schedule.kind": "cosin"}, "did you mean 'cosine'?"),
        ({"optimizer.beta": [0.9, 0.9]}, "did you mean 'betas'?"),
        ({"optimizer.betas": [0.9, 1.0]}, "the second must be at least 0 and below 1"),
        (
            {"optimizer.kind": "lion", "optimizer.muon_lr": 0.1},
            "muon_lr: has no effect on lion: leave it out",
        ),
        ({"optimizer.kind": "adagrad"}, "optimizer.kind: 'adagrad' is not allowed"),
        (
            {"schedule.tokens": 1920, "schedule.steps": 20},
            "schedule: steps is 20, and tokens 1920 makes 10 steps: leave one of them out",
        ),
        ({"schedule.warmup_tokens": 5760, "schedule.warmup_steps": 30}, "warmup_steps 30 leaves nothing of"),
        ({"precision": "fp17"}, "precision"),
    ],
)
def test_impossible_configs_name_the_number_to_change(
    config: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        validate(TrainConfig, config(**settings), "c.yaml")
    assert message in str(error.value) and str(error.value).startswith("c.yaml: ")


def test_too_many_processes_name_the_number(
    config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill.train.parallel.mesh import join

    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match=r"micro_batch 4 x 4 processes: set micro_batch to 2"):
        join(TrainConfig.model_validate(config()))
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match=r"data.global_batch: 8 .* set it to 12"):
        join(TrainConfig.model_validate(config()))
