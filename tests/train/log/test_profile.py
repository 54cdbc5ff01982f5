"""Traces of the steps that were asked for, from every process, and a run that is the same with them and without."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.test_resume import outcome


def steps_in(file: Path) -> list[str]:
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert any(event.get("name") == "aten::mm" for event in events)
    return sorted({event["name"] for event in events if str(event.get("name")).startswith("step ")})


def test_two_processes(write_config: Callable[..., Path], tmp_path: Path) -> None:
    settings = {"validation.every": None, "data.micro_batch": 2, "schedule.steps": 12}
    done = launch(2, "corpusmill.train", write_config(**settings), "--profile", "6:8")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run/profile/steps-6-8"
    assert sorted(file.name for file in folder.iterdir()) == [
        "operators.txt",
        "rank-0.json.gz",
        "rank-1.json.gz",
    ]
    for rank in range(2):
        assert steps_in(folder / f"rank-{rank}.json.gz") == ["step 6", "step 7", "step 8"]
    table = (folder / "operators.txt").read_text()
    assert "aten::mm" in table and "Self CPU" in table and len(table.splitlines()) < 35
    assert f"profile of steps 6 to 8: {folder}" in done.stderr
    plain = launch(2, "corpusmill.train", write_config(**settings, output=str(tmp_path / "plain")))
    assert plain.returncode == 0
    assert outcome(str(tmp_path / "run"), 12) == outcome(str(tmp_path / "plain"), 12)


def test_a_start_in_the_middle_and_a_range_beyond_the_end(
    config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    settings = {"validation.every": None, "schedule.steps": 8}
    train(TrainConfig.model_validate(config(**settings, stop_after=5)))
    assert not (tmp_path / "run/profile").exists()
    train(TrainConfig.model_validate(config(**settings, **{"log.profile": "3:20"})))
    assert steps_in(tmp_path / "run/profile/steps-6-8/rank-0.json.gz") == ["step 6", "step 7", "step 8"]


def test_a_wrong_range_is_refused(config: Callable[..., dict[str, Any]]) -> None:
    for value in ("8:6", "0:3", "6", "a:b"):
        with pytest.raises(UserError, match=r"log\.profile|profile: 8:6"):
            validate(TrainConfig, config(**{"log.profile": value}), "c.yaml")
