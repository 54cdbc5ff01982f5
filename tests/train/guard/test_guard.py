"""The guard beside the loop: limits before a step, verdicts after it, one late where the device runs ahead."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.guard import GuardConfig
from corpusmill.schemas.training import TrainConfig, changed
from corpusmill.train.guard import guard as module
from corpusmill.train.guard.guard import NEVER, Guard
from corpusmill.train.guard.journal import dumped
from corpusmill.train.guard.judge import Limits
from corpusmill.train.parallel.mesh import World
from corpusmill.train.step import Metrics, TrainState
from tests.train.guard.test_journal import journal, rollback, skip


def guard_of(folder: Path, logged: list[str] | None = None, **settings: Any) -> Guard:
    config = GuardConfig.model_validate(
        {"window": 8, "min_history": 4, "delay": 2, "max_skips": 4, **settings}
    )
    log = logged.append if logged is not None else lambda line: None
    return Guard(config, Folder(folder), World(), lambda step: {"wiki": [f"doc{step}"]}, log)


def state_at(step: int) -> TrainState:
    return TrainState(None, None, None, torch.zeros(1, 2), step=step)  # type: ignore[arg-type]


def metrics(loss: float, taken: bool = True) -> Metrics:
    signals = torch.tensor([loss, 1.0, 0.0, float(taken)], dtype=torch.float64)
    return Metrics(0.1, torch.tensor(1.0), signals=signals)


def test_a_step_is_limited_then_judged_then_reported(tmp_path: Path) -> None:
    logged: list[str] = []
    guard = guard_of(tmp_path, logged)
    for step in range(1, 9):
        state = state_at(step - 1)
        guard.arm(state, since=1)
        assert state.lr_factor == 1.0 and state.limits is not None
        assert (state.limits[0] < math.inf) == (step >= 6)  # four values, and the delay
        assert guard.judge(metrics(3.0), step, now=False).kind == "go_on"
    guard.arm(state_at(8), since=1)
    assert guard.judge(metrics(9.0, taken=False), 9, now=False).kind == "go_on"  # all of it is done
    assert logged[0].startswith("guard: step 9: skipped; loss 9") and logged[1].endswith("wiki doc9")
    assert guard.skipped_since(8) == 1 and guard.skipped_since(9) == 0
    # Another process, with the checkpoint of step 8: the step is not taken again, and not noted twice.
    again = guard_of(tmp_path)
    again.load_state_dict({"journal": 0, "history": guard.history.as_json()})
    state = state_at(8)
    again.arm(state, since=1)
    assert state.limits == NEVER
    assert again.judge(metrics(3.0, taken=False), 9, now=True).kind == "go_on" and len(again.journal) == 1


def test_activations_that_grow_in_the_warm_up_are_no_reason_to_stop(tmp_path: Path) -> None:
    """With Muon and high rates they grow many times from what the initialisation gave them."""

    def verdicts(warmup: int) -> list[str]:
        guard = guard_of(tmp_path / str(warmup), patience=3)
        guard.in_warmup = lambda step: step <= warmup
        found = []
        for step in range(1, 40):
            activation = 1e-3 * 2**step if step <= 20 else 1e3 + 1e6 * (step > 35)
            guard.arm(state_at(step - 1), since=1)
            signals = torch.tensor([3.0, 1.0, activation, 1.0], dtype=torch.float64)
            measured = Metrics(0.1, torch.tensor(1.0), signals=signals)
            found.append(guard.judge(measured, step, now=False).kind)
        return found

    assert verdicts(0).index("roll_back") < 20
    assert verdicts(20) == ["go_on"] * 37 + ["roll_back"] * 2  # what grows after it is judged


def test_on_a_device_that_runs_ahead_the_verdict_comes_a_step_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = guard_of(tmp_path)
    waited: list[int] = []

    class Event:
        def synchronize(self) -> None:
            waited.append(1)

    monkeypatch.setattr(module, "_sent", lambda numbers: (numbers, Event()))
    monkeypatch.setattr(module, "ahead", lambda numbers: True)
    guard.judge(metrics(math.nan, taken=False), 1, now=False)
    assert not len(guard.journal) and not waited
    guard.judge(metrics(3.0), 2, now=False)
    assert [entry.step for entry in guard.journal.entries] == [1] and len(waited) == 1
    guard.judge(metrics(3.0), 3, now=True)  # before a checkpoint, everything
    assert [row[0] for row in guard.history.values] == [2, 3] and len(waited) == 3


def test_off_it_judges_nothing_but_keeps_to_the_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(dumped(journal(rollback(10, 5), skip(7)).entries))
    guard = guard_of(tmp_path, enabled=False)
    for step, limits, factor in ((5, None, 1.0), (6, None, 0.5), (7, NEVER, 0.5), (8, None, 0.5)):
        state = state_at(step - 1)
        guard.arm(state, since=1)
        assert (state.limits, state.lr_factor) == (limits, factor)


def test_a_replay_follows_the_journal_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(dumped(journal(skip(2), rollback(10, 5), skip(7)).entries))
    guard = guard_of(tmp_path / "run")
    guard.replay(str(other), fresh=True)
    for step, limits in ((2, NEVER), (6, Limits()), (7, NEVER)):
        state = state_at(step - 1)
        guard.arm(state, since=1)
        assert state.limits == limits
    assert (
        guard.judge(metrics(math.nan, taken=False), 6, now=True).kind == "go_on" and len(guard.journal) == 4
    )
    again = guard_of(tmp_path / "run")
    again.replay(str(other), fresh=False)  # after a kill
    assert not again.detects and len(again.journal) == 4
    for folder, fresh, url in (("run", False, "elsewhere"), ("new", False, other), ("new", True, "nowhere")):
        with pytest.raises(UserError, match="--replay"):
            guard_of(tmp_path / folder).replay(str(url), fresh)
    assert not (tmp_path / "new/journal.jsonl").exists()


def test_its_numbers_may_change_when_a_run_goes_on(config: Callable[..., dict[str, Any]]) -> None:
    before, after = (
        TrainConfig.model_validate(config(**more)).model_dump(mode="json")
        for more in ({}, {"guard.enabled": False, "guard.max_rollbacks": 9})
    )
    assert changed(before, after) == []
