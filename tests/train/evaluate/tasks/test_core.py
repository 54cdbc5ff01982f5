"""CORE's rule on three synthetic tasks, one of each kind, beside a reference that computes it from the model alone."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.report.facts import core
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.run import chance, open_model, prepare, score
from corpusmill.train.parallel.mesh import join
from corpusmill.train.run_folder import TOKENIZER
from tests.train.evaluate.tasks.runs import VOCAB

WORDS = ["the", "run", "data", "token", "shard", "block", "step", "model", "loss", "file"]
YAML = {
    "choice": "output_type: multiple_choice\ndoc_to_text: text\ndoc_to_choice: choices\ndoc_to_target: gold\n",
    "schema": "output_type: schema\ndoc_to_text: '{{gold}}'\ndoc_to_choice: choices\ndoc_to_target: text\n",
    "greedy": "output_type: loglikelihood\ndoc_to_text: text\ndoc_to_target: '{{choices[0]}}'\n",
}


def rows(kind: str) -> list[dict[str, Any]]:
    draw = random.Random(kind)
    found = []
    for number in range(24):
        start = draw.choice(WORDS)  # that all choices begin with
        choices = [" ".join([start, *draw.choices(WORDS, k=draw.randrange(1, 5))]) for _ in range(3)]
        found.append({"text": " ".join(draw.choices(WORDS, k=8)), "choices": choices, "gold": number % 3})
    return found


class Reference:
    """As in DCLM and nanochat: sequences whole, their common beginning or end found in tokens, mean loss of the rest."""

    def __init__(self, config: TrainConfig, run: Folder) -> None:
        self.model = load_model(config, newest_checkpoint(run), VOCAB, torch.device("cpu"))
        self.tokenizer = Tokenizer.from_str((run / TOKENIZER).read().decode())

    def losses(self, text: str) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        ids = self.tokenizer.encode(
            text, add_special_tokens=False
        ).ids  # as in the harness, nothing before it
        with torch.no_grad():
            logits = self.model(torch.tensor([ids]))[0, :-1, :VOCAB]
        targets = torch.tensor(ids[1:])
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return ids[1:], losses, logits.argmax(-1) == targets

    def right(self, kind: str, row: dict[str, Any]) -> bool:
        texts = {
            "choice": [f"{row['text']} {choice}" for choice in row["choices"]],
            "schema": [f"{choice} {row['text']}" for choice in row["choices"]],
            "greedy": [f"{row['text']} {row['choices'][0]}"],
        }[kind]
        found = [self.losses(text) for text in texts]
        if kind == "greedy":
            return bool(found[0][2][len(self.losses(row["text"])[0]) :].all())
        ids = [one[0][::-1] if kind == "schema" else one[0] for one in found]
        same = len(os.path.commonprefix(ids))  # noqa: RUF071 (of lists)
        spans = [(one[1][len(one[0]) - same :] if kind == "schema" else one[1][same:]) for one in found]
        return int(torch.stack([span.double().mean() for span in spans]).argmin()) == row["gold"]


def test_core_of_three_tasks_is_that_of_a_reference(reader: Path, tmp_path: Path) -> None:
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(reader / "run")
    model = open_model(config, run, newest_checkpoint(run), join(config))
    reference = Reference(config, run)
    tasks, above = [], []
    for kind, text in YAML.items():
        (tmp_path / f"{kind}.yaml").write_text(f"task: {kind}\ndata: {kind}.jsonl\n{text}")
        (tmp_path / f"{kind}.jsonl").write_text("\n".join(map(json.dumps, rows(kind))))
        prepared = prepare(find_task(str(tmp_path / f"{kind}.yaml")), {}, [])
        items = score(prepared, model).items
        wanted = [reference.right(kind, row) for row in rows(kind)]
        assert [item.core for item in items] == wanted, kind
        guess = chance(prepared.task, items)
        tasks.append((items, guess))
        above.append((sum(wanted) / len(wanted) - (guess or 0)) / (1 - (guess or 0)))
    found = core(tasks)
    assert found and found["value"] == pytest.approx(sum(above) / 3)
