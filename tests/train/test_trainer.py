"""A training as a whole: what it writes, what it refuses to save, and the configs that ship."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.conftest import ROOT

Make = Callable[..., dict[str, Any]]


def test_bf16_trains_near_fp32(config: Make, tmp_path: Path) -> None:
    found = {
        precision: train(
            TrainConfig.model_validate(config(precision=precision, output=str(tmp_path / precision)))
        )
        for precision in ("fp32", "bf16")
    }
    assert found["bf16"]["weights_xxh3"] != found["fp32"]["weights_xxh3"]
    assert found["bf16"]["loss"] == pytest.approx(found["fp32"]["loss"], abs=0.05)


@pytest.mark.parametrize(
    ("guarded", "message"),
    [
        (False, r"is not a finite number at step \d+; .* Lower optimizer\.lr"),
        (True, "the guard stopped the run"),
    ],
)
def test_a_loss_that_is_no_number_stops_the_run_and_is_not_saved(
    config: Make, tmp_path: Path, guarded: bool, message: str
) -> None:
    settings = config(**{"optimizer.lr": 1e30, "optimizer.grad_clip": None, "checkpoint.every": 1})
    settings["guard"] = {"enabled": guarded}
    with pytest.raises(WorkError, match=message):
        train(TrainConfig.model_validate(settings))
    for file in Path(tmp_path / "run").rglob("state.json"):
        assert all(math.isfinite(x) for row in json.loads(file.read_text())["window"] for x in row)


def test_an_unwritable_output_is_named(config: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError, match=r"file/run"):
        train(TrainConfig.model_validate(config(output=str(tmp_path / "file/run"))))


def test_tensorboard_and_metrics_hold_what_is_promised(config: Make, tmp_path: Path) -> None:
    train(TrainConfig.model_validate(config(**{"log.tensorboard": True, "log.every": 7})))
    rows = read_metrics(Folder(tmp_path / "run"))
    assert [row["step"] for row in rows] == [7, 10, 14, 20]
    assert rows[1]["validation"].keys() == rows[1]["loss_per_source"].keys() == {"wiki", "books", "code"}
    assert rows[0]["mfu"] is None and rows[0]["tokens"] == 7 * 8 * 24 and rows[0]["memory_mib"] > 1
    assert 0 <= rows[0]["loader_stall"] <= 1 and rows[0]["grad_norm"] > 0 and rows[0]["update_norm"] > 0
    weighted = sum(
        rows[0]["loss_per_source"][s] * w for s, w in (("wiki", 0.5), ("books", 0.25), ("code", 0.25))
    )
    assert rows[0]["loss"] == pytest.approx(weighted)
    assert list((tmp_path / "run/tensorboard").glob("events*"))


@pytest.mark.parametrize("name", ["quickstart", "quickstart-s3"])
def test_the_shipped_configs_are_valid(name: str) -> None:
    config = load(TrainConfig, ROOT / f"configs/train/{name}.yaml")
    assert set(config.data.weights) == {"wiki", "books", "speeches", "docs", "qa", "code"}
    assert sum(config.data.weights.values()) == pytest.approx(1)


def test_the_s3_config_differs_in_its_urls_alone() -> None:
    local, remote = (
        load(TrainConfig, ROOT / f"configs/train/{name}.yaml").model_dump()
        for name in ("quickstart", "quickstart-s3")
    )
    for config in (local, remote):
        del config["name"], config["output"], config["data"]["shards"], config["log"]["tensorboard"]
    assert local == remote
