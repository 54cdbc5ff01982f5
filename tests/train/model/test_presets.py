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


def test_no_preset_is_left_out() -> None:
    assert {Path(file).stem for file in FOLDER.glob("*.yaml")} == {*SIZES, "quickstart", "quickstart-s3"}
