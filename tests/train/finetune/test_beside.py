"""Adapters that `generate` and `serve` have beside a model: texts of the runs that trained them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.finetune.beside import adapter_of, add_adapters
from corpusmill.train.generate.generate import open_model
from corpusmill.train.run_folder import open_run
from tests.train.finetune.conftest import ADAPTER
from tests.train.finetune.models import base_model, config_of, lines, talk
from tests.train.generate.serve.running import running
from tests.train.test_commands import command
from tests.train.test_resume import run

Make = Callable[..., dict[str, Any]]
LINES = [talk(f"say {word}", word.upper()) for word in ("the", "in", "winter", "thin", "her", "rather")]


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, str]:
    """A tuned model, and two runs that each train an adapter on it."""
    data = lines(tmp_path / "lines.jsonl", LINES * 4)
    made = config_of(tmp_path / "base-run", data, base_model(tmp_path / "model"))
    run(made)
    found = {"base": made["output"]}
    for name, adapter in (("lora", ADAPTER), ("dora", {**ADAPTER, "dora": True, "targets": ["q", "down"]})):
        one = config_of(tmp_path / name, data, made["output"], adapter=adapter, **{"optimizer.lr": 0.05})
        run(one)
        found[name] = one["output"]
    return found


SAMPLED = (
    "--prompt", "the in", "--temperature", "1", "--top-k", "0", "--top-p", "1", "--seed", "3", "--max-tokens", "20", "--json"
)  # fmt: skip


def test_generate_is_that_of_the_run_that_trained_it(runs: dict[str, str], tmp_path: Path) -> None:
    plain = json.loads(command("generate", runs["base"], *SAMPLED))["text"]
    for name in ("lora", "dora"):
        wanted = json.loads(command("generate", runs[name], *SAMPLED))["text"]
        found = json.loads(command("generate", runs["base"], "--adapter", runs[name], *SAMPLED))["text"]
        command("export", runs[name], str(tmp_path / f"peft-{name}"), "--format", "peft")
        read = json.loads(
            command("generate", runs["base"], "--adapter", str(tmp_path / f"peft-{name}"), *SAMPLED)
        )["text"]
        assert found == read == wanted != plain


def test_clients_name_an_adapter_as_their_model(runs: dict[str, str]) -> None:
    torch.set_num_threads(1)
    opened = open_model(*open_run(runs["base"]))
    add_adapters(opened, [runs["lora"], runs["dora"]])
    body = {"prompt": "the in", "temperature": 1, "seed": 3, "max_tokens": 20}
    with running(opened, adapters=["lora", "dora"]) as server:
        models = server.ask("/v1/models").json["data"]
        assert [(one["id"], one.get("parent")) for one in models] == [
            ("tiny", None),
            ("lora", "tiny"),
            ("dora", "tiny"),
        ]
        assert server.ask("/v1/models/dora").json["id"] == "dora"
        for name, folder in (("tiny", runs["base"]), ("lora", runs["lora"]), ("dora", runs["dora"])):
            answer = server.ask("/v1/completions", {**body, "model": name}).json
            wanted = json.loads(command("generate", folder, *SAMPLED))["text"]
            assert (answer["model"], answer["choices"][0]["text"]) == (name, wanted)
        refused = server.ask("/v1/completions", {**body, "model": "other"})
        assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")
        assert refused.error == "model: 'other' is not here; this server has 'tiny', 'lora', 'dora'"


def test_what_is_no_adapter_of_this_model(runs: dict[str, str], tmp_path: Path) -> None:
    opened = open_model(*open_run(runs["base"]))
    with pytest.raises(UserError, match="trained all weights: name it as the model"):
        add_adapters(opened, [runs["base"]])
    with pytest.raises(
        UserError, match="is not a run's folder or an adapter in PEFT's format: it has no adapter_config.json"
    ):
        add_adapters(opened, [str(tmp_path)])
    other = config_of(
        tmp_path / "other", str(tmp_path / "lines.jsonl"), base_model(tmp_path / "second", seed=2), adapter=ADAPTER
    )  # fmt: skip
    run(other)
    with pytest.raises(UserError, match="was trained beside other weights"):
        add_adapters(opened, [other["output"]])
    with pytest.raises(UserError, match=r"target_modules: lm_head has no adapter here \(allowed: q, k, "):
        adapter_of({"r": 4, "target_modules": ["q_proj", "lm_head"]}, Folder(tmp_path))
    with pytest.raises(UserError, match="must be a list of names"):
        adapter_of({"r": 4, "target_modules": "all-linear"}, Folder(tmp_path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["lora"], "--adapter lora: must be NAME=FOLDER"), (["base=x"], "the name base is taken"),
        (["a=x", "a=y"], "--adapter a=y: the name a is taken"),
    ],
)  # fmt: skip
def test_names(given: list[str], message: str) -> None:
    from corpusmill.train.commands.serving import named

    with pytest.raises(UserError, match=message):
        named(given, "base")
    assert named(["a=x", "b=y=z"], "base") == {"a": "x", "b": "y=z"}
