"""Whatever kills a run, the same command gives the weights and the losses of one that was never killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.processes import python

Make = Callable[..., dict[str, Any]]
TIMES = (
    "tokens_per_second", "loader_stall", "memory_mib", "mfu", "slowest_process", "slowest_ratio", "stragglers",
)  # fmt: skip


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


def run(settings: dict[str, Any]) -> dict[str, Any]:
    return train(TrainConfig.model_validate(settings))


def outcome(output: str, steps: int = 20) -> tuple[list[str], list[dict[str, Any]]]:
    """(hashes of weights and optimizer, rows without what the clock decides) of a finished run."""
    found = checkpoint.load_newest(Folder(output))
    assert found is not None and found.step == steps
    rows = [{k: v for k, v in row.items() if k not in TIMES} for row in read_metrics(Folder(output))]
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    return [file.xxh3 for file in found.manifest.files if file.path.endswith(".safetensors")], rows


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    healthy = trainer.train_step

    def fatal(state: Any, *rest: Any, **more: Any) -> Any:
        if state.step == step:
            raise Crash
        return healthy(state, *rest, **more)

    monkeypatch.setattr(trainer, "train_step", fatal)


def test_a_run_cut_at_any_step_ends_bit_for_bit_as_an_unbroken_one(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that span a checkpoint; 12 cuts in a row are all places between two of both.
    settings = {"model.dropout": 0.2, "checkpoint.every": 3, "log.every": 4, "schedule.steps": 14}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    expected = outcome(str(tmp_path / "unbroken"), 14)
    assert [row["step"] for row in expected[1]] == [4, 8, 10, 12, 14]
    for step in range(14):
        output = str(tmp_path / f"cut-{step}")
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                run(config(**settings, output=output))
        run(config(**settings, output=output))
        assert outcome(output, 14) == expected, step


def test_experts_and_their_biases_go_on_where_they_were(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moe = {"experts": 4, "ffn_dim": 32, "bias_rate": 0.01, "router_z_loss": 1e-3, "first": 1}
    settings = {"model.moe": moe, "model.z_loss": 1e-3, "model.dropout": 0.1, "log.every": 3}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    expected = outcome(str(tmp_path / "unbroken"))
    assert expected[1][0]["z_loss"] > 0 and expected[1][0]["router_z_loss"] > 0
    assert list(expected[1][0]["expert_load"]) == ["layer_1"]
    for step in (4, 12, 19):
        output = str(tmp_path / f"cut-{step}")
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                run(config(**settings, output=output))
        run(config(**settings, output=output))
        assert outcome(output) == expected, step


def dies(file: str, step: str, name: str) -> None:
    """`corpusmill train`, by SIGKILL before the step after `step`, or when it writes the file `name`."""
    from corpusmill.train.commands.train import train as command

    healthy, write = trainer.train_step, Folder.write

    def die() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    trainer.train_step = lambda state, *a, **k: die() if state.step == int(step) else healthy(state, *a, **k)
    Folder.write = lambda self, data: die() if self.url.endswith(name) else write(self, data)  # type: ignore[method-assign]
    command(file)


def test_sigkill_in_a_step_and_in_a_save(
    config: Make, write_config: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {"model.dropout": 0.1}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    file = write_config(**settings)
    for step, name in ((7, "never"), (-1, "step-000015/state.json")):
        done = launch(1, f"{__name__}:dies", file, step, name)
        assert done.returncode == -signal.SIGKILL, done.stderr
    partial = tmp_path / "run/checkpoints/step-000015"
    assert {f.name for f in partial.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "tensors.json",
    }
    done = python("-m", "corpusmill.train", file)
    assert done.returncode == 0, done.stderr
    assert "step-000015: not taken: it has no manifest" in done.stderr
    assert "continuing after step 10" in done.stderr
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))


def signalled(file: str, number: str) -> None:
    """`python -m corpusmill.train`, and a signal to the process once some rows are written."""
    from corpusmill.train.__main__ import main

    metrics = Path(file).parent / "run/metrics.jsonl"

    def send() -> None:
        while not (metrics.exists() and metrics.read_text().count("\n") > 3):
            time.sleep(0.05)
        os.kill(os.getpid(), int(number))

    threading.Thread(target=send, daemon=True).start()
    sys.argv = ["train", file]
    main()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_exits(
    write_config: Callable[..., Path], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    file = write_config(**{"schedule.steps": 100_000, "checkpoint.every": 100_000, "validation.every": None})
    done = launch(1, f"{__name__}:signalled", file, int(number), timeout=300)
    assert done.returncode == code, done.stderr
    saved = checkpoint.load_newest(Folder(tmp_path / "run"))
    assert saved is not None and saved.step >= 4 and "Traceback" not in done.stderr
    assert [row["step"] for row in read_metrics(Folder(tmp_path / "run"))] == list(range(1, saved.step + 1))


def test_a_finished_run_is_not_run_again(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(config())
    weights = outcome(str(tmp_path / "run"))
    crash_at(monkeypatch, 20)
    (tmp_path / "run/result.json").unlink()
    assert run(config()) == first and outcome(str(tmp_path / "run")) == weights
    assert json.loads((tmp_path / "run/result.json").read_text()) == first


def test_a_damaged_newest_checkpoint_pushes_out_no_valid_one(
    config: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes are as published: only who has read every byte knows."""
    settings = {"checkpoint.every": 4, "validation.every": None, "checkpoint.keep_last": 1}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    run(config(**{**settings, "checkpoint.keep_last": 2}, stop_after=8))
    place = tmp_path / "run/checkpoints/step-000008/model.safetensors"
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)
    run(config(**settings, stop_after=6))
    assert "step-000008: not taken" in capsys.readouterr().err
    assert sorted(f.name for f in (tmp_path / "run/checkpoints").iterdir()) == ["step-000006", "step-000008"]
    run(config(**settings, stop_after=7))
    assert "continuing after step 6" in capsys.readouterr().err
    run(config(**settings))  # step 8 is saved again
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))
    assert [f.name for f in (tmp_path / "run/checkpoints").iterdir()] == ["step-000020"]


def test_a_changed_config_is_refused_by_its_key(config: Make) -> None:
    run(config(**{"schedule.steps": 6}))
    for settings, named in [
        ({"schedule.steps": 7}, "schedule.steps: 6 -> 7"),
        ({"schedule.steps": 6, "optimizer.lr": 0.5}, "optimizer.lr: 0.003 -> 0.5"),
        ({"schedule.steps": 6, "data.weights": {"wiki": 1, "books": 1}}, "data.weights.code: 1.0 -> None"),
    ]:
        with pytest.raises(UserError) as error:
            run(config(**settings))
        assert named in str(error.value)
    run(
        config(
            **{"schedule.steps": 6, "threads": 2, "log.every": 3, "checkpoint.keep_last": 5, "name": "other"}
        )
    )


@pytest.mark.parametrize(
    ("every", "finished"), [(2, False), (4, True)], ids=["not its first", "of a finished run"]
)
def test_the_only_checkpoint_without_its_manifest_is_no_reason_to_start_over(
    every: int, finished: bool, config: Make, tmp_path: Path
) -> None:
    settings = {
        "checkpoint.every": every,
        "checkpoint.keep_last": 1,
        "schedule.steps": 4,
        "schedule.warmup_steps": 1,
        "validation.every": None,
    }
    run(config(**settings))
    (folder,) = (tmp_path / "run/checkpoints").iterdir()
    (folder / "manifest.json").unlink()
    if not finished:
        (tmp_path / "run/result.json").unlink()
    with pytest.raises(WorkError, match=r"none of the checkpoints \(4\) can be used"):
        run(config(**{**settings, "schedule.steps": 6}))
    assert len(list(folder.iterdir())) > 1
    shutil.rmtree(folder.parent)  # as the message says
    assert run(config(**settings))["steps"] == 4


def test_damaged_checkpoints_alone_are_no_reason_to_start_over(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "checkpoint.every": 4,
        "checkpoint.keep_last": 5,
        "schedule.steps": 12,
        "validation.every": None,
    }
    run(config(**settings))
    files = sorted((tmp_path / "run/checkpoints").glob("step-*/model*.safetensors"))
    assert len(files) == 3
    for number, file in enumerate(files):
        if number == 0:
            (file.parent / "manifest.json").unlink()
        else:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(bytes(data))
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with pytest.raises(
        WorkError, match=r"step-000012: not taken: .*none of the checkpoints \(4, 8, 12\) can be used"
    ):
        run(config(**{**settings, "schedule.steps": 14}))
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before
    for file in files[1:]:
        (file.parent / "manifest.json").unlink()
    with pytest.raises(WorkError, match="it has no manifest.*delete .*run/checkpoints to start over"):
        run(config(**settings))
    for file in files[1:]:
        shutil.rmtree(file.parent)
    (tmp_path / "run/result.json").unlink()  # which says that the run was finished
    # One that was never finished: killed in the first save. Nothing of it is left then.
    with monkeypatch.context() as patch:
        crash_at(patch, 2)
        with pytest.raises(Crash):
            run(config(**settings))
    assert not list((tmp_path / "run").glob("checkpoints/*/*"))
    assert run(config(**settings))["steps"] == 12


def test_a_run_in_legs_ends_as_one_that_is_not(config: Make, tmp_path: Path) -> None:
    settings = {"model.dropout": 0.2, "validation.every": None}
    run(config(**settings, output=str(tmp_path / "unbroken")))
    for leg, step in ((7, 7), (12, 12), (None, 20)):
        result = run(config(**settings, stop_after=leg))
        saved = checkpoint.load_newest(Folder(tmp_path / "run"))
        assert result["steps"] == step and saved is not None and saved.step == step
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))


def test_a_key_changes_in_a_run_that_says_so(config: Make, tmp_path: Path) -> None:
    run(config(stop_after=10))
    changed = {"optimizer.lr": 1e-3, "optimizer.weight_decay": 0.0}
    with pytest.raises(UserError, match=r"weight_decay: 0\.1 -> 0\.0"):
        run(config(**changed, may_change=["optimizer.lr"]))
    with pytest.raises(UserError, match=r"model\.dim: 32 -> 64"):
        run(config(**changed, **{"model.dim": 64}, may_change=["optimizer.lr", "optimizer.weight_decay"]))
    run(config(**changed, may_change=["optimizer.lr", "optimizer.weight_decay"]))
    rows = read_metrics(Folder(tmp_path / "run"))
    assert rows[9]["lr"] / rows[10]["lr"] > 2.9 and rows[-1]["lr"] == pytest.approx(1e-4)
    assert json.loads((tmp_path / "run/config.json").read_text())["optimizer"]["lr"] == 1e-3
    run(config(**changed))  # from now on this is the run's config
    with pytest.raises(ValueError, match="may_change"):
        run(config(may_change=["model.dim"]))


def test_what_lies_ahead_may_be_changed_mid_run(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ahead = {
        "data.stages": [{"from_step": 12, "weights": {"books": 1, "code": 3}}], "data.skip": {15: 2},
        "data.batch_ramp": {3: 8},
    }  # fmt: skip
    run(config(output=str(tmp_path / "unbroken"), **ahead))
    with monkeypatch.context() as patch:
        crash_at(patch, 11)
        with pytest.raises(Crash):
            run(config())
    run(config(**ahead))
    assert "continuing after step 10 on a changed plan" in capsys.readouterr().err
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))
    plans = [json.loads((tmp_path / name / "plan.json").read_text()) for name in ("run", "unbroken")]
    assert plans[0] == plans[1]
    with pytest.raises(UserError, match=r"stages\.12: there -> absent"):
        run(config(**{**ahead, "data.stages": []}))


def test_ramps_train_on_the_tokens_of_the_full_length(config: Make, tmp_path: Path) -> None:
    settings = {
        "data.sequence_ramp": {5: 6, 10: 12},
        "data.batch_ramp": {5: 32, 10: 16},
        "data.packing": "best_fit",
    }
    run(config(**settings))
    rows = read_metrics(Folder(tmp_path / "run"))
    assert [row["tokens"] for row in rows] == [step * 192 for step in range(1, 21)]
    assert rows[0]["loss"] - rows[-1]["loss"] > 0.05 and all(row["blocks_replaced"] == 0 for row in rows)


def test_other_data_under_the_same_config_are_refused(config: Make, tmp_path: Path) -> None:
    from tests.train.conftest import write_shards

    run(config(**{"schedule.steps": 6}))
    other = write_shards(Folder(tmp_path / "other"), {"wiki": 4, "books": 3, "code": 2})
    with pytest.raises(UserError, match=r"sources\.wiki\.tokens"):
        run(config(**{"schedule.steps": 6, "data.shards": other.url}))


def test_a_truncated_last_line_is_mended_and_lost_rows_come_back(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config(output=str(tmp_path / "unbroken")))
    with monkeypatch.context() as patch:
        crash_at(patch, 13)
        with pytest.raises(Crash):
            run(config())
    file = tmp_path / "run/metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:4] + lines[11:13]) + b'{"step": 14, "lo')
    run(config())
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))
