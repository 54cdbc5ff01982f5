"""Averages of checkpoints: weights, predictions, the greedy soup, and a run's folder that other commands take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.phases import AVERAGE, Averaged
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.splits import checkpoint_at, evaluate, load_model
from corpusmill.train.parallel.mesh import join
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.average import Ensemble, Judge, Run, average, mean_weights
from corpusmill.train.tools.continual.phases import phases
from tests.train.test_resume import run

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def trunk(config: Make, tmp_path: Path) -> str:
    made = config(
        output=str(tmp_path / "trunk"),
        **{"schedule.steps": 160, "schedule.kind": "constant", "checkpoint.every": 8, "checkpoint.keep_last": 5, "optimizer.lr": 0.03},
    )  # fmt: skip
    run(made)
    return str(made["output"])


def tensors(folder: str | Path, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.read_tensors(checkpoint.load_step(Folder(folder), step))


def test_the_mean_of_the_latest_checkpoints(trunk: str, tmp_path: Path) -> None:
    out = tmp_path / "mean"
    found = average([Run(*open_run(trunk))], Folder(out), last=5)
    steps = [128, 136, 144, 152, 160]
    assert [member.step for member in found.members] == steps
    parts = [tensors(trunk, step) for step in steps]
    for name, value in tensors(out, 160).items():
        mean = sum(part[name].double() for part in parts) / 5
        assert torch.equal(value, mean.float()), name
    assert found == Averaged.model_validate_json((out / AVERAGE).read_text())
    # At a constant rate, the mean is better than each of its members.
    best = found.members[found.best].bits_per_byte
    assert best and found.average and found.average.value < best.value
    assert found.ensemble and found.ensemble.value < best.value
    # It is a run's folder: evaluated, accounted for, and continued.
    again = evaluate(*open_run(out), ngram_tokens=0)
    for name, row in found.sources.items():
        assert row.average and row.average.value == pytest.approx(
            again["sources"][name]["bits_per_byte"], rel=1e-5
        )
    assert phases(*open_run(out))[0].plan == phases(*open_run(trunk))[0].plan
    with pytest.raises(UserError, match="holds a run already"):
        average([Run(*open_run(trunk))], Folder(out))


def test_equal_members_give_themselves(trunk: str) -> None:
    config, folder = open_run(trunk)
    shards = open_run_data(config)
    one = load_model(config, checkpoint_at(folder, 160), shards.set.vocab_size, torch.device("cpu"))
    for name, value in mean_weights([one, one, one]).items():
        assert torch.equal(value, one.state_dict()[name]), name


def test_an_ensemble_averages_probabilities(trunk: str) -> None:
    config, folder = open_run(trunk)
    shards, world = open_run_data(config), join(config)
    models = [
        load_model(config, checkpoint_at(folder, step), shards.set.vocab_size, world.device)
        for step in (128, 160)
    ]
    judge = Judge(config, shards, world)
    scorers = [judge.scorer(model) for model in models]
    rows = list(sample(next(iter(judge.sources.values())), 24, 500, batch=4))
    for found, batch in zip(Ensemble(scorers).losses(rows), rows, strict=True):
        labels = batch["labels"]
        parts = [next(iter(scorer.losses([batch]))).abs() for scorer in scorers]
        wanted = -torch.stack([(-part.double()).exp() for part in parts]).mean(0).log()
        assert torch.allclose(found.double()[labels >= 0], wanted[labels >= 0], atol=1e-6)
        assert (found[labels < 0] == 0).all()
    assert torch.allclose(
        torch.cat([one.abs() for one in Ensemble(scorers[:1] * 3).losses(rows)]),
        torch.cat([one.abs() for one in scorers[0].losses(rows)]), atol=1e-6,
    )  # fmt: skip


def test_a_greedy_soup_leaves_out_what_makes_it_worse(config: Make, trunk: str, tmp_path: Path) -> None:
    """Two fine-tunes of one trunk, and one of a rate that ruins it."""
    runs = []
    for name, rate in (("a", 1e-3), ("b", 2e-3), ("ruined", 0.5)):
        made = config(
            name=name, output=str(tmp_path / name), init_from=trunk, seed=ord(name[0]), **{"optimizer.lr": rate, "schedule.steps": 6}
        )  # fmt: skip
        run(made)
        runs.append(Run(*open_run(made["output"])))
    plain = average(runs, Folder(tmp_path / "plain"))
    greedy = average(runs, Folder(tmp_path / "greedy"), greedy=True)
    assert all(member.kept for member in plain.members) and not greedy.members[2].kept
    best = greedy.members[greedy.best].bits_per_byte
    assert greedy.average and plain.average and best
    assert greedy.average.value <= best.value < plain.average.value
    with pytest.raises(UserError, match="is an average of several runs"):
        phases(*open_run(tmp_path / "greedy"))


def test_what_cannot_be_averaged(config: Make, trunk: str, tmp_path: Path) -> None:
    other = config(
        output=str(tmp_path / "other"), **{"model.dim": 64, "schedule.steps": 6, "checkpoint.keep_last": 1}
    )
    run(other)
    with pytest.raises(UserError, match=r"is another model than .*, by model.dim"):
        average([Run(*open_run(trunk)), Run(*open_run(other["output"]))], Folder(tmp_path / "out"))
    with pytest.raises(UserError, match="has 1 checkpoints, and an average needs 2"):
        average([Run(*open_run(other["output"]))], Folder(tmp_path / "out"))
