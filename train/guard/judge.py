"""Whether a step's numbers are as good as those of the accepted steps before it: a pure function.

Medians and median absolute deviations (MAD) are taken over accepted, finite values in a delayed window: steps T - delay -
window < t <= T - delay. So a NaN spoils no later comparison, a rejected spike moves no limit, a slow spike does not hide
itself, and since checkpoints contain the history, a restarted run is guarded at once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from corpusmill.schemas.guard import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.schemas.guard import GuardConfig, LimitConfig

SIGNALS = ("loss", "grad_norm", "activation")


class StepSignals(NamedTuple):
    """The numbers of one step, over all processes. `activation`: RMS of the input of the last norm."""

    step: int
    loss: float
    grad_norm: float
    activation: float | None = None
    loss_scale: float | None = None


class Limits(NamedTuple):
    """The values above which a step is not taken; infinite where unknown."""

    loss: float = math.inf
    grad_norm: float = math.inf


Row = tuple[int, float, float, float | None]  # step, loss, grad_norm, activation


@dataclass(frozen=True)
class History:
    """The judge's state, as JSON part of every checkpoint. `values`: of accepted steps; `skips`: steps that were not;
    `since`: the first step of this mixture and batch size."""

    values: tuple[Row, ...] = ()
    skips: tuple[int, ...] = ()
    since: int = 1
    loss_scale: float | None = None
    low_scale: int = 0  # steps in a row whose loss scale was too low
    high_activation: int = 0  # and whose activations were too large

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any] | None) -> History:
        if not saved:
            return cls()
        return cls(**{**saved, "values": tuple(map(tuple, saved["values"])), "skips": tuple(saved["skips"])})


class Verdict(NamedTuple):
    """What to do after `step`; `first`: the first of the consecutive suspicious steps that it ends."""

    kind: Literal["go_on", "skip", "roll_back", "stop"]
    why: tuple[Reason, ...] = ()
    step: int = 0
    first: int = 0


def limits(history: History, config: GuardConfig, step: int) -> Limits:
    """The limits of `step`. Because of the delay they are known a step ahead."""
    return Limits(bound(history, config, step, "loss"), bound(history, config, step, "grad_norm"))


def bound(history: History, config: GuardConfig, step: int, signal: str) -> float:
    """The highest value of a signal at `step` that is not suspicious."""
    newest, limit = step - config.delay, getattr(config, signal)
    oldest = max(newest - config.window + 1, history.since)
    values = [value for at, value in known(history, signal) if oldest <= at <= newest]
    return above(values, limit) if limit and len(values) >= config.min_history else math.inf


def known(history: History, signal: str) -> list[tuple[int, float]]:
    """(step, value) of a signal's accepted values."""
    place = SIGNALS.index(signal) + 1
    return [(row[0], value) for row in history.values if isinstance(value := row[place], float)]


def above(values: Sequence[float], limit: LimitConfig, mads: float | None = None) -> float:
    """The highest value that is not suspicious beside these."""
    centre = median(values)
    spread = median([abs(value - centre) for value in values])
    return centre + (mads or limit.mads) * max(spread, limit.floor * abs(centre))


def judge(history: History, signals: StepSignals, config: GuardConfig, rollbacks: int = 0) -> Verdict:
    """What to do after the step `signals`; `rollbacks`: those within `rollback_window` before it."""
    last_resort: Literal["roll_back", "stop"] = "stop" if rollbacks >= config.max_rollbacks else "roll_back"
    low, high = slow(history, signals, config)
    for signal, count, value, limit in (
        ("loss_scale", low, signals.loss_scale, config.loss_scale_floor),
        ("activation", high, signals.activation, bound(history, config, signals.step, "activation")),
    ):
        if count >= config.patience:
            return Verdict(
                last_resort, (_reason(signal, value or 0.0, limit),), signals.step, signals.step - count + 1
            )
    if overflow(signals, config):
        return Verdict("go_on")
    why = tuple(
        _reason(signal, value, limit)
        for signal, value, limit in zip(
            SIGNALS, signals[1:3], limits(history, config, signals.step), strict=False
        )
        if not (math.isfinite(value) and value <= limit)
    )
    if not why:
        return Verdict("go_on")
    first = signals.step
    while first - 1 in history.skips:
        first -= 1
    recent = sum(step > signals.step - config.window for step in history.skips) + 1
    if signals.step - first + 1 > config.max_consecutive_skips or recent > config.max_skips:
        return Verdict(last_resort, why, signals.step, first)
    return Verdict("skip", why, signals.step, first)


def observe(history: History, signals: StepSignals, taken: bool, config: GuardConfig) -> History:
    """The history after a step; `taken`: whether the optimizer took it."""
    oldest = signals.step - config.delay - config.window
    low, high = slow(history, signals, config)
    history = replace(history, loss_scale=signals.loss_scale, low_scale=low, high_activation=high)
    if taken:
        row = (signals.step, signals.loss, signals.grad_norm, signals.activation)
        kept = (old for old in history.values if oldest < old[0] < signals.step)
        return replace(history, values=(*kept, row))
    if overflow(signals, config):
        return history
    return replace(
        history, skips=(*(step for step in history.skips if oldest < step < signals.step), signals.step)
    )


def overflow(signals: StepSignals, config: GuardConfig) -> bool:
    """Whether fp16's gradients overflowed, which lowers the loss scale and is no sign of a bad model."""
    scale = signals.loss_scale
    too_large = math.isfinite(signals.loss) and not math.isfinite(signals.grad_norm)
    return scale is not None and scale > config.loss_scale_floor and too_large


def unhealthy(history: History, config: GuardConfig) -> str | None:
    """Why a checkpoint with this history is not one to go back to, or None. A short history is no reason."""
    healthy = config.healthy
    scale = history.loss_scale
    if scale is not None and (scale < healthy.loss_scale or scale <= config.loss_scale_floor):
        return f"loss scale {scale:g} is too low"
    last = max([*(row[0] for row in history.values[-1:]), *history.skips[-1:]], default=0)
    if any(step > last - healthy.steps for step in history.skips):
        return f"step {history.skips[-1]} was skipped"
    for signal in SIGNALS:
        limit = getattr(config, signal)
        values = [value for at, value in known(history, signal) if at >= history.since]
        before, recent = values[: -healthy.steps], values[-healthy.steps :]
        if limit and len(before) >= config.min_history:
            most = above(before, limit, healthy.mads)
            if median(recent) > most:
                return f"{signal} {median(recent):.4g} > {most:.4g}"
    return None


def slow(history: History, signals: StepSignals, config: GuardConfig) -> tuple[int, int]:
    """Consecutive steps up to this one whose loss scale was too low, and whose activations were too large. Both depend on the
    weights, not on the batch: a single step proves little, and skipping it would not help."""
    low = signals.loss_scale is not None and signals.loss_scale <= config.loss_scale_floor
    high = (signals.activation or 0.0) > bound(history, config, signals.step, "activation")
    return history.low_scale + 1 if low else 0, history.high_activation + 1 if high else 0


def _reason(signal: str, value: float, limit: float) -> Reason:
    number, bound = (x if math.isfinite(x) else str(x) for x in (value, limit))
    return Reason(signal=signal, value=number, limit=bound)
