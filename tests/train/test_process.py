"""Signals are noted; Python's garbage is collected at set steps, and as before when a run has ended."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corpusmill.schemas.training import TrainConfig
from corpusmill.train import process, trainer
from corpusmill.train.process import Garbage, Stop


class Cycle:
    alive = 0

    def __init__(self) -> None:
        self.me = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """As in a program of its own: what tests/conftest.py has frozen is not."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def test_collected_at_its_steps_alone(unfrozen: None) -> None:
    garbage = Garbage(4)
    try:
        for step in range(1, 13):
            for _ in range(1000):
                Cycle()
            garbage.step(step)
            # At the second step, and at each fourth.
            assert Cycle.alive == (0 if step in (2, 4, 8, 12) else 1000 * (step % 4 - 2 * (step == 3)))
        assert gc.get_freeze_count() > 0 and not gc.isenabled()
    finally:
        garbage.release()
    assert gc.isenabled() and gc.get_freeze_count() == 0
    Garbage(None).step(4)
    assert gc.isenabled()


def test_what_a_program_has_frozen_stays_so() -> None:
    before = gc.get_freeze_count()
    assert before  # by tests/conftest.py
    garbage = Garbage(4)
    for step in range(1, 5):
        Cycle()
        garbage.step(step)
    assert Cycle.alive == 0
    garbage.release()
    # Some of them may have been freed meanwhile; `gc.unfreeze` would have left none.
    assert before - 1000 < gc.get_freeze_count() <= before and gc.isenabled()


def test_a_run_collects_at_its_steps(
    config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, at = list[int](), [0]
    healthy = trainer.train_step

    def step(state: Any, *rest: Any, **more: Any) -> Any:
        assert not gc.isenabled()
        found = healthy(state, *rest, **more)
        at[0] = state.step
        return found

    monkeypatch.setattr(trainer, "train_step", step)
    gc.callbacks.append(note := lambda phase, info: steps.append(at[0]) if phase == "start" else None)
    try:
        trainer.train(
            TrainConfig.model_validate(config(**{"memory.collect_every": 6, "validation.every": None}))
        )
    finally:
        gc.callbacks.remove(note)
    assert [number for number in dict.fromkeys(steps) if 0 < number < 20] == [2, 6, 12, 18] and gc.isenabled()


def test_the_second_signal_has_its_usual_effect_but_a_repeated_sigterm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        stop = Stop()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # by torchrun, which got it, too
        assert stop.signal == signal.SIGTERM and ended == []
        monkeypatch.setattr(process, "TOGETHER", 0.0)
        signal.raise_signal(signal.SIGTERM)
        assert ended == [signal.SIGTERM]
        stop = Stop()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
