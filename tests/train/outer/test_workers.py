"""Workers that train by themselves: the algorithm written out, one worker is a plain run, plain averaging of every step is data
parallelism, restarts, lost workers, what is sent, and what is refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import load, validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.trainer import train
from tests.forks import launch

Make = Callable[..., dict[str, Any]]
AVERAGES = {"lr": 1.0, "momentum": 0.0}
STREAMING = {"every": 4, "fragments": 2, "delay": 1, "mix": 0.5, "lr": 0.7, "momentum": 0.0}
CASES: list[dict[str, Any]] = [
    {"every": 1, **AVERAGES}, {"every": 5, **AVERAGES}, {"every": 4}, {"every": 4, "nesterov": False},
    {"every": 4, "lr": 0.9, "momentum": 0.5, "bits": 16}, {"every": 4, "bits": 8},
    {"every": 6, "fragments": 3}, {"every": 6, "fragments": 3, "delay": 1, "mix": 0.5},
    {"every": 8, "fragments": 2, "delay": 3, "mix": 0.25, "bits": 8}, {"every": 5, "fragments": 5},
]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 3])
def test_it_is_the_algorithm_written_out(workers: int) -> None:
    done = launch(workers, "tests.train.outer.written_out", json.dumps(CASES))
    assert done.stdout.split("\n")[0] == "done" and done.returncode == 0, done.stdout + done.stderr


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.read_tensors(checkpoint.load_step(Folder(run), step))


def test_one_worker_that_averages_is_a_plain_run_to_the_bit(config: Make, tmp_path: Path) -> None:
    more = {"schedule.steps": 8, "optimizer.kind": "muon", "model.dropout": 0.1}
    plain = train(TrainConfig.model_validate(config(**more, output=str(tmp_path / "plain"))))
    for every in (1, 3):
        found = train(TrainConfig.model_validate(config(**more, outer={"every": every, **AVERAGES})))
        assert found["weights_xxh3"] == plain["weights_xxh3"] and found["validation"] == plain["validation"]
        Folder(tmp_path / "run").delete()


def test_workers_that_average_every_step_of_sgd_are_data_parallel(
    config: Make, write_config: Callable[..., Path], tmp_path: Path
) -> None:
    more = {
        "schedule.steps": 8,
        "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.0, "grad_clip": None},
        "data.micro_batch": 2,
    }
    train(TrainConfig.model_validate(config(**more, output=str(tmp_path / "one"))))
    file = write_config(**more, outer={"every": 1, **AVERAGES})
    done = launch(2, "corpusmill.train", file)
    assert done.returncode == 0, done.stderr
    one, two = (weights(tmp_path / name, 8) for name in ("one", "run"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-6, rtol=1e-5, msg=name)
    rows = [read_metrics(Folder(tmp_path / name)) for name in ("one", "run")]
    assert [row["loss"] for row in rows[1]] == pytest.approx([row["loss"] for row in rows[0]], rel=1e-5)
    assert rows[1][-1]["validation"] == pytest.approx(rows[0][-1]["validation"], rel=1e-5)


def rows_of(run: Path) -> list[tuple[Any, ...]]:
    return [(row["step"], row["loss"], row.get("validation")) for row in read_metrics(Folder(run))]


@pytest.mark.parametrize(
    ("outer", "last"), [(STREAMING, (2, 5, 6)), ({"every": 3, "lr": 0.7, "momentum": 0.0, "bits": 8}, (4, 6))],
    ids=["streaming", "8 bits"],
)  # fmt: skip
def test_workers_that_are_killed_within_a_round_end_the_same(
    write_config: Callable[..., Path], tmp_path: Path, outer: dict[str, Any], last: tuple[int, ...]
) -> None:
    """By SIGKILL, before an exchange, while a fragment is under way, and after it has arrived."""
    more = {
        "schedule.steps": 10,
        "checkpoint.every": 1,
        "validation.every": 5,
        "data.micro_batch": 2,
        "outer": outer,
    }

    def run(name: str, *dies: int) -> tuple[str, list[tuple[Any, ...]]]:
        file = write_config(**more, output=str(tmp_path / name))
        for step in dies:
            done = launch(2, "tests.train.test_resume:dies", str(file), step, "never")
            assert -signal.SIGKILL in done.codes, done.stderr
        done = launch(2, "corpusmill.train", str(file))
        assert done.returncode == 0, done.stderr
        return checkpoint.open_step(Folder(tmp_path / name), 10).weights_xxh3, rows_of(tmp_path / name)

    assert run("killed", *last) == run("unbroken")


def test_a_lost_worker_and_one_that_comes_leave_a_run_that_continues(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    more = {
        "schedule.steps": 12,
        "checkpoint.every": 2,
        "data.micro_batch": 2,
        "outer": {**STREAMING, "bits": 8},
    }
    file = write_config(**more)
    done = launch(4, "tests.train.test_resume:dies", str(file), 5, "never")
    assert -signal.SIGKILL in done.codes
    for workers, last in ((2, 8), (4, 12)):
        file.write_text(json.dumps({**json.loads(file.read_text()), "stop_after": last}))
        done = launch(workers, "corpusmill.train", str(file))
        assert done.returncode == 0, done.stderr
    rows = read_metrics(Folder(tmp_path / "run"))
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert all(row["loss"] < 5 for row in rows) and rows[-1]["loss"] < rows[0]["loss"]
    # The model of a run is the weights in common, for all that read it.
    kept = checkpoint.load_step(Folder(tmp_path / "run"), 12)
    states = {name.partition("/")[0] for name in kept.part(checkpoint.OPTIMIZER)}
    assert {f"{key}.{n}" for key in ("exp_avg", "local") for n in range(4)} <= states
    local = checkpoint.read_tensors(kept, checkpoint.OPTIMIZER, "local.3")
    assert all(
        torch.equal(local[f"local.3/{name}"], value) for name, value in checkpoint.read_tensors(kept).items()
    )


@pytest.mark.parametrize(("bits", "size"), [(32, 4.0), (16, 2.0), (8, 1.0)])
def test_what_a_worker_sends_is_counted(config: Make, tmp_path: Path, bits: int, size: float) -> None:
    settings = config(**{"schedule.steps": 8}, outer={"every": 4, "momentum": 0.0, "bits": bits})
    found = train(TrainConfig.model_validate(settings))
    rows = read_metrics(Folder(tmp_path / "run"))
    scales = 4 * len(weights(tmp_path / "run", 8)) if bits == 8 else 0
    assert [row["outer_bytes"] for row in rows][2:8:4] == [0, found["parameters"] * size + scales]
    assert rows[-1]["outer_bytes"] == 2 * (found["parameters"] * size + scales)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outer": {"every": 6, "fragments": 4}}, "fragments 4 does not divide every 6: set every to 8"),
        ({"outer": {"every": 6, "fragments": 3, "delay": 2}}, "delay 2 is not below every / fragments, 2"),
        ({"outer": {"every": 2}}, "every 2 leaves 10 exchanges, too few for momentum 0.9: set every to 1 or less, or momentum to 0 and lr to 1"),
        ({"outer": {"every": 1}, "parallel.zero": 1}, "a worker is one process with a whole model: set parallel.zero to 0"),
        ({"outer": {"every": 1}, "optimizer.ema": 0.9}, "leave optimizer.ema out"),
        ({"outer": {"every": 1}, "optimizer.state_bits": 8}, "set optimizer.state_bits to 32"),
        ({"outer": {"every": 1}, "precision": "fp16"}, "set precision to bf16 or fp32"),
        ({"outer": {"every": 1}, "model.moe": {"experts": 2}}, "set it to loss or none"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(config: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        validate(TrainConfig, config(**settings), "train.yaml")
    assert message in str(error.value)


def test_the_outer_step_may_not_change_within_a_run(write_config: Callable[..., Path]) -> None:
    file = write_config(**{"schedule.steps": 6}, outer={"every": 2, **AVERAGES})
    train(load(TrainConfig, file, ["stop_after=3"]))
    with pytest.raises(UserError, match="outer.every: 2 -> 3"):
        train(load(TrainConfig, file, ["outer.every=3"]))
