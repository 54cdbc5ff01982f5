"""The judge: the four ways in which a mean-and-deviation detector fails (OLMo-core's, by its formula), and properties."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.guard import GuardConfig
from corpusmill.train.guard.judge import History, StepSignals, Verdict, judge, limits, observe, unhealthy

CONFIG = GuardConfig()
NAN, INF = math.nan, math.inf


def noise(count: int, seed: int = 0, kind: str = "normal") -> np.ndarray:
    """Losses around 3 with deviations of 0.1 in steps of training."""
    rng = np.random.default_rng(seed)
    return 3 + 0.1 * (rng.normal(size=count) if kind == "normal" else rng.laplace(size=count))


def play(
    losses: Iterable[float], config: GuardConfig = CONFIG, history: History | None = None, first: int = 1, **more: Any
) -> tuple[History, list[Verdict]]:  # fmt: skip
    """A run of these losses: the history at its end, and the verdicts."""
    history, verdicts = history or History(), []
    for step, loss in enumerate(losses, first):
        seen = StepSignals(step, float(loss), 1.0, **more)
        verdict = judge(history, seen, config)
        history = observe(history, seen, verdict.kind == "go_on", config)
        verdicts.append(verdict)
    return history, verdicts


def kinds(verdicts: list[Verdict]) -> list[str]:
    return [verdict.kind for verdict in verdicts]


def olmo_core(losses: Iterable[float], window: int = 128) -> list[bool]:
    """SkipStepOptimizer's formula: skip what is above mean + 6 deviations of the last `window` losses, all counted."""
    past: list[float] = []
    skipped = []
    for loss in losses:
        tail = past[-window:]
        past.append(loss)
        enough = len(tail) >= window // 2
        skipped.append(enough and not (loss - np.mean(tail) <= 6 * np.std(tail, ddof=1)) if enough else False)
    return skipped


def test_a_nan_costs_one_step() -> None:
    """(a) There one NaN makes each comparison false as long as it is in the window: the run stands still."""
    losses = noise(300)
    losses[150] = NAN
    assert sum(olmo_core(losses)) == 129
    _, verdicts = play(losses)
    assert [step for step, kind in enumerate(kinds(verdicts)) if kind != "go_on"] == [150]
    assert verdicts[150].why[0].signal == "loss" and verdicts[150].why[0].value == "nan"


def test_a_rejected_spike_moves_no_limit() -> None:
    """(c) There a skipped spike stays in the window, and the next one passes below the limit that it raised."""
    losses = noise(300)
    losses[150], losses[170] = 8.0, 4.3
    assert [i for i, skipped in enumerate(olmo_core(losses)) if skipped] == [150]
    history, verdicts = play(losses)
    assert [i for i, kind in enumerate(kinds(verdicts)) if kind == "skip"] == [150, 170]
    without, _ = play(noise(300))
    assert limits(history, CONFIG, 301).loss == pytest.approx(limits(without, CONFIG, 301).loss, abs=0.02)


def test_a_restarted_run_is_guarded_at_once() -> None:
    """(d) There the window is not in the checkpoint: the first 64 steps after a restart pass whatever they are."""
    losses = noise(200)
    assert not any(olmo_core([*losses[:3], 8.0]))
    history, _ = play(losses)
    saved = json.dumps(history.as_json())
    assert len(saved) < 16_000
    again = History.from_json(json.loads(saved))
    assert again == history
    assert judge(again, StepSignals(201, 8.0, 1.0), CONFIG).kind == "skip"
    assert judge(again, StepSignals(201, 3.1, 1.0), CONFIG).kind == "go_on"
    assert History.from_json(None) == History()  # of a checkpoint from before the guard


# (b), NaN x 0 in the optimizer's moments, is in test_mask.py.


def test_a_cluster_of_spikes_does_not_mask_itself() -> None:
    losses = np.concatenate([noise(200), np.linspace(3.0, 6.0, 12)])
    _, verdicts = play(losses)
    assert kinds(verdicts[:200]) == ["go_on"] * 200
    assert kinds(verdicts[-3:]) == ["roll_back"] * 3
    first = next(i for i, kind in enumerate(kinds(verdicts)) if kind == "skip")
    assert losses[first] < 4.2


def test_too_many_in_a_row_roll_back_to_before_the_first() -> None:
    history, _ = play(noise(100))
    _, verdicts = play([9.0, INF, NAN, 9.0, 9.0], history=history, first=101)
    assert kinds(verdicts) == ["skip"] * 4 + ["roll_back"]
    assert {verdict.first for verdict in verdicts} == {101}
    _, verdicts = play([9.0, 9.0, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0], history=history, first=101)
    assert (
        kinds(verdicts) == ["skip", "skip", "go_on", *["skip"] * 4, "roll_back"] and verdicts[-1].first == 104
    )


def test_too_many_in_a_window_roll_back() -> None:
    config = CONFIG.model_copy(update={"max_skips": 6})
    losses = noise(200)
    losses[100:200:5] = 9.0
    _, verdicts = play(losses, config)
    assert kinds(verdicts)[100:135:5] == ["skip"] * 6 + ["roll_back"]
    losses[100:200:5] = 3.0
    losses[20:200:25] = 9.0  # as many, but never so many in one window
    assert "roll_back" not in kinds(play(losses, config)[1])


def test_the_last_rollback_is_followed_by_a_stop() -> None:
    history, _ = play([*noise(100), 9.0, 9.0, 9.0, 9.0])
    for rollbacks, kind in ((0, "roll_back"), (3, "roll_back"), (4, "stop"), (9, "stop")):
        assert judge(history, StepSignals(105, 9.0, 1.0), CONFIG, rollbacks).kind == kind


def test_each_signal_is_judged_and_named() -> None:
    history, _ = play(noise(100), activation=2.0)
    for values, named in (
        ({"grad_norm": 50.0}, "grad_norm"),
        ({"grad_norm": NAN}, "grad_norm"),
        ({"loss": INF}, "loss"),
    ):
        verdict = judge(history, StepSignals(101, 3.0, 1.0, 2.0)._replace(**values), CONFIG)
        assert verdict.kind == "skip" and [reason.signal for reason in verdict.why] == [named]


def test_activations_that_stay_too_large_roll_back_and_a_moment_does_not() -> None:
    """A large one is of the weights: to skip the step would leave them so."""
    history, _ = play(noise(100), activation=2.0)
    once, verdicts = play(noise(19), history=history, first=101, activation=40.0)
    assert kinds(verdicts) == ["go_on"] * 19
    verdict = judge(once, StepSignals(120, 3.0, 1.0, 40.0), CONFIG)
    assert verdict.kind == "roll_back" and verdict.first == 101
    assert [(reason.signal, reason.limit) for reason in verdict.why] == [("activation", 12.0)]
    for calm in (2.0, None):
        assert judge(once, StepSignals(120, 3.0, 1.0, calm), CONFIG).kind == "go_on"
    silent = CONFIG.model_copy(update={"activation": None})
    assert set(kinds(play(noise(40), silent, history, 101, activation=40.0)[1])) == {"go_on"}


def test_a_constant_signal_may_still_move_a_little() -> None:
    """A MAD of 0 must not make any change suspicious."""
    history, _ = play([3.0] * 100)
    assert judge(history, StepSignals(101, 3.1, 1.5), CONFIG).kind == "go_on"
    assert judge(history, StepSignals(101, 3.2, 1.0), CONFIG).kind == "skip"


def test_another_mixture_has_a_history_of_its_own() -> None:
    history, _ = play(noise(100))
    new = History(values=history.values, skips=history.skips, since=101)
    assert judge(new, StepSignals(101, 7.0, 1.0), CONFIG).kind == "go_on"
    assert judge(new, StepSignals(101, NAN, 1.0), CONFIG).kind == "skip"


def test_overflows_of_fp16_are_the_scaler_s_until_the_scale_stays_at_the_floor() -> None:
    history, _ = play(noise(100), loss_scale=1024.0)
    scale, verdicts = 1024.0, []
    for step in range(101, 140):  # each step overflows, and the scaler halves
        seen = StepSignals(step, 3.0, INF, None, scale)
        verdicts.append(judge(history, seen, CONFIG))
        history = observe(history, seen, False, CONFIG)
        scale = max(scale / 2, 0.5)
        if verdicts[-1].kind == "roll_back":
            break
    assert (
        kinds(verdicts)[:10] == ["go_on"] * 10 and kinds(verdicts)[10] == "skip"
    )  # 1024 / 2^10 = 1 is the floor
    assert kinds(verdicts)[10:] == ["skip"] * 4 + ["roll_back"]
    assert unhealthy(history, CONFIG) == "loss scale 0.5 is too low"


def test_a_loss_scale_that_stays_low_rolls_back_though_no_step_is_bad() -> None:
    history, _ = play(noise(100), loss_scale=1024.0)
    history, verdicts = play(noise(19), history=history, first=101, loss_scale=1.0)
    assert kinds(verdicts) == ["go_on"] * 19
    verdict = judge(history, StepSignals(120, 3.0, 1.0, None, 0.5), CONFIG)
    assert verdict.kind == "roll_back" and verdict.first == 101 and verdict.why[0].signal == "loss_scale"
    assert judge(history, StepSignals(120, 3.0, 1.0, None, 2.0), CONFIG).kind == "go_on"


def test_health_is_of_skips_norms_and_trends() -> None:
    steady, _ = play(noise(100), activation=2.0)
    assert unhealthy(steady, CONFIG) is None and unhealthy(History(), CONFIG) is None
    skipped, _ = play([9.0, 3.0], history=steady, first=101)
    assert unhealthy(skipped, CONFIG) == "step 101 was skipped"
    assert unhealthy(play(noise(8), history=skipped, first=103)[0], CONFIG) is None  # eight good ones later
    for name, values in (
        ("loss", {"loss": 3.5}),
        ("grad_norm", {"grad_norm": 1.6}),
        ("activation", {"activation": 4.2}),  # not a spike, but a trend
    ):
        history = steady
        for step in range(101, 109):
            seen = StepSignals(step, 3.0, 1.0, 2.0)._replace(**values)
            assert judge(history, seen, CONFIG).kind == "go_on"
            history = observe(history, seen, True, CONFIG)
        assert (unhealthy(history, CONFIG) or "").startswith(name)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["normal", "laplace"]), fall=st.floats(0, 3))
def test_noise_is_not_judged_a_spike(seed: int, kind: str, fall: float) -> None:
    """Stated rate: none in normal noise, below 1 in 500 where the tails are heavy (Laplace); the loss may fall meanwhile."""
    losses = noise(700, seed, kind) + fall * np.exp(-np.arange(700) / 100)
    bad = sum(kind != "go_on" for kind in kinds(play(losses)[1]))
    assert bad <= (0 if kind == "normal" else 6)


@settings(max_examples=25, deadline=None)
@given(
    bad=st.dictionaries(st.integers(40, 180), st.sampled_from([NAN, INF, -INF, 1e9]), max_size=5),
    seed=st.integers(0, 99),
)
def test_what_is_not_accepted_changes_no_later_verdict(bad: dict[int, float], seed: int) -> None:
    """But by the values that are missing in its place."""
    clean = noise(200, seed)
    broken = clean.copy()
    for at, value in bad.items():
        broken[at] = value
    config = CONFIG.model_copy(update={"max_consecutive_skips": 5})
    history, verdicts = play(broken, config)
    assert [i for i, kind in enumerate(kinds(verdicts)) if kind == "skip"] == sorted(bad)
    kept, _ = play(clean, config)
    assert history.values == tuple(row for row in kept.values if row[0] - 1 not in bad)


def test_impossible_numbers_are_named() -> None:
    for given_, message in (
        ({"window": 16}, "set min_history to 16"),
        ({"max_skips": 2}, "set max_skips to 4"),
        ({"max_skips": 128}, "set max_skips to 127"),
        ({"delay": 1}, "delay: input should be greater than or equal to 2, is 1"),
        ({"loss": {"mad": 3}}, "did you mean 'mads'?"),
    ):
        with pytest.raises(UserError) as error:
            validate(GuardConfig, given_, "c.yaml")
        assert message in str(error.value)
