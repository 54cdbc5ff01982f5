"""`corpusmill finetune`: from a model to one that answers as its conversations do; resumed, previewed, exported, and refused in one line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.train.finetune.models import base_model, config_of, lines, talk
from tests.train.test_commands import command

WORDS = ("the", "in", "winter", "thin", "her", "rather", "inner", "other")


def rows() -> list[dict[str, Any]]:
    """The answer is the last word."""
    return [talk(f"{a} {b} {c}", c) for a in WORDS for b in WORDS[:2] for c in WORDS]


def config_file(place: Path, **settings: Any) -> Path:
    start = base_model(place / "base")
    made = config_of(place, lines(place / "chat.jsonl", rows()), start, **settings)
    file = place / "chat.yaml"
    file.write_text(json.dumps(made))
    return file


def test_answers_are_learnt_and_the_rest_is_not(tmp_path: Path) -> None:
    file = config_file(tmp_path, **{"schedule.steps": 120, "optimizer.lr": 6e-3, "log.every": 20})
    result = json.loads(command("finetune", str(file), "--json"))
    run = Folder(tmp_path / "run")
    metrics = read_metrics(run)
    assert metrics[-1]["loss"] < 0.6 < metrics[0]["loss"] and result["validation"]["chat"] < 1.0
    assert "im_start" in (run / TEMPLATE).read().decode()
    # Loss and validation are means over answers alone, which are few of the tokens.
    evaluated = json.loads(command("evaluate", run.url, "--json", "--ngram-tokens", "0"))
    labels = evaluated["sources"]["chat"]["tokens"]
    assert evaluated["sources"]["chat"]["loss"] == pytest.approx(result["validation"]["chat"], rel=0.2)
    index = json.loads(_validation_index(run))
    assert labels == index["ntargets"] < index["ntokens"] / 3
    command("export", run.url, str(tmp_path / "out"))
    assert (tmp_path / "out" / TEMPLATE).read_text() == (run / TEMPLATE).read().decode()
    assert "im_start" in json.loads((tmp_path / "out/tokenizer_config.json").read_text())["chat_template"]


def _validation_index(run: Folder) -> bytes:
    (path,) = [e.path for e in run.list() if e.path.endswith("chat/validation/index.json")]
    return (run / path).read()


def test_epochs_are_counted_in_rows(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    result = json.loads(
        command("finetune", str(file), "--epochs", "2", "--set", "schedule.warmup_steps=0", "--json")
    )
    (path,) = [e.path for e in Folder(tmp_path / "run").list() if e.path.endswith("chat/train/index.json")]
    index = json.loads((Folder(tmp_path / "run") / path).read())
    rows_of_all = sum(
        (block["ntokens"] - 1) // 64 for shard in index["shardlist"] for block in shard["blocks"]
    )
    assert result["steps"] == -(-2 * rows_of_all // 4)


def test_it_goes_on_from_a_run_as_from_an_exported_model(tmp_path: Path) -> None:
    first = config_of(
        tmp_path / "1",
        lines(tmp_path / "chat.jsonl", rows()),
        base_model(tmp_path / "base"),
        **{"schedule.steps": 4},
    )
    train(TrainConfig.model_validate(first))
    command("export", first["output"], str(tmp_path / "out"))
    found = []
    for number, start in enumerate((first["output"], str(tmp_path / "out"))):
        second = config_of(tmp_path / f"2{number}", first["data"]["shards"], start, **{"schedule.steps": 3})
        second["data"]["conversations"] = {}  # its template is that of the model
        found.append(train(TrainConfig.model_validate(second))["weights_xxh3"])
    assert found[0] == found[1]
    other = config_of(tmp_path / "3", first["data"]["shards"], first["output"], **{"model.ffn_dim": 32})
    with pytest.raises(
        UserError, match="init_from: .* is another model than the config's: model.ffn_dim is 64 there and 32"
    ):
        train(TrainConfig.model_validate(other))


def test_a_resumed_run_is_the_unbroken_one_without_the_model_it_began_with(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    config = json.loads(file.read_text())
    whole = train(TrainConfig.model_validate(config))
    parts = {**config, "output": str(tmp_path / "parts")}
    train(TrainConfig.model_validate({**parts, "stop_after": 5}))
    (tmp_path / "base").rename(tmp_path / "moved")
    assert train(TrainConfig.model_validate(parts))["weights_xxh3"] == whole["weights_xxh3"]


def test_a_preview_marks_what_is_trained_on(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    shown = command("finetune", str(file), "--preview", "2")
    assert shown.count("<|im_start|>assistant\n[") == 2 and shown.count("<|im_end|>]") == 2
    documents = json.loads(command("finetune", str(file), "--preview", "1", "--json"))
    assert [kind for _, kind in documents[0]["parts"]] == ["context", "answer", "context"]
    assert not (tmp_path / "run/checkpoints").exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    config = json.loads(file.read_text())
    del config["init_from"]
    file.write_text(json.dumps(config))
    with pytest.raises(
        UserError, match="init_from: is not set: name the folder of a run or of an exported model"
    ):
        command("finetune", str(file))
    del config["data"]["conversations"]
    file.write_text(json.dumps(config))
    with pytest.raises(
        UserError, match="data.conversations: is not set: set it to {} and data.shards to files"
    ):
        command("finetune", str(file))


@pytest.mark.slow
def test_few_conversations_are_learnt_by_heart_in_bf16(tmp_path: Path) -> None:
    """32 conversations whose answers follow from nothing: the loss is below 0.05 after 100 steps."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    some = [["".join(draw.choices(letters, k=6)) for _ in range(3)] for _ in range(32)]
    shape = {"dim": 64, "layers": 2, "heads": 4, "ffn_dim": 168}
    config = config_of(
        tmp_path, lines(tmp_path / "chat.jsonl", [talk(a, f"{b} {c}") for a, b, c in some]), base_model(tmp_path / "base", **shape),
        **{
            **{f"model.{key}": value for key, value in shape.items()}, "precision": "bf16", "schedule.steps": 100,
            "schedule.warmup_steps": 10, "optimizer.lr": 1e-2, "optimizer.kind": "muon", "log.every": 10, "validation.every": None,
            "data.conversations": {"template": "chatml", "validation_share": 0}, "data.sequence_length": 128,
            "data.global_batch": 11, "data.micro_batch": 11, "checkpoint.every": 200,
        },
    )  # fmt: skip
    train(TrainConfig.model_validate(config))
    losses = [row["loss"] for row in read_metrics(Folder(tmp_path / "run"))]
    assert losses[0] > 2 and losses[-1] < 0.05
