"""What an adapter cannot be trained with is refused in one line that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig


def config(**more: Any) -> TrainConfig:
    given = {"name": "x", "data": {"shards": "-"}, "init_from": "model/", "adapter": {}, **more}
    return validate(TrainConfig, given, "train.yaml")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"init_from": None}, "adapter: it would be trained on random weights: set init_from"),
        ({"model": {"moe": {"experts": 4}}}, "adapter: model.moe keeps its experts in stacks"),
        ({"precision": "fp8"}, "adapter: precision fp8 rounds the frozen weights"),
        ({"adapter": {"targets": ["gate"]}, "model": {"activation": "gelu"}}, "model.activation gelu has no gate"),
        ({"adapter": {"targets": ["kv_a"]}}, "targets: this model's layers have no kv_a: leave it out (they have q, k, v, o, gate, up, down)"),
        ({"adapter": {"targets": ["k"]}, "model": {"mla": {}}}, "no k: leave it out (they have q, kv_a, kv_b, o, gate, up, down)"),
        ({"adapter": {"kind": "prefix", "tokens": 4}, "model": {"mla": {}}, "data": {"shards": "-", "conversations": {}}}, "adapter: kind: prefix trains"),
        ({"adapter": {"quantise": "nf4"}, "model": {"mla": {"q_rank": 96, "kv_rank": 64}}}, "quantise: model.mla.q_rank of 96, the inputs of q_b"),
        ({"adapter": {"targets": ["q", "v", "q"]}}, "targets: q is named twice"),
        ({"adapter": {"targets": ["head"]}}, "adapter.targets"),
        ({"adapter": {"targets": []}}, "adapter.targets"),
        ({"adapter": {"rank": 0}}, "adapter.rank"),
        ({"adapter": {"dropout": 0.1}}, "dropout"),
    ],
)  # fmt: skip
def test_the_impossible_is_refused_by_its_key(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        config(**more)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_scale_and_targets() -> None:
    assert config().adapter == AdapterConfig()
    assert (
        AdapterConfig(rank=16, alpha=8.0).scale == 0.5
        and AdapterConfig(rank=16, alpha=8.0, rslora=True).scale == 2
    )
    assert AdapterConfig().targets_of(ModelConfig()) == ("q", "k", "v", "o", "gate", "up", "down")
    assert AdapterConfig().targets_of(ModelConfig(activation="gelu")) == ("q", "k", "v", "o", "up", "down")
    assert AdapterConfig(targets=["up", "q"]).targets_of(ModelConfig()) == ("q", "up")
