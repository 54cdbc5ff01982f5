"""configs/train: each loads, and has the size that its comment gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.flops import active_weights
from tests.conftest import ROOT

FOLDER = ROOT / "configs/train"
# Vocabulary, and parameters with it. GPT-2 small and Llama 3 8B are to the parameter what was published.
SIZES = {
    "5m": (8_192, 5_048_576),
    "30m": (16_384, 29_041_024),
    "124m": (50_257, 123_587_328),
    "124m-gpt2": (50_257, 124_439_808),
    "500m-moe": (50_257, 500_165_376),
    "350m": (50_257, 355_124_224),
    "1.5b": (50_257, 1_560_116_800),
    "3b": (128_256, 3_212_749_824),
    "8b": (128_256, 8_030_261_248),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_preset_has_the_parameters_that_its_name_says(name: str) -> None:
    config = load(TrainConfig, FOLDER / f"{name}.yaml")
    vocabulary, parameters = SIZES[name]
    with torch.device("meta"):
        model = Decoder(config.model, vocabulary)
    assert model.parameter_count == parameters
    number, unit = float(name.split("-")[0][:-1]), name.split("-")[0][-1]
    assert parameters == pytest.approx(number * {"m": 1e6, "b": 1e9}[unit], rel=0.1)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    active = active_weights(shapes, config.model.moe.top_k if config.model.moe else 0)
    if config.model.moe:
        assert round(active / 1e6) == 137
    assert config.data.global_batch * config.data.sequence_length * config.schedule.steps > 15 * active


def test_the_speedrun_computes_as_much_as_gpt2_small_and_looks_up_the_rest() -> None:
    config = load(TrainConfig, FOLDER / "speedrun-124m.yaml")
    with torch.device("meta"):
        model, small = (
            Decoder(config.model, 50_257),
            Decoder(load(TrainConfig, FOLDER / "124m-gpt2.yaml").model, 50_257),
        )
    active, gpt2 = (active_weights({n: p.shape for n, p in m.named_parameters()}) for m in (model, small))
    assert active == pytest.approx(gpt2, rel=0.005)
    looked_up = sum(p.numel() for n, p in model.named_parameters() if "embedding" in n)
    assert model.parameter_count - looked_up == pytest.approx(active, rel=0.001)
    assert looked_up == 7 * 50_304 * 768


def test_no_preset_is_left_out() -> None:
    others = {
        "quickstart",
        "quickstart-lora",
        "quickstart-s3",
        "speedrun-124m",
        "chat",
        "continue",
        "preferences",
        "reward",
        "grpo",
    }
    assert {Path(file).stem for file in FOLDER.glob("*.yaml")} == {*SIZES, *others}
