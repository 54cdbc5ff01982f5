"""Runs with multi-token prediction: they learn, are killed at any step, are scored, exported, tuned on and generated from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.hugging_face import load_weights
from corpusmill.train.trainer import train
from tests.train.conftest import VOCAB, tokenizer_json
from tests.train.restarts import crashed_at_every_step, killed_in_two_processes
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]
MTP = {"model.mtp": 2, "model.mtp_weight": 0.5}


def rows_of(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return read_metrics(Folder(settings["output"]))


def test_it_learns_the_tokens_after_the_next_too(config: Make, tmp_path: Path) -> None:
    settings = config(**MTP, **{"schedule.steps": 120, "optimizer.lr": 1e-2}, output=str(tmp_path / "run"))
    result = train(TrainConfig.model_validate(settings))
    rows = rows_of(settings)
    # Places without such a token count as 0, so that it begins below chance.
    assert 0.5 * math.log(VOCAB) < rows[0]["loss_mtp"] < math.log(VOCAB + 40)
    last = sum(row["loss_mtp"] for row in rows[-5:]) / 5
    assert last < rows[0]["loss_mtp"] - 0.3
    # The loss is that of the next token, as the validation is, which is not that of three heads.
    assert rows[-1]["loss"] == pytest.approx(sum(result["validation"].values()) / 3, rel=0.3)
    plain = config(
        **{"schedule.steps": 120, "optimizer.lr": 1e-2, "stop_after": 1}, output=str(tmp_path / "plain")
    )
    train(TrainConfig.model_validate(plain))
    assert rows_of(plain)[0]["loss"] == pytest.approx(rows[0]["loss"], rel=1e-6)
    assert "loss_mtp" not in rows_of(plain)[0]


def test_a_run_that_is_killed_at_any_step_ends_the_same(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {
        **MTP,
        "model.dropout": 0.1,
        "schedule.steps": 6,
        "checkpoint.every": 1,
        "validation.every": 2,
        "optimizer.ema": 0.9,
    }
    settings = config(**more, output=str(tmp_path / "run"))
    wanted = crashed_at_every_step(settings, tmp_path, monkeypatch)
    assert all(row["loss_mtp"] > 0 for row in wanted[1])


@pytest.mark.parametrize("parallel", [{"tensor": 2}, {"zero": 3}])
def test_processes_that_are_killed_end_the_same(
    config: Make, tmp_path: Path, parallel: dict[str, int]
) -> None:
    """By SIGKILL, in the seventh step of both; checkpoints are of every second step."""
    more = {
        **MTP,
        "data.micro_batch": 2,
        "schedule.steps": 8,
        "checkpoint.every": 2,
        "validation.every": 4,
        "parallel": parallel,
    }
    killed_in_two_processes(config, more, tmp_path)


def test_what_comes_after_leaves_the_further_layers_out(config: Make, tmp_path: Path) -> None:
    settings = config(
        **MTP, **{"schedule.steps": 4, "schedule.warmup_steps": 1}, output=str(tmp_path / "run")
    )
    train(TrainConfig.model_validate(settings))
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(settings))
    shown = command("export", str(file), str(tmp_path / "out"))
    assert "note: left out: model.mtp: 2 layers for further tokens" in shown
    plain = config(**{"schedule.steps": 4, "schedule.warmup_steps": 1}, output=str(tmp_path / "tuned"))
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert not any("mtp" in name for name in tensors)
    found = checkpoint.load_newest(Folder(settings["output"]), {})
    assert found is not None
    kept = checkpoint.read_tensors(found)
    made = TrainConfig.model_validate(plain).model
    model, again = (Decoder(made, VOCAB) for _ in range(2))
    model.load_state_dict({name: value for name, value in kept.items() if not name.startswith("mtp.")})
    load_weights(again, Folder(tmp_path / "out"), tokenizer_json())
    ids = torch.arange(20)[None]
    assert torch.equal(model.eval()(ids), again.eval()(ids))
    with pytest.raises(UserError, match="model.mtp: .* has no layers for further tokens"):
        load_weights(
            Decoder(TrainConfig.model_validate(settings).model, VOCAB),
            Folder(tmp_path / "out"),
            tokenizer_json(),
        )
    # A run may start from it, with or without the layers.
    for more in ({}, MTP):
        started = config(
            **more,
            **{"schedule.steps": 2, "schedule.warmup_steps": 1, "init_from": settings["output"]},
            output=str(tmp_path / f"next-{len(more)}"),
        )
        train(validate(TrainConfig, started, "config"))
        assert ("loss_mtp" in rows_of(started)[0]) == bool(more)
    with pytest.raises(UserError, match="model.mtp is None there and 2 here"):
        train(
            validate(
                TrainConfig,
                config(**MTP, init_from=str(tmp_path / "next-0"), output=str(tmp_path / "x")),
                "config",
            )
        )
    with pytest.raises(UserError, match="model.mtp: layers for further tokens are not compressed"):
        command("compress", str(file), str(tmp_path / "small"), "--method", "int8")


def test_the_weight_may_change_where_a_run_says_so(config: Make, tmp_path: Path) -> None:
    """As DeepSeek-V3 lowers it towards the end."""
    settings = config(
        **MTP,
        **{"schedule.steps": 4, "schedule.warmup_steps": 1, "stop_after": 2},
        output=str(tmp_path / "run"),
    )
    train(TrainConfig.model_validate(settings))
    later = {**settings, "stop_after": None, "model": {**settings["model"], "mtp_weight": 0.1}}
    with pytest.raises(UserError, match="model.mtp_weight: 0.5 -> 0.1"):
        train(TrainConfig.model_validate(later))
    train(TrainConfig.model_validate({**later, "may_change": ["model.mtp_weight"]}))
    assert [row["step"] for row in rows_of(settings)] == [1, 2, 3, 4]
