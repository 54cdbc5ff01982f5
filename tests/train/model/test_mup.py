"""muP: a coordinate check over widths (Yang et al. 2022, appendix D.1), nothing else at the base's width, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench._coordinates import over_widths, slope
from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer

SEEDS = 3


def slopes(mup: bool, optimizer: dict[str, Any], **more: Any) -> dict[str, float]:
    """Of each output's change over the width, in logarithms."""
    seeds = 1 if optimizer.get("kind") == "muon" else SEEDS  # which is slow, and even
    return {name: slope(values) for name, values in over_widths(mup, optimizer, seeds, **more).items()}


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ({}, {}),
        ({}, {"tie_embeddings": False, "heads": 4, "mup_base_head_dim": 16}),
        ({"kind": "muon"}, {"tie_embeddings": False}),
        ({"kind": "muon", "muon_scale": "original"}, {"tie_embeddings": False}),
        ({"kind": "lion", "lr": 1e-3}, {}),
    ],
    ids=["adamw", "adamw, larger heads", "muon", "muon as Jordan", "lion"],
)
def test_coordinates_move_as_much_at_every_width(optimizer: dict[str, Any], more: dict[str, Any]) -> None:
    """Flat with muP; without it the logits, and every half of a layer, change the more the wider the model."""
    flat = slopes(True, optimizer, **more)
    assert len(flat) == 5 and all(abs(slope) < 0.15 for slope in flat.values()), flat
    steep = slopes(False, optimizer, **{**more, "mup_base_head_dim": None})
    assert all(slope > 0.4 for slope in steep.values()), steep


@pytest.mark.parametrize("kind", ["adamw", "muon", "lion"])
def test_at_the_bases_width_nothing_changes(kind: Any) -> None:
    ids = torch.arange(60).view(3, 20) % 50
    found = []
    for more in ({}, {"mup_base_width": 32, "mup_base_head_dim": 8}):
        model = Decoder(ModelConfig(dim=32, layers=2, heads=4, ffn_dim=48, vocab_multiple=8, **more), 50)
        optimizer = make_optimizer(model, OptimizerConfig(kind=kind))
        for _ in range(2):
            model(ids, ids.roll(-1, 1)).sum().backward()
            optimizer.step()
        found.append({**model.state_dict(), "logits": model(ids)})
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def test_rates_and_decay_of_groups() -> None:
    """Hidden matrices have a rate divided by the width's ratio, and what decays in a step stays; nothing else changes."""
    model = Decoder(
        ModelConfig(dim=64, layers=2, heads=4, tie_embeddings=False, mup_base_width=16, moe={"experts": 2}),
        50,
    )
    names = {parameter: name for name, parameter in model.named_parameters()}

    def groups(**settings: Any) -> dict[str, tuple[float, float]]:
        made = make_optimizer(model, OptimizerConfig(lr=1.0, weight_decay=0.5, **settings))
        return {names[p]: (g["lr"], g["weight_decay"]) for g in made.param_groups for p in g["params"]}

    hidden = ("attention.q.weight", "ffn.router.weight", "ffn.up", "ffn.down")
    for settings, ratio in (({}, 4.0), ({"kind": "lion"}, 4.0), ({"kind": "muon"}, 2.0)):
        found = groups(**settings)
        assert {found[f"layers.1.{name}"] for name in hidden} == {(1 / ratio, 0.5 * ratio)}
        assert found["head.weight"] == (1.0, 0.5)
        assert found["embedding.weight"] == found["norm.weight"] == (1.0, 0.0)
    assert groups(kind="muon", muon_scale="original")["layers.1.ffn.up"] == (1.0, 0.5)
    narrow = Decoder(ModelConfig(dim=64, layers=2, heads=4, tie_embeddings=False, moe={"experts": 2}), 50)
    for name, ratio in (("attention.q.weight", 0.5), ("ffn.down", 0.5), ("ffn.router.weight", 0.25)):
        name = f"layers.0.{name}"
        torch.testing.assert_close(model.get_parameter(name), narrow.get_parameter(name) * ratio)
    for name in ("embedding.weight", "head.weight"):
        assert torch.equal(model.get_parameter(name), narrow.get_parameter(name))


@pytest.mark.parametrize("kind", ["sgd", "lamb", "adafactor"])
def test_optimizers_with_other_rules_are_refused(kind: str) -> None:
    given = {
        "name": "x",
        "data": {"shards": "-"},
        "model": {"mup_base_width": 64},
        "optimizer": {"kind": kind},
    }
    with pytest.raises(UserError, match=f"optimizer.kind is {kind}"):
        validate(TrainConfig, given, "c.yaml")


def test_a_head_size_of_the_base_needs_its_width() -> None:
    with pytest.raises(UserError, match="mup_base_head_dim 16 goes with mup_base_width"):
        validate(ModelConfig, {"mup_base_head_dim": 16}, "c.yaml")
