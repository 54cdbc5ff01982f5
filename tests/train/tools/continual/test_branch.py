"""Decay branches of one trunk: its next steps to the bit while the rate is the same, exact rates, kills, mixtures, and an unchanged trunk."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.order import order
from corpusmill.train.data.planning import make_plan
from corpusmill.train.guard.guard import Guard
from corpusmill.train.guard.journal import read_entries
from corpusmill.train.guard.judge import Verdict
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.optim.make import rate_at
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.branch import decay_steps, prepare
from corpusmill.train.tools.continual.exposure import count, exposure
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.test_resume import TIMES, Crash, crash_at, outcome, run

Make = Callable[..., dict[str, Any]]
LR = 3e-3
# Rows span checkpoints; the moving average and dropout show whether their state and their steps continue.
STABLE = {
    "schedule.kind": "constant", "schedule.steps": 16, "schedule.warmup_steps": 2, "checkpoint.every": 4, "checkpoint.keep_last": 9,
    "model.dropout": 0.1, "optimizer.ema": 0.9, "log.every": 3, "validation.every": 8,
}  # fmt: skip


@pytest.fixture
def trunk(config: Make, tmp_path: Path) -> str:
    """16 steps at one rate after the warm-up, checkpoints at steps 4, 8, 12, 16."""
    made = config(**STABLE, output=str(tmp_path / "trunk"))
    run(made)
    return str(made["output"])


def branched(trunk: str, step: int, decay: str, *settings: str, **options: Any) -> tuple[TrainConfig, Folder]:
    """A branch, trained."""
    config = prepare(open_run(trunk), step, decay, settings=settings, **options)
    train(config)
    return config, Folder(config.output_url)


def files(folder: Folder, step: int) -> dict[str, str]:
    """Name of each file of tensors of a checkpoint -> its hash."""
    found = checkpoint.load_step(folder, step).manifest.files
    return {file.path: file.xxh3 for file in found if file.path.endswith(".safetensors")}


def hashes(folder: str) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): checksum(file.read_bytes())
        for file in Path(folder).rglob("*")
        if file.is_file()
    }


def rows(folder: Folder) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in read_metrics(folder)]


def test_while_the_rate_is_the_same_it_is_the_trunk_to_the_bit(trunk: str) -> None:
    before = hashes(trunk)
    config, out = branched(trunk, 8, "2", "checkpoint.every=1", steps=6, output=f"{trunk}-after")
    # Step 9 is the first one; up to step 12 the rate is the trunk's: weights, moments, moving average.
    assert sorted(checkpoint.steps(out)) == [9, 10, 11, 12, 13, 14]
    assert files(out, 12) == files(Folder(trunk), 12)
    ours, theirs = rows(out), rows(Folder(trunk))
    assert [row["step"] for row in ours] == [3, 6, 8, 9, 12, 14]
    assert ours[:5] == theirs[:5] and ours[4]["loss"] is not None
    assert [rate_at(config, step) for step in (9, 12, 13, 14)] == [LR, LR, LR / 2, 0.0]
    trained, other = (checkpoint.read_tensors(checkpoint.load_step(out, step)) for step in (13, 14))
    assert all(np.array_equal(value, other[name]) for name, value in trained.items())  # the last rate is 0
    assert hashes(trunk) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "fp16", "loss_scale": {"initial": 64.0, "growth_interval": 3}},
        {
            "optimizer.kind": "muon",
            "data.packing": "best_fit",
            "data.batch_ramp": {6: 4, 10: 8},
            "data.global_batch": 16,
        },
        {"schedule.kind": "wsd", "schedule.decay_share": 0.25, "schedule.floor": 0.1, "optimizer.lr": 6e-4},
        {"adapter": {"rank": 2}, "init_from": "BASE"},
    ],
    ids=["loss scale", "muon and ramps", "wsd with a floor", "adapter"],
)
def test_whatever_the_trunk_is(settings: dict[str, Any], config: Make, tmp_path: Path) -> None:
    if "init_from" in settings:
        base = config(output=str(tmp_path / "base"), **{"schedule.steps": 4, "schedule.warmup_steps": 1})
        run(base)
        settings = {**settings, "init_from": base["output"]}
    made = config(**{**STABLE, "schedule.steps": 20, **settings}, output=str(tmp_path / "trunk"))
    run(made)
    branch, out = branched(made["output"], 8, "2", steps=6)
    assert files(out, 12) == files(Folder(made["output"]), 12)
    peak = made["optimizer"]["lr"]
    assert [rate_at(branch, step) for step in (9, 12, 14)] == [peak, peak, 0.0]
    states = [checkpoint.open_step(Folder(one), 12).state for one in (out.url, made["output"])]
    assert (
        states[0]["loss_scale"] == states[1]["loss_scale"]
        and states[0]["loader"]["n"] == states[1]["loader"]["n"]
    )


@pytest.mark.parametrize("shape", ["linear", "sqrt"])
@pytest.mark.parametrize(("floor", "steps"), [(0.0, None), (0.25, 7)])
def test_the_rate_of_each_step(
    shape: Any, floor: float, steps: int | None, trunk: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "branch")
    config, _ = branched(
        trunk, 12, "5", f"schedule.floor={floor}", "log.every=1", shape=shape, steps=steps, output=out
    )
    last = 12 + (steps or 5)
    wanted = {}
    for step in range(13, last + 1):
        done = max(step - (last - 5), 0) / 5
        share = 1 - (math.sqrt(done) if shape == "sqrt" else done)
        wanted[step] = floor * LR + (LR - floor * LR) * share if done else LR
    found = {row["step"]: row["lr"] for row in read_metrics(Folder(out)) if row["step"] > 12}
    assert found == wanted and found[last] == pytest.approx(floor * LR)
    assert (
        config.schedule.steps == last
        and json.loads((tmp_path / "branch/result.json").read_text())["steps"] == last
    )


def test_the_length_of_a_decay_is_a_share_of_the_tokens(config: Make) -> None:
    made = TrainConfig.model_validate(config(**STABLE))
    for given, steps in (("10%", 2), ("25%", 3), ("12.5 %", 2), ("100%", 12), ("3", 3)):
        assert decay_steps(given, made, 12) == steps, given
    # 4 steps of 4 sequences, then 8: half of the tokens of step 8 are 3 steps; the decay begins at the step, not at its share of steps.
    ramped = TrainConfig.model_validate(config(**STABLE, **{"data.batch_ramp": {4: 4}}))
    assert decay_steps("50%", ramped, 8) == 3
    settings = {
        "schedule.kind": "wsd",
        "schedule.steps": 11,
        "schedule.decay_steps": 3,
        "schedule.floor": 0.0,
    }
    short = TrainConfig.model_validate(config(**{**STABLE, **settings}, **{"data.batch_ramp": {4: 4}}))
    rates = [rate_at(short, step) for step in range(8, 12)]
    assert rates[0] == LR and rates[1:] == pytest.approx([LR * 2 / 3, LR / 3, 0.0], abs=1e-12)
    for wrong, what in (
        ("0", "is 0 steps"),
        ("0%", "is 0 steps"),
        ("x", "must be a share"),
        ("-1", "must be a share"),
    ):
        with pytest.raises(UserError, match=what):
            decay_steps(wrong, made, 12)


def test_cut_at_every_step_it_ends_as_if_it_had_not_been(
    trunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"shape": "sqrt", "mixture": {"books": 1, "code": 3}}
    _, whole = branched(trunk, 8, "6", "checkpoint.every=3", **options, output=str(tmp_path / "whole"))
    expected = outcome(whole.url, 14)
    assert sorted(checkpoint.steps(whole)) == [9, 12, 14]
    for step in range(8, 14):
        out = str(tmp_path / f"cut-{step}")
        config = prepare(open_run(trunk), 8, "6", settings=["checkpoint.every=3"], **options, output=out)
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                train(config)
        train(load(TrainConfig, f"{out}/train.yaml"))
        assert outcome(out, 14) == expected, step


def dies(trunk: str, out: str, step: str, name: str) -> None:
    """`corpusmill branch`, by SIGKILL before the step after `step`, or when it writes the file `name`."""
    from corpusmill.train.commands.branch import branch

    healthy, write = trainer.train_step, Folder.write

    def die() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    trainer.train_step = lambda state, *a, **k: die() if state.step == int(step) else healthy(state, *a, **k)
    Folder.write = lambda self, data: die() if self.url.endswith(name) else write(self, data)  # type: ignore[method-assign]
    branch(trunk, 8, "6", mixture="books=1,code=3", output=out, set_=["checkpoint.every=3"], json_=True)


def test_killed_anywhere_the_same_command_continues_it(trunk: str, tmp_path: Path) -> None:
    before = hashes(trunk)
    whole, out = str(tmp_path / "whole"), str(tmp_path / "killed")
    done = launch(1, f"{__name__}:dies", trunk, whole, -1, "never")
    assert done.returncode == 0, done.stderr
    kills = (
        (-1, "train.yaml"),
        (-1, "config.json"),
        (8, "never"),
        (-1, "step-000009/state.json"),
        (10, "never"),
        (13, "never"),
    )
    for step, name in kills:
        done = launch(1, f"{__name__}:dies", trunk, out, step, name)
        assert done.codes == [-signal.SIGKILL], done.stderr
    done = launch(1, f"{__name__}:dies", trunk, out, -1, "never")
    assert done.returncode == 0, done.stderr
    assert outcome(out, 14) == outcome(whole, 14)
    results = [json.loads((Path(one) / "result.json").read_text()) for one in (out, whole)]
    assert results[0]["weights_xxh3"] == results[1]["weights_xxh3"]
    again = launch(1, f"{__name__}:dies", trunk, out, -1, "never")
    assert again.returncode == 0 and "nothing is left to do" in again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["weights_xxh3"] == results[1]["weights_xxh3"]
    assert hashes(trunk) == before
    # A branch that has begun needs its trunk no more.
    Path(trunk).rename(tmp_path / "elsewhere")
    assert train(load(TrainConfig, f"{out}/train.yaml"))["weights_xxh3"] == results[1]["weights_xxh3"]


def test_the_mixture_changes_at_the_step_and_no_sequence_is_read_again(config: Make, tmp_path: Path) -> None:
    mixed = {"data.weights": {"books": 1, "code": 1}, "validation.every": 16}
    made = config(**{**STABLE, **mixed}, output=str(tmp_path / "trunk"))
    run(made)
    trunk = str(made["output"])
    # `wiki`, the first source of the set, is one that the trunk has not read; `books` has its place in it.
    branch, out = branched(trunk, 8, "50%", mixture={"wiki": 1, "books": 1}, output=str(tmp_path / "branch"))
    shards = open_run_data(branch)
    assert (Path(out.url) / "plan.json").exists()
    plans = [
        make_plan(one.data, shards, one.seed)
        for one in (TrainConfig.model_validate(made), open_run(out.url)[0])
    ]

    def drawn(plan: Any, steps: Sequence[int]) -> dict[str, list[tuple[int, int, int]]]:
        found: dict[str, list[tuple[int, int, int]]] = {}
        for step in steps:
            at = order(plan, plan.numbers(step))
            for source, epoch, block, sequence in zip(*(part.tolist() for part in at), strict=True):
                found.setdefault(plan.sources[source].name, []).append((epoch, block, sequence))
        return found

    steps = range(1, 9)
    first, later = drawn(plans[0], steps), drawn(plans[1], range(9, 13))
    assert drawn(plans[1], steps) == first and set(first) == {"books", "code"}
    assert {name: len(found) for name, found in later.items()} == {"wiki": 16, "books": 16}
    assert not set(first["books"]) & set(later["books"]) and {epoch for epoch, *_ in later["books"]} == {0}
    sources = {row["step"]: set(row["loss_per_source"]) for row in read_metrics(out)}
    assert sources[6] == {"books", "code"} and sources[12] == {"wiki", "books"}
    assert list(sources) == [3, 6, 9, 12]
    # The row of step 9 spans the border: step 7 and 8 of the trunk, whose sums came with the checkpoint, and step 9.
    assert sources[9] == {"wiki", "books", "code"}
    table = exposure(count(*open_run(out.url)))
    tokens = {row.names[0]: row.tokens for row in table.sources}
    assert tokens == {"wiki": [16 * 24], "books": [(32 + 16) * 24], "code": [32 * 24]}
    assert [phase.step for phase in table.phases] == [12]


def test_in_two_processes(trunk: str, tmp_path: Path) -> None:
    _, alone = branched(trunk, 8, "4", output=str(tmp_path / "alone"))
    settings = ["data.micro_batch=2", "parallel.zero=2", "checkpoint.every=1"]
    for name in ("two", "cut"):
        prepare(open_run(trunk), 8, "4", settings=settings, output=str(tmp_path / name))
    for name, file in (("two", "train.yaml"), ("cut", "train.yaml")):
        if name == "cut":
            done = launch(2, "tests.train.finetune.phases", tmp_path / name / file, 10)
            assert -signal.SIGKILL in done.codes
        done = launch(2, "corpusmill.train", tmp_path / name / file)
        assert done.returncode == 0, done.stderr
    assert outcome(str(tmp_path / "cut"), 12)[0] == outcome(str(tmp_path / "two"), 12)[0]
    ours, wanted = (
        checkpoint.read_tensors(checkpoint.load_step(Folder(one), 12))
        for one in (tmp_path / "two", alone.url)
    )
    for name, value in ours.items():
        assert np.allclose(value, wanted[name], rtol=1e-3, atol=1e-4), name


def test_what_the_guard_had_decided_holds_in_the_branch(config: Make, tmp_path: Path) -> None:
    """A rate that a rollback lowered, and data that it passes over, are those of the trunk's next steps."""
    made = config(**STABLE, output=str(tmp_path / "trunk"))
    entry = {
        "v": 1, "entry": 1, "kind": "rollback", "step": 3, "to_step": 0, "healthy": True, "lr_factor": 0.5, "until_step": 10,
        "back_step": 20, "skipped": {"step": 3, "batches": 2, "n": [16, 32]}, "time": "",
    }  # fmt: skip
    (tmp_path / "trunk").mkdir()
    (tmp_path / "trunk/journal.jsonl").write_text(json.dumps(entry) + "\n")
    run(made)
    _, out = branched(str(made["output"]), 8, "2", steps=6)
    assert files(out, 12) == files(Folder(made["output"]), 12)
    assert rows(out)[2]["lr"] == LR / 2
    assert [entry.kind for entry in read_entries(out)] == ["rollback", "resume"]


def test_a_rollback_before_its_first_checkpoint_goes_to_the_trunk(
    trunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, done = Guard.judge, list[int]()

    def judge(self: Guard, metrics: Any, step: int, now: bool) -> Verdict:
        if step == 10 and not done:
            done.append(step)
            return Verdict("roll_back", step=10, first=10)
        return healthy(self, metrics, step, now)

    monkeypatch.setattr(Guard, "judge", judge)
    config, out = branched(trunk, 8, "6", output=str(tmp_path / "branch"))
    (rollback,) = [entry for entry in read_entries(out) if entry.kind == "rollback"]
    assert rollback.to_step == 8 and rollback.skipped and rollback.skipped.step == 10
    assert done and checkpoint.load_step(out, 14).step == config.schedule.steps


def test_a_branch_of_a_phase_and_of_a_branch(config: Make, trunk: str, tmp_path: Path) -> None:
    """A run that continued another one keeps that as its earlier phase, wherever the branch is."""
    start = {"run": trunk, "step": 12, "optimizer": True}
    made = config(**STABLE, output=str(tmp_path / "second"), init_from=start)
    run(made)
    (tmp_path / "deep").mkdir()
    _, first = branched(
        made["output"],
        8,
        "1",
        "checkpoint.every=1",
        "checkpoint.keep_last=9",
        steps=4,
        output=str(tmp_path / "deep/first"),
    )
    phase = json.loads((first / PHASE).read())["earlier"]
    assert phase["run"] == "../../trunk" and phase["step"] == 12
    # The branch stands for its trunk up to the step: each step is counted once.
    table = exposure(count(*open_run(first.url)))
    assert [one.step for one in table.phases] == [12, 12] and table.phases[0].run == trunk
    # And is a trunk itself, up to its decay.
    _, second = branched(first.url, 10, "2", "log.every=1", steps=3, output=str(tmp_path / "deep/second"))
    assert json.loads((second / PHASE).read()) == {"kind": "corpusmill-phase-v1", "earlier": phase}
    assert [row["lr"] for row in read_metrics(second)][-3:] == [LR, LR / 2, 0.0]
    assert [one.step for one in exposure(count(*open_run(second.url))).phases] == [12, 13]
