"""Preferences as an objective: the same in every layout, learnt from pairs, resumed to the bit, and refused where they have no meaning."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.finetune.models import base_model, config_of, lines
from tests.train.finetune.objectives import LAYOUTS, OBJECTIVES

WORDS = ("the", "in", "winter", "thin", "her", "rather", "inner", "other", "ether", "weather")


def test_every_objective_is_the_same_in_every_layout() -> None:
    done = launch(4, "tests.train.finetune.objectives")
    agreed = [line for line in done.stdout.splitlines() if line.endswith(": agrees")]
    assert agreed == [f"{loss}, {name}: agrees" for loss in OBJECTIVES for name in LAYOUTS], (
        done.stdout + done.stderr
    )
    assert done.returncode == 0


def pairs(count: int = 64) -> list[dict[str, Any]]:
    """Answers in upper case are preferred."""
    texts = [f"{WORDS[n % 10]} {WORDS[n * 7 // 10 % 10]}" for n in range(count)]
    return [{"prompt": f"say {text}", "chosen": text.upper(), "rejected": text} for text in texts]


def tuned(place: Path, rows: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    start = base_model(place / "base")
    data = lines(place / "pairs.jsonl", rows)
    return config_of(place, data, start, **{"optimizer.lr": 1e-3, **settings})


@pytest.mark.parametrize("loss", ["dpo", "orpo", "simpo"])
def test_what_is_preferred_is_learnt(tmp_path: Path, loss: str) -> None:
    config = tuned(
        tmp_path,
        pairs(),
        **{"objective.loss": loss, "schedule.steps": 60, "data.global_batch": 4, "data.micro_batch": 4},
    )
    train(TrainConfig.model_validate(config))
    rows = read_metrics(Folder(config["output"]))
    first, last = rows[0], rows[-1]
    assert last["preference"]["accuracy"] > 0.95 and last["preference"]["margin"] > 0
    held_out = last["validation_preference"]["pairs"]
    assert held_out["accuracy"] > 0.9 and set(held_out) == {
        "accuracy",
        "margin",
        "chosen_logprob",
        "rejected_logprob",
    }
    assert last["loss"] < first["loss"] and math.isfinite(last["validation"]["pairs"])
    if loss == "dpo":  # the reference is the model that it starts from
        fresh = train(
            TrainConfig.model_validate(
                {**config, "output": str(tmp_path / "one"), "stop_after": 1, "log": {"every": 1}}
            )
        )
        assert fresh["loss"] == pytest.approx(math.log(2), abs=1e-6)


def test_kto_learns_from_single_answers(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": one["prompt"]}],
            "completion": one[kind],
            "label": kind == "chosen",
        }
        for one in pairs(48)
        for kind in ("chosen", "rejected")
    ]
    config = tuned(tmp_path, rows, **{"objective.loss": "kto", "schedule.steps": 40})
    train(TrainConfig.model_validate(config))
    rows_of_metrics = read_metrics(Folder(config["output"]))
    last = rows_of_metrics[-1]["preference"]
    assert last["margin"] > 0 and last["wanted_reward"] > last["unwanted_reward"]
    assert rows_of_metrics[-1]["loss"] < 0.5


def test_a_resumed_run_is_the_unbroken_one(tmp_path: Path) -> None:
    config = tuned(tmp_path, pairs(32), **{"objective.loss": "dpo"})
    whole = train(TrainConfig.model_validate(config))
    parts = {**config, "output": str(tmp_path / "parts")}
    train(TrainConfig.model_validate({**parts, "stop_after": 5}))
    again = train(TrainConfig.model_validate(parts))
    assert again["weights_xxh3"] == whole["weights_xxh3"]
    keys = ("step", "loss", "preference", "grad_norm")
    rows = [
        [{key: row[key] for key in keys} for row in read_metrics(Folder(one["output"]))]
        for one in (config, parts)
    ]
    # The row of step 6 begins after the stop's own one.
    assert [row for row in rows[1] if row["step"] > 6] == [row for row in rows[0] if row["step"] > 6]


def test_rows_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    config = tuned(tmp_path, [{"prompt": "a", "completion": "b"}] * 30, **{"objective.loss": "dpo"})
    with pytest.raises(WorkError, match="objective.loss: dpo is of pairs, and the data has other lines too"):
        train(TrainConfig.model_validate(config))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"init_from": None},
            "objective: preferences are lines of answers to a model that was tuned: set init_from",
        ),
        ({"model.z_loss": 1e-4}, "to which model.z_loss adds: leave model.z_loss out"),
        ({"objective.loss": "dop"}, "objective.loss"),
        (
            {"data.packing": "best_fit"},
            "packing: conversations are packed in rows of whole ones: leave packing out",
        ),
        ({"data.cross_documents": True}, "leave cross_documents out"),
    ],
)
def test_configs_without_a_meaning_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    config = config_of(tmp_path, "x.jsonl", "base", **{"objective.loss": "dpo", **settings})
    with pytest.raises(UserError, match=message):
        validate(TrainConfig, json.loads(json.dumps(config)), "config")
