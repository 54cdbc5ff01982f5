"""Preferences as an objective: the same in every layout, learnt from pairs, resumed to the bit, and refused where they have no meaning."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.shards import Target
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.finetune.objective import make_objective
from corpusmill.train.finetune.preference import Preference
from corpusmill.train.finetune.start import starting_model
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.adapters import adapted
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import build
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.finetune.models import base_model, config_of, lines
from tests.train.finetune.objectives import LAYOUTS, OBJECTIVES, made_in

WORDS = ("the", "in", "winter", "thin", "her", "rather", "inner", "other", "ether", "weather")


@pytest.mark.parametrize("loss", OBJECTIVES)
def test_every_objective_is_the_same_in_every_layout(loss: str) -> None:
    done = launch(4, "tests.train.finetune.objectives", loss)
    agreed = [line for line in done.stdout.splitlines() if line.endswith(": agrees")]
    wanted = [f"{loss}, {name}: agrees" for name in LAYOUTS if made_in(loss, name)]
    assert agreed == wanted, done.stdout + done.stderr
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
    # Each answer is followed by one to another prompt, from which the divergence is estimated.
    blocks = all_blocks(next(iter(open_run_data(TrainConfig.model_validate(config)).train.values())))
    kinds = [block.targets for block in blocks if block.targets is not None]
    assert Target.unrelated in np.concatenate(kinds)
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


def test_with_an_adapter_the_reference_is_the_model_without_it(tmp_path: Path) -> None:
    config = tuned(tmp_path, pairs(16), **{"objective.loss": "dpo", "adapter.rank": 4, "adapter.dora": True})
    checked = TrainConfig.model_validate(config)
    shards, plain = open_run_data(checked), checked.model_copy(update={"adapter": None})
    model, frozen = (build(one, shards.set.vocab_size, World()) for one in (checked, plain))
    start = starting_model(checked, shards.set.vocab_size, shards.tokenizer())
    model.load_whole(start.state_dict())
    frozen.load_whole(starting_model(plain, shards.set.vocab_size, shards.tokenizer()).state_dict())
    rows = list(sample(shards.train["pairs"], 64, 512))
    own = make_objective(checked, model, shards, World())
    assert own is not None and own.reference is model and checked.objective is not None
    other = Preference(checked.objective, model, frozen, World())
    assert own.evaluate(rows) == other.evaluate(rows) and own.evaluate(rows).loss == pytest.approx(
        math.log(2)
    )
    with torch.no_grad():
        for linear in adapted(model.parts[0]).values():
            linear.lora_b.normal_(std=0.3)
    assert own.evaluate(rows) == other.evaluate(rows) and own.evaluate(rows).loss != pytest.approx(
        math.log(2)
    )
    assert all(linear.active for linear in adapted(model.parts[0]).values())


def test_an_adapter_learns_what_is_preferred_and_the_next_run_starts_from_it_merged(tmp_path: Path) -> None:
    given = {"objective.loss": "dpo", "adapter.rank": 8, "schedule.steps": 60, "optimizer.lr": 1e-2}
    config = TrainConfig.model_validate(
        tuned(tmp_path, pairs(), **given, **{"data.global_batch": 4, "data.micro_batch": 4})
    )
    train(config)
    assert read_metrics(Folder(config.output))[-1]["preference"]["accuracy"] > 0.95
    again = tuned(tmp_path, pairs(), **{"output": str(tmp_path / "next"), "init_from": config.output})
    following = TrainConfig.model_validate(again)
    shards = open_run_data(following)
    start = starting_model(following, shards.set.vocab_size, shards.tokenizer())
    merged = load_model(
        config, newest_checkpoint(Folder(config.output)), shards.set.vocab_size, torch.device("cpu")
    )
    for name, value in merged.state_dict().items():
        assert torch.equal(start.state_dict()[name], value)


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
