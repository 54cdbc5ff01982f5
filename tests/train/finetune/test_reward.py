"""A reward model: learnt from pairs, read behind an answer's text whatever follows it, resumed to the bit, and its scores by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.finetune.reward import rewards, values
from corpusmill.train.finetune.start import starting_model
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import train
from tests.train.finetune.models import base_model, config_of, lines
from tests.train.finetune.test_preference import pairs, tuned
from tests.train.generate.models import byte_tokenizer
from tests.train.test_commands import command

REWARD = {
    "objective.loss": "reward",
    "model.reward_head": True,
    "schedule.steps": 60,
    "data.global_batch": 4,
    "data.micro_batch": 4,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tuned(tmp_path_factory.mktemp("reward"), pairs(), **REWARD)
    train(TrainConfig.model_validate(config))
    return config


def test_answers_in_upper_case_are_scored_higher(run: dict[str, Any]) -> None:
    last = read_metrics(Folder(run["output"]))[-1]
    assert last["preference"]["accuracy"] > 0.95
    held_out = last["validation_preference"]["pairs"]
    assert held_out["accuracy"] > 0.9 and held_out["chosen_reward"] > held_out["rejected_reward"]
    assert held_out["margin"] == pytest.approx(held_out["chosen_reward"] - held_out["rejected_reward"])


def test_a_resumed_run_is_the_unbroken_one(run: dict[str, Any], tmp_path: Path) -> None:
    short = {**run, "schedule": {**run["schedule"], "steps": 12}}
    whole = train(TrainConfig.model_validate({**short, "output": str(tmp_path / "whole")}))
    parts = {**short, "output": str(tmp_path / "parts")}
    train(TrainConfig.model_validate({**parts, "stop_after": 5}))
    assert train(TrainConfig.model_validate(parts))["weights_xxh3"] == whole["weights_xxh3"]


def test_it_starts_from_all_of_a_model_but_its_head(tmp_path: Path) -> None:
    data = lines(tmp_path / "pairs.jsonl", pairs(8))
    tokenizer = byte_tokenizer().to_str().encode()
    for tied in (True, False):
        start = base_model(tmp_path / f"base {tied}", tie_embeddings=tied)
        plain = config_of(
            tmp_path / f"plain {tied}",
            data,
            start,
            **{"model.tie_embeddings": tied, "objective.loss": "simpo"},
        )
        train(TrainConfig.model_validate(plain))
        for origin in (start, plain["output"]):
            config = TrainConfig.model_validate(config_of(tmp_path / "reward", data, origin, **REWARD))
            vocabulary = byte_tokenizer().get_vocab_size()
            model = starting_model(config, vocabulary, tokenizer)
            wanted = starting_model(
                TrainConfig.model_validate({**plain, "init_from": origin}), vocabulary, tokenizer
            ).state_dict()
            assert model.head is not None and model.head.weight.shape == (1, config.model.dim)
            for name, value in model.state_dict().items():
                assert name == "head.weight" or torch.equal(value, wanted[name]), name
    other = config_of(tmp_path / "other", data, start, **{**REWARD, "model.layers": 3})
    with pytest.raises((UserError,), match="layers|num_hidden_layers"):
        train(TrainConfig.model_validate(other))


def test_scores_are_those_behind_the_text_alone_or_in_any_batch(run: dict[str, Any]) -> None:
    config, folder = open_run(run["output"])
    data = [json.dumps(row).encode() for row in pairs(7)]
    data += [json.dumps({"prompt": "say the", "completion": "THE " * n}).encode() for n in (1, 4, 9)]
    found = [
        [json.loads(line)["reward"] for line in rewards(config, folder, data, n).lines] for n in (1, 3, 16)
    ]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a == pytest.approx(b, abs=1e-5)
    # By hand: the state that predicts the token that ends the answer, for which nothing behind it counts.
    model = load_model(
        config,
        newest_checkpoint(folder),
        run_vocabulary(config, folder).vocab_size,
        torch.device("cpu"),
        rewards=True,
    )
    model.score = values
    tokenizer = byte_tokenizer()
    eos = run_vocabulary(config, folder).eos_id
    parts = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("say the", "THE ")]
    ids = [eos, *parts[0], *parts[1]]
    with torch.no_grad():
        by_hand = float(model(torch.tensor([ids]), torch.zeros(1, len(ids), dtype=torch.int64))[0, -1])
    assert found[0][7] == pytest.approx(by_hand, abs=1e-5)


def test_the_command(run: dict[str, Any], tmp_path: Path) -> None:
    rows = [*pairs(4), {"messages": [{"role": "user", "content": "a"}]}, {"text": "no prompt"}]
    file = lines(tmp_path / "answers.jsonl", rows)
    Path(file).write_text(Path(file).read_text() + "\nno JSON\n")
    out, removed = tmp_path / "out.jsonl", tmp_path / "removed.jsonl"
    printed = command("reward", run["output"], file, "--out", str(out), "--removed", str(removed))
    assert f"{out}: 4 of 7 lines, scored by tuned at step 60" in printed
    assert "4 pairs: the chosen answer has the higher reward in 100.0%" in printed
    assert [json.loads(line)["line"] for line in removed.read_text().splitlines()] == [5, 6, 8]
    for line, row in zip(out.read_text().splitlines(), rows[:4], strict=True):
        found = json.loads(line)
        assert found.pop("reward")["chosen"] > -100 and found == row
    with pytest.raises(UserError, match="is a reward model, which knows no next token"):
        command("generate", run["output"], "--prompt", "a")
    with pytest.raises(
        UserError, match="model.reward_head: True: no architecture of the Hugging Face layout"
    ):
        command("export", run["output"], str(tmp_path / "hf"))
    with pytest.raises(UserError, match="nowhere.jsonl: no such file"):
        command("reward", run["output"], "nowhere.jsonl", "--out", str(out))


def test_what_is_no_reward_model_is_refused(run: dict[str, Any]) -> None:
    plain = {key: value for key, value in run.items() if key != "objective"}
    for more, message in (
        (
            {"objective": {"loss": "dpo"}},
            "model.reward_head: goes with objective.loss reward alone: set it to false",
        ),
        ({"model": {**run["model"], "reward_head": False}}, "model.reward_head: goes with .* set it to true"),
        ({"objective": {"loss": "reward", "beta": 0.2}}, "beta: has no effect on reward"),
        ({"objective": {"loss": "dpo", "centring": 0.2}}, "centring: has no effect on dpo"),
        ({"adapter": {"rank": 4}}, "adapter: a reward model has none: leave it out"),
    ):
        with pytest.raises(UserError, match=message):
            validate(TrainConfig, {**run, **more}, "config")
    with pytest.raises(UserError, match="set objective.loss to reward, or leave it out"):
        validate(TrainConfig, plain, "config")
