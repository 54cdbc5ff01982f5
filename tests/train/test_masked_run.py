"""Runs of masked models and with gaps: what they learn, restarts at every step, scores, export, and what they refuse."""

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
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.conftest import VOCAB, write_shards
from tests.train.data.test_infill import SPECIALS
from tests.train.restarts import crashed_at_every_step, killed_in_two_processes
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]
MASKED = {"model.causal": False, "data.masking": {"whole_words": False}}
INFILL = {"data.infill": {"rate": 0.8}}


@pytest.fixture(scope="module")
def special_shards(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_shards(
        Folder(tmp_path_factory.mktemp("special") / "shards"), specials=("<|mask|>", *SPECIALS)
    )


@pytest.fixture
def make(config: Make, special_shards: Folder) -> Make:
    return lambda **settings: config(**{"data.shards": special_shards.url, **settings})


def test_a_masked_model_starts_at_chance(make: Make, tmp_path: Path) -> None:
    train(TrainConfig.model_validate(make(**MASKED, **{"optimizer.lr": 1e-9, "model.vocab_multiple": 1})))
    rows = read_metrics(Folder(tmp_path / "run"))
    losses = [row["loss"] for row in rows]
    assert sum(losses) / len(losses) == pytest.approx(math.log(VOCAB + 4), rel=0.01)


def test_a_masked_model_learns(make: Make, tmp_path: Path) -> None:
    more = {
        **MASKED,
        "data.masking": {"share": 0.3, "whole_words": False},
        "model.window": 8,
        "model.global_every": 2,
    }
    more |= {"data.weights": {"code": 1}, "schedule.steps": 150, "optimizer.ema": 0.9, "optimizer.lr": 1e-2}
    found = train(TrainConfig.model_validate(make(**more, **{"model.vocab_multiple": 1})))
    rows = read_metrics(Folder(tmp_path / "run"))
    last = [row["loss"] for row in rows[-10:]]
    assert sum(last) / len(last) < rows[0]["loss"] - 0.5
    assert set(found["validation"]) == set(found["validation_ema"]) == {"wiki", "books", "code"}


KINDS: dict[str, dict[str, Any]] = {
    "masked": MASKED, "infill": INFILL,
    "layers": {
        "model.window": 5, "model.global_every": 2, "model.nope_every": 2, "model.attention_sinks": True, "model.logit_softcap": 8.0,
        "model.value_residual": True, "model.mup_base_width": 16, "optimizer.hypergradient": {"rate": 0.2},
        "validation.patience": 9,
    },
    "latent": {
        "model.kv_heads": None,
        "model.mla": {"kv_rank": 12, "q_rank": 20, "nope_head_dim": 8, "rope_head_dim": 4, "value_head_dim": 8}, "model.dropout": 0.1,
        "model.window": 5, "model.global_every": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_at_any_step_ends_the_same(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    more = {
        **KINDS[kind],
        "schedule.steps": 6,
        "checkpoint.every": 1,
        "validation.every": 2,
        "optimizer.ema": 0.9,
    }
    settings = make(**more)
    wanted = crashed_at_every_step(settings, tmp_path, monkeypatch)
    assert ("validation_infill" in wanted[1][-1]) == (kind == "infill")


@pytest.mark.parametrize("parallel", [{"context": 2}, {"zero": 2}])
def test_processes_that_are_killed_end_the_same(make: Make, tmp_path: Path, parallel: dict[str, int]) -> None:
    """By SIGKILL, in the seventh step of both; checkpoints are of every second step."""
    more = {
        **MASKED,
        "model.window": 6,
        "model.global_every": 2,
        "data.micro_batch": 2,
        "optimizer.ema": 0.9,
        "parallel": parallel,
    }
    more |= {"schedule.steps": 8, "checkpoint.every": 2, "validation.every": 4}
    killed_in_two_processes(make, more, tmp_path)


def test_two_processes_train_the_model_of_one(make: Make, tmp_path: Path) -> None:
    more = {**MASKED, "schedule.steps": 6, "model.window": 4, "data.masking": {}}
    alone = train(TrainConfig.model_validate(make(**more)))
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(make(**more, output=str(tmp_path / "two"), **{"parallel.zero": 2})))
    done = launch(2, "corpusmill", "train", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    both = json.loads((tmp_path / "two/result.json").read_text())
    assert both["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert both["validation"] == pytest.approx(alone["validation"], rel=1e-5)


def test_gaps_are_filled_and_the_plain_text_stays_predicted(make: Make, tmp_path: Path) -> None:
    settings = make(**INFILL, **{"schedule.steps": 60, "optimizer.lr": 1e-2, "data.sequence_length": 48})
    found = train(TrainConfig.model_validate(settings))
    rows = read_metrics(Folder(tmp_path / "run"))
    first = next(row for row in rows if "validation_infill" in row)
    for name in ("wiki", "books", "code"):
        assert found["validation_infill"][name] < first["validation_infill"][name] - 0.1
        assert found["validation"][name] < first["validation"][name] - 0.1


def test_a_masked_run_is_evaluated_exported_and_continued_from_and_generates_nothing(
    make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    settings = make(**MASKED, **{"schedule.steps": 5})
    file.write_text(json.dumps(settings))
    train(TrainConfig.model_validate(settings))
    printed = command("evaluate", str(file))
    found = json.loads((tmp_path / "run/evaluation.json").read_text())
    assert found["end_of_document"] == "given" and "compare masked models alone" in " ".join(printed.split())
    assert 0 < found["all_sources"]["loss"] < math.log(VOCAB + 8)
    out = tmp_path / "out"
    assert "EuroBertForMaskedLM of step 5" in command("export", str(file), str(out))
    config, tokens = (json.loads((out / n).read_text()) for n in ("config.json", "tokenizer_config.json"))
    assert config["mask_token_id"] == VOCAB and tokens["mask_token"] == "<|mask|>"
    assert not (out / "generation_config.json").exists()
    kept = checkpoint.load_newest(Folder(tmp_path / "run"))
    assert kept is not None
    weights = checkpoint.read_tensors(kept)
    assert torch.equal(load_file(out / "model.safetensors")["model.norm.weight"], weights["norm.weight"])
    again = make(
        **MASKED,
        **{
            "schedule.steps": 1,
            "init_from": str(out),
            "output": str(tmp_path / "again"),
            "optimizer.lr": 1e-9,
        },
    )
    first = train(TrainConfig.model_validate({**settings, "output": str(tmp_path / "run")}))
    second = train(TrainConfig.model_validate(again))
    assert second["validation"] == pytest.approx(first["validation"], rel=1e-4)
    with pytest.raises(UserError, match="is a masked language model, which knows no next token"):
        command("generate", str(tmp_path / "run"), "--prompt", "x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.masking": {}}, "data.masking: hidden tokens are seen from both sides: set model.causal to false"),
        ({"model.causal": False}, "model.causal: false: a position would see the token that it predicts: set data.masking"),
        ({**MASKED, "distillation": {"teacher": "runs/x"}}, "distillation: is for models that predict the next token"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(make: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        validate(TrainConfig, make(**settings), "train.yaml")
    assert message in str(error.value)
