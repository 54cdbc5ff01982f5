"""Text scored behind perturbed text: the same bits at a rate of 0, those of the model by hand, and worse ones behind noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from corpusmill.common.errors import UserError
from corpusmill.common.perturb import parse
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.context import contexts, halves
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.trainer import train
from tests.train.finetune.models import base_model, config_of, lines, talk
from tests.train.test_commands import command


@pytest.fixture
def trained(config: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    made = config(**{"schedule.steps": 40, "optimizer.lr": 1e-2})
    train(TrainConfig.model_validate(made))
    return made


def test_bits_are_the_models_and_equal_where_nothing_is_changed(trained: dict[str, Any]) -> None:
    config = TrainConfig.model_validate(trained)
    shards = open_run_data(config)
    model = load_model(
        config, newest_checkpoint(Folder(config.output_url)), shards.set.vocab_size, torch.device("cpu")
    )
    scorer = Scorer(ParallelModel([model]), config, World())
    found = contexts(scorer, shards, [parse("swap:0"), parse("case:0.5")], 0, None)
    assert set(found) == {"wiki", "books", "code"}
    tokenizer = Tokenizer.from_str(shards.tokenizer().decode())
    for name, source in found.items():
        documents = list(halves(shards.validation[name], tokenizer, scorer.longest))
        assert source.documents == len(documents) > 3
        nats = 0.0
        for one in documents:
            assert len(one.tokens) < config.data.sequence_length
            ids = [0, *tokenizer.encode(one.before, add_special_tokens=False).ids, *one.tokens]
            with torch.no_grad():
                log_p = model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
            own = log_p[-len(one.tokens) :].gather(1, torch.tensor(one.tokens)[:, None])
            nats -= float(own.sum())
        size = sum(one.size for one in documents)
        assert source.bytes == size
        assert source.bits_per_byte.value == pytest.approx(nats / math.log(2) / size, rel=1e-5)
        same, noisy = source.perturbed
        assert (same.changed, same.difference.value) == (0, 0) and same.perturbed == source.bits_per_byte
        assert noisy.changed == len(documents) and noisy.difference.value != 0


def test_the_command(trained: dict[str, Any], tmp_path: Path) -> None:
    call = ("robustness", trained["output"], "--context", "--perturb", "case:0.5")
    printed = command(*call, "--limit", "5")
    assert "bits per byte of second halves behind first halves" in printed and "of 5 changed" in printed
    result = json.loads(command(*call, "--json"))
    assert result["tasks"] == [] and set(result["contexts"]) == {"wiki", "books", "code"}
    assert json.loads((Path(trained["output"]) / "evaluation/robustness.json").read_text()) == result
    with pytest.raises(UserError, match="nothing is scored: name --tasks, or --context"):
        command("robustness", trained["output"], "--perturb", "case:0.5")
    with pytest.raises(UserError, match="--context: nothing is changed: name a --perturb"):
        command("robustness", trained["output"], "--context", "--formats", "3")
    data = lines(tmp_path / "lines.jsonl", [talk(f"say {n}", str(n)) for n in range(40)])
    chat = config_of(
        tmp_path / "chat", data, base_model(tmp_path / "base"), **{"data.conversations.validation_share": 0.3}
    )
    train(TrainConfig.model_validate(chat))
    with pytest.raises(UserError, match="--context: is of texts, and the data are conversations"):
        command("robustness", chat["output"], "--context", "--perturb", "case:0.5")
