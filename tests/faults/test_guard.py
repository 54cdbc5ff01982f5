"""Faults that kill long runs, planted: the run goes on without help, ends as well as a clean one, and records what it did."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.guard import JournalEntry
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.guard.journal import read_entries
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.conftest import shared
from tests.faults.guard import SOURCES, STEPS, blocks_of, planted, poison, settings
from tests.forks import Finished, launch
from tests.train.conftest import write_shards
from tests.train.test_resume import Crash, crash_at

BAD = range(73, 85)  # steps whose batches are three quarters noise
Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    def make(folder: Path) -> None:
        write_shards(Folder(folder), SOURCES, blocks=14)

    return Folder(shared(tmp_path_factory, "guard-clean", make))


@pytest.fixture(scope="session")
def poisoned(clean: Folder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, set[str]]:
    """The same shards, but a stretch of one source is noise; and the ids of its documents."""

    def make(folder: Path) -> None:
        shutil.copytree(clean.url, folder / "shards")
        bad = poison(Folder(folder / "shards"), "wiki", blocks_of(settings(clean, "x"), BAD))
        (folder / "documents.json").write_text(json.dumps(sorted(bad)))

    folder = shared(tmp_path_factory, "guard-poisoned", make)
    return Folder(folder / "shards"), set(json.loads((folder / "documents.json").read_text()))


@pytest.fixture(scope="session")
def clean_run(clean: Folder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return shared_run(tmp_path_factory, "guard-clean-run", clean)


@pytest.fixture(scope="session")
def poisoned_run(
    poisoned: tuple[Folder, set[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return shared_run(tmp_path_factory, "guard-poisoned-run", poisoned[0])


def shared_run(factory: pytest.TempPathFactory, name: str, shards: Folder) -> dict[str, Any]:
    """The result of a run that nothing else disturbs."""

    def make(folder: Path) -> None:
        run(settings(shards, str(folder / "run")))

    folder = shared(factory, name, make)
    return dict(json.loads((folder / "run/result.json").read_text()))


def run(config: dict[str, Any], replay: str | None = None) -> dict[str, Any]:
    return train(TrainConfig.model_validate(config), replay)


def journal(output: str | Path) -> list[JournalEntry]:
    return read_entries(Folder(str(output)))


def story(output: str | Path) -> list[tuple[str, int]]:
    return [(entry.kind, entry.step) for entry in journal(output) if entry.kind != "resume"]


def end(output: str | Path) -> float:
    """The mean loss of the last ten steps."""
    losses = [row["loss"] for row in read_metrics(Folder(str(output)))[-10:]]
    return sum(losses) / len(losses)


def weights(output: str | Path, step: int = STEPS) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    found = checkpoint.load_newest(Folder(str(output)))
    assert found is not None and found.step == step
    return checkpoint.read_tensors(found), checkpoint.read_tensors(found, checkpoint.OPTIMIZER)


def same(a: str | Path, b: str | Path) -> bool:
    return all(
        x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)
        for x, y in zip(weights(a), weights(b), strict=True)
    )


def test_a_clean_run_is_left_alone(clean_run: dict[str, Any], clean: Folder, tmp_path: Path) -> None:
    assert story(clean_run["output"]) == [] and clean_run["skipped"] == clean_run["rollbacks"] == 0
    run(settings(clean, str(tmp_path / "off"), enabled=False))
    assert same(tmp_path / "off", clean_run["output"])


def test_a_poisoned_shard_is_passed_over(
    clean_run: dict[str, Any], poisoned_run: dict[str, Any], poisoned: tuple[Folder, set[str]]
) -> None:
    output = poisoned_run["output"]
    entries = story(output)
    assert [kind for kind, _ in entries] == ["skip"] * 4 + ["rollback"]
    first = entries[0][1]
    assert first in BAD and [step for _, step in entries] == list(range(first, first + 5))
    back = journal(output)[-1]
    assert (back.to_step, back.healthy) == (70, True) and poisoned_run["rollbacks"] == 1
    assert back.skipped and (back.skipped.step, back.skipped.batches) == (first, 13)
    assert back.why[0].signal == "loss" and back.why[0].value > back.why[0].limit  # type: ignore[operator]
    for entry in journal(output):  # who was in the batch
        named = {doc for docs in entry.documents.values() for doc in docs}
        assert 8 <= len(named) <= 16 and named & poisoned[1]
    rows = {row["step"]: row for row in read_metrics(Folder(output))}
    assert list(rows) == list(range(1, STEPS + 1))
    usual = {row["step"]: row["lr"] for row in read_metrics(Folder(clean_run["output"]))}
    assert rows[70]["lr"] == usual[70] and rows[71]["lr"] == usual[71] / 2 and rows[110]["lr"] == usual[110]
    assert max(row["loss"] for step, row in rows.items() if step > 70) < 2.5
    assert end(output) == pytest.approx(end(clean_run["output"]), rel=0.02)


def test_without_a_guard_it_is_trained_on(poisoned: tuple[Folder, set[str]], tmp_path: Path) -> None:
    run(settings(poisoned[0], str(tmp_path / "run"), enabled=False))
    assert max(row["loss"] for row in read_metrics(Folder(tmp_path / "run"))[72:]) > 3


def test_a_journal_replays_to_the_same_weights(
    poisoned_run: dict[str, Any],
    poisoned: tuple[Folder, set[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = f"{poisoned_run['output']}/journal.jsonl"
    config = settings(poisoned[0], str(tmp_path / "again"))
    with monkeypatch.context() as patch:  # in two parts
        crash_at(patch, 76)
        with pytest.raises(Crash):
            run(config, source)
    run(config)
    assert same(tmp_path / "again", poisoned_run["output"])
    assert story(tmp_path / "again") == [*story(poisoned_run["output"]), ("replay", 0)]
    with pytest.raises(UserError, match="set another output"):
        run(settings(poisoned[0], poisoned_run["output"]), source)
    with pytest.raises(UserError, match="no journal is there"):
        run(settings(poisoned[0], str(tmp_path / "none")), str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "step", [75, pytest.param(78, marks=pytest.mark.slow), pytest.param(92, marks=pytest.mark.slow)]
)
def test_cut_anywhere_it_ends_as_if_it_had_not_been(
    poisoned_run: dict[str, Any], poisoned: tuple[Folder, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:  # fmt: skip
    config = settings(poisoned[0], str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        crash_at(patch, step)
        with pytest.raises(Crash):
            run(config)
    run(config)
    assert same(tmp_path / "run", poisoned_run["output"])
    assert story(tmp_path / "run") == story(poisoned_run["output"])


def test_a_bad_gradient_costs_its_step_alone(
    clean: Folder, clean_run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "train_step", planted(trainer.train_step, {3, 60}, math.nan))
    found = run(settings(clean, str(tmp_path / "run")))
    assert story(tmp_path / "run") == [("skip", 3), ("skip", 60)] and found["skipped"] == 2
    rows = read_metrics(Folder(tmp_path / "run"))
    assert rows[59]["loss"] is None and rows[59]["grad_norm"] is None and rows[59]["skipped"] == 1
    assert rows[59]["update_norm"] == 0.0 and rows[60]["skipped"] == 0
    assert rows[:2] and end(tmp_path / "run") == pytest.approx(end(clean_run["output"]), rel=0.02)
    # Replayed where the gradient is sound: the same steps are left out, to the same weights.
    monkeypatch.undo()
    run(settings(clean, str(tmp_path / "again")), str(tmp_path / "run/journal.jsonl"))
    assert same(tmp_path / "again", tmp_path / "run")


def started(config: dict[str, Any], tmp_path: Path, *arguments: str, processes: int = 1) -> Finished:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    return launch(processes, "tests.faults.guard", file, *arguments)


@pytest.mark.parametrize(
    "parallel",
    [
        pytest.param({}, id="ddp"),
        pytest.param({"pipeline": 2}, id="pipeline", marks=pytest.mark.slow),
        pytest.param({"zero": 3}, id="zero3", marks=pytest.mark.slow),
        pytest.param({"tensor": 2}, id="tensor", marks=pytest.mark.slow),
    ],
)
def test_bad_gradients_in_one_process_of_two(
    clean: Folder, clean_run: dict[str, Any], tmp_path: Path, parallel: dict[str, Any]
) -> None:
    """In the second process alone: inf at 40 to 44 rolls both back, at 90 it costs both a step."""
    config = {**settings(clean, str(tmp_path / "run")), "parallel": parallel}
    config["data"]["micro_batch"] = 8
    done = started(config, tmp_path, "inf", "1", "40,41,42,43,44,90", processes=2)
    assert done.returncode == 0, done.stderr
    entries = [("skip", 40), ("skip", 41), ("skip", 42), ("skip", 43), ("rollback", 44), ("skip", 90)]
    assert story(tmp_path / "run") == entries
    back = journal(tmp_path / "run")[4]
    assert back.to_step == 30 and back.why[0].signal == "grad_norm"
    assert end(tmp_path / "run") == pytest.approx(end(clean_run["output"]), rel=0.02)


def test_a_slow_process_is_waited_for_and_changes_nothing(clean: Folder, tmp_path: Path) -> None:
    for name, steps in (("slow", "3,4,9"), ("plain", "")):
        config = settings(clean, str(tmp_path / name))
        config["schedule"], config["data"]["micro_batch"] = {"steps": 12, "warmup_steps": 4}, 8
        done = started(config, tmp_path, "slow", "1", steps, processes=2)
        assert done.returncode == 0, done.stderr
    assert all(
        torch.equal(tensor, weights(tmp_path / "plain", 12)[0][name])
        for name, tensor in weights(tmp_path / "slow", 12)[0].items()
    )
    assert story(tmp_path / "slow") == []


@pytest.mark.parametrize("die", ["journal", "deleting"])
def test_killed_in_the_middle_of_a_rollback(
    poisoned: tuple[Folder, set[str]], poisoned_run: dict[str, Any], tmp_path: Path, die: str
) -> None:
    config = settings(poisoned[0], str(tmp_path / "run"))
    config["checkpoint"]["every"] = 2  # so that there are some of the branch given up
    done = started(config, tmp_path, "nan", "0", "", die)
    assert done.returncode == -signal.SIGKILL, done.stderr
    written = [kind for kind, _ in story(tmp_path / "run")]
    assert written == ["skip"] * 4 + (["rollback"] if die == "deleting" else [])
    before = set(checkpoint.steps(Folder(tmp_path / "run")))
    result = run(config)
    back = next(entry for entry in journal(tmp_path / "run") if entry.kind == "rollback")
    assert max(before) > (back.to_step or 0)  # of the branch given up: it was there, and was not taken
    assert result["rollbacks"] == 1
    assert story(tmp_path / "run") == story(poisoned_run["output"])


def test_too_many_rollbacks_stop_the_run_and_say_what_was_tried(
    clean: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(clean, str(tmp_path / "run"), max_rollbacks=2, max_consecutive_skips=1)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", planted(trainer.train_step, set(range(35, 99)), math.inf))
        with pytest.raises(WorkError) as error:
            run(config)
    message = str(error.value)
    assert (
        len(message.splitlines()) == 1
        and "stopped the run at step 36: " in message
        and "max_rollbacks (2)" in message
    )
    assert "grad_norm nan" in message
    tried = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tried: ")]
    assert len(tried) == 2 and all("rolled back to step 30" in line for line in tried)
    assert [kind for kind, _ in story(tmp_path / "run")] == ["skip", "rollback"] * 2 + ["skip", "stop"]
    config["guard"]["max_rollbacks"] = 3  # the cause is gone, and it may go on
    assert run(config)["steps"] == STEPS


def test_overflows_of_fp16_are_no_skips(clean: Folder, clean_run: dict[str, Any], tmp_path: Path) -> None:
    config = {
        **settings(clean, str(tmp_path / "run")),
        "precision": "fp16",
        "loss_scale": {"initial": 2.0**40},
    }
    found = run(config)
    rows = read_metrics(Folder(tmp_path / "run"))
    overflown = [row["step"] for row in rows if row["grad_norm"] is None]
    assert len(overflown) > 4 and overflown[0] == 1 and rows[-1]["loss_scale"] < rows[0]["loss_scale"]
    assert story(tmp_path / "run") == [] and found["skipped"] == 0
    assert end(tmp_path / "run") == pytest.approx(
        end(clean_run["output"]), rel=0.03
    )  # some of its steps were lost


def test_a_loss_scale_that_fell_to_its_floor_comes_back(
    clean: Folder, clean_run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 overflows in a row: the scale is at 1 when they end, and would grow in 1,000 steps."""
    config = {**settings(clean, str(tmp_path / "run")), "precision": "fp16"}
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer, "train_step", planted(trainer.train_step, set(range(50, 68)), math.inf, times=1)
        )
        run(config)
    back = [entry for entry in journal(tmp_path / "run") if entry.kind == "rollback"]
    assert [(entry.step, entry.to_step, entry.healthy) for entry in back] == [(86, 60, True)]
    assert back[0].why[0].signal == "loss_scale"
    rows = {row["step"]: row for row in read_metrics(Folder(tmp_path / "run"))}
    assert len(rows) == STEPS and rows[61]["loss_scale"] > 1 and rows[STEPS]["loss_scale"] > 1
    assert end(tmp_path / "run") == pytest.approx(end(clean_run["output"]), rel=0.02)


def test_a_scale_at_its_floor_begins_again_if_nothing_better_is_left(
    clean: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**settings(clean, str(tmp_path / "run")), "precision": "fp16"}
    config["checkpoint"] = {"every": 70, "keep_last": 1}
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer, "train_step", planted(trainer.train_step, set(range(50, 68)), math.inf, times=1)
        )
        assert run(config)["rollbacks"] == 1
    back = next(entry for entry in journal(tmp_path / "run") if entry.kind == "rollback")
    assert (back.to_step, back.healthy) == (70, False)
    rows = {row["step"]: row for row in read_metrics(Folder(tmp_path / "run"))}
    assert len(rows) == STEPS and rows[70]["loss_scale"] == 1 and rows[71]["loss_scale"] == 65536


def test_nothing_to_go_back_to_stops_the_run(
    clean: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "train_step", planted(trainer.train_step, set(range(99)), math.nan))
    with pytest.raises(WorkError, match="there is no checkpoint to go back to"):
        run(settings(clean, str(tmp_path / "run")))


def test_it_goes_back_beyond_a_checkpoint_that_is_not_healthy(
    clean: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 was skipped, so that the checkpoint of step 50 is passed over."""
    at = {48, 53, 54, 55, 56, 57}
    monkeypatch.setattr(trainer, "train_step", planted(trainer.train_step, at, math.nan, times=1))
    run(settings(clean, str(tmp_path / "run")))
    back = [entry for entry in journal(tmp_path / "run") if entry.kind == "rollback"]
    assert [(entry.step, entry.to_step, entry.healthy) for entry in back] == [(57, 40, True)]


def test_a_skipped_step_moves_no_expert_s_bias(
    clean: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(clean, str(tmp_path / "run"))
    config["model"]["moe"] = {"experts": 4, "ffn_dim": 16, "bias_rate": 0.25}
    config["schedule"] = {"steps": 3, "warmup_steps": 1}
    monkeypatch.setattr(trainer, "train_step", planted(trainer.train_step, {2}, math.nan))
    run(config)
    bias = weights(tmp_path / "run", 3)[0]["layers.0.ffn.bias"].abs()
    assert set(bias.tolist()) <= {0.0, 0.5}  # two moves, not three
