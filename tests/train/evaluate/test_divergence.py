"""KL(p || q) of two models is what its definition gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.evaluate import divergence
from corpusmill.train.evaluate.divergence import agreements, divergences, mean_divergence
from corpusmill.train.evaluate.documents import kept
from corpusmill.train.model.split import Split
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
from tests.train.evaluate.scorer_layouts import batches
from tests.train.evaluate.test_scorer import scorer
from tests.train.generate.models import model

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("cells", [1 << 25, 96 * 7])
def test_it_is_the_definition(config: Make, monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(divergence, "CELLS", cells)
    made, rows = [model(1), model(2)], batches(2)
    p, q = (scorer(one, config) for one in made)
    found = list(divergences(p, q, rows))
    sums, count = 0.0, 0
    for batch, part in zip(rows, found, strict=True):
        inputs = [batch[name] for name in ("documents", "positions")]
        with torch.no_grad():
            logs = [one(batch["tokens"], None, *inputs).double().log_softmax(-1) for one in made]
        wanted = (logs[0].exp() * (logs[0] - logs[1])).sum(-1)
        scored = batch["labels"] >= 0
        np.testing.assert_allclose(part[scored], wanted[scored], atol=1e-5)
        assert not part[~scored].any()
        sums, count = sums + float(wanted[scored].sum()), count + int(scored.sum())
    mean = mean_divergence(p, q, rows)
    assert mean.value == pytest.approx(sums / count, rel=1e-5) and mean.n == 6
    assert (mean.low or 0) < mean.value < (mean.high or 0)
    assert mean_divergence(q, p, rows).value != pytest.approx(mean.value, rel=1e-3)


def test_agreement_is_the_share_of_equal_choices(config: Make) -> None:
    made, rows = [model(1), model(1), model(2)], batches(2)
    scorers = [scorer(one, config) for one in made]
    assert all(
        (part[batch["labels"] >= 0] == 1).all()
        for part, batch in zip(agreements(*scorers[:2], rows), rows, strict=True)
    )
    for batch, part in zip(rows, agreements(scorers[0], scorers[2], rows), strict=True):
        inputs = [batch[name] for name in ("documents", "positions")]
        with torch.no_grad():
            choices = [one(batch["tokens"], None, *inputs).argmax(-1) for one in (made[0], made[2])]
        scored = batch["labels"] >= 0
        assert torch.equal(part[scored] == 1, (choices[0] == choices[1])[scored]) and not part[~scored].any()


def test_agreement_is_of_the_whole_vocabulary_where_processes_have_parts_of_it() -> None:
    """Each of two processes sees what the other one has through `max`."""
    p, q = (torch.randn(50, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    q[::2] = p[::2] * 2
    wanted = (p.argmax(-1) == q.argmax(-1)).float()

    class Half(Split):
        size = 2

        def __init__(self, rank: int, others: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
            self.rank, self.others, self.sent = rank, iter(others), sent

        def max(self, x: torch.Tensor) -> torch.Tensor:
            self.sent.append(x)
            other = next(self.others, None)
            return x if other is None else torch.maximum(x, other)

    sent: list[list[torch.Tensor]] = [[], []]
    for _ in range(3):  # what is sent second depends on what was received first
        before, sent = sent, [[], []]
        found = [
            divergence._agreement(
                p[:, 4 * r : 4 * r + 4], q[:, 4 * r : 4 * r + 4], Half(r, before[1 - r], sent[r])
            )
            for r in (0, 1)
        ]
    assert torch.equal(found[0], wanted) and torch.equal(found[1], wanted) and 0 < wanted.mean() < 1


def test_of_a_model_with_itself_it_is_0(config: Make) -> None:
    one, again = scorer(model(1), config), scorer(model(1), config)
    for pair in ((one, one), (one, again)):
        found = mean_divergence(*pair, batches(1))
        assert (found.value, found.low, found.high) == (0, 0, 0)
    assert one.model.parts[0].score.__name__ == "token_losses"


def test_other_vocabularies_are_refused(config: Make) -> None:
    one, other = scorer(model(1), config), scorer(model(1, vocab_multiple=100), config)
    with pytest.raises(UserError, match="vocabularies differ: 96 and 100 rows"):
        mean_divergence(one, other, batches(1))


def test_two_runs_are_compared_by_the_command(write_config: Callable[..., Path], tmp_path: Path) -> None:
    """From training to the table: losses of documents, and divergences, which are 0 between a run and itself."""
    app = typer.Typer()
    register(app)

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments)
        if done.exception:
            raise done.exception
        return done.stdout

    runs = []
    for seed in (1, 2):
        runs.append(str(tmp_path / f"run{seed}"))
        settings = {"seed": seed, "output": runs[-1], "schedule.steps": 3, "schedule.warmup_steps": 1}
        train(load(TrainConfig, write_config(**settings)))
        evaluated = json.loads(command("evaluate", runs[-1], "--ngram-tokens", "0", "--json"))
        kept_nats = {name: table["nats"].to_numpy().sum() for name, table in kept(Folder(runs[-1])).items()}
        for name, row in evaluated["sources"].items():
            assert kept_nats[name] == pytest.approx(row["loss"] * row["tokens"])
    found = json.loads(command("compare-models", *runs, "--divergence", "--json"))
    for row in found["documents"]:
        assert row["a"]["value"] == pytest.approx(
            json.loads((tmp_path / "run1/evaluation.json").read_text())["sources"][row["source"]][
                "bits_per_byte"
            ]
        )
    assert set(found["divergence"]) == {"wiki", "books", "code"}
    for each in found["divergence"].values():
        assert 0 < each["a_b"]["value"] != each["b_a"]["value"] > 0 and each["a_b"]["n"] == 4
    itself = json.loads(command("compare-models", runs[0], runs[0], "--divergence", "--json"))
    assert all(each["a_b"]["value"] == each["b_a"]["high"] == 0 for each in itself["divergence"].values())
    assert "KL divergence of next tokens" in command("compare-models", *runs, "--divergence")
