"""`corpusmill branch` as a user calls it: words, files, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corpusmill.__main__ import build
from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.finetune.trunk import checkpoint_of
from corpusmill.train.optim.make import rate_at
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.branch import parse_mixture, prepare
from tests.train.test_resume import run
from tests.train.tools.continual.test_branch import LR, STABLE, Make, trunk

__all__ = ["trunk"]  # a fixture


def test_the_command_line(trunk: str, tmp_path: Path) -> None:
    runner, out = CliRunner(), tmp_path / "branch"
    (tmp_path / "mixture.yaml").write_text("books: 1\ncode: 2\n")

    def call(*words: str) -> tuple[int, str]:
        done = runner.invoke(build(), ["branch", trunk, *words])
        return done.exit_code, str(done.exception) if isinstance(done.exception, UserError) else done.output

    code, text = call("--from", "8", "--decay", "25%", "--shape", "sqrt", "--mixture", str(tmp_path / "mixture.yaml"), "--output", str(out), "--prepare")  # fmt: skip
    assert code == 0 and f"corpusmill train {out}/train.yaml" in text
    made = load(TrainConfig, out / "train.yaml")
    assert made.data.stages[0].from_step == 9 and made.data.stages[0].weights == {"books": 1, "code": 2}
    assert (made.schedule.decay_steps, made.schedule.decay_shape, made.schedule.steps) == (2, "sqrt", 10)
    for words, message in (
        (["--from", "7"], "--from 7: no such checkpoint in .*trunk; there are 4, 8, 12, 16"),
        (["--from", "8", "--decay", "0"], "--decay 0: is 0 steps: give at least 1 step"),
        (["--from", "8", "--mixture", "boks=1"], r"--mixture: .* has no source 'boks'.*\(it has: wiki, books, code\)"),
        (["--from", "8", "--mixture", "books"], "books"),
        (["--from", "8", "--mixture", "books=many"], "--mixture books=many: must be NAME=WEIGHT"),
        (["--from", "8", "--output", trunk], "--output .*trunk: holds another run: name another folder"),
        (["--from", "8", "--output", str(out)], "--output .*branch: holds another run .*decay_shape.*data.stages"),
        (["--from", "8", "--decay", "4", "--steps", "3"], "--steps 3: is less than the decay of 4 steps: set it to 4"),
        (["--from", "8", "--shape", "cosine"], "--shape: must be linear or sqrt"),
        (["--from", "8", "--set", "model.dim=64"], "--set: a branch cannot change model.dim: 32 -> 64"),
    ):  # fmt: skip
        code, text = call(*words)
        assert code and re.search(message, text) and "\n" not in text.strip(), (words, text)


def test_a_decayed_checkpoint_and_a_changed_config_are_refused(
    config: Make, trunk: str, tmp_path: Path
) -> None:
    wsd = {**STABLE, "schedule.kind": "wsd", "schedule.decay_share": 0.5, "output": str(tmp_path / "wsd")}
    run(config(**wsd))
    with pytest.raises(UserError, match=r"--from 12: the trunk's rate there is .*checkpoints with it: 4, 8$"):
        prepare(open_run(tmp_path / "wsd"), 12, "10%")
    made = prepare(open_run(tmp_path / "wsd"), 8, "10%")
    assert [rate_at(made, step) for step in (7, 8)] == [LR, LR]
    given = config(
        **STABLE,
        output=str(tmp_path / "other"),
        branch={"run": trunk, "step": 8},
        **{"optimizer.weight_decay": 0.3},
    )
    with pytest.raises(
        UserError, match=r"step 8 is of another config: optimizer.weight_decay: 0.1 -> 0.3\. Set it back"
    ):
        run(given)
    with pytest.raises(UserError, match="branch.step 3: no such checkpoint in"):
        found = TrainConfig.model_validate(config(**STABLE, branch={"run": trunk, "step": 3}))
        assert found.branch is not None
        checkpoint_of(found, found.branch, Folder(tmp_path / "none"), False)
    with pytest.raises(ValueError, match="branch.step 16 leaves no step"):
        TrainConfig.model_validate(config(**STABLE, branch={"run": trunk, "step": 16}))


def test_a_mixture_is_read_from_words_and_files(tmp_path: Path) -> None:
    assert parse_mixture("wiki=2, books=0.5") == {"wiki": 2.0, "books": 0.5}
    (tmp_path / "a=b.yaml").write_text("wiki: 3")
    assert parse_mixture(str(tmp_path / "a=b.yaml")) == {"wiki": 3.0}
