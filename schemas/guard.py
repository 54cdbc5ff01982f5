"""The guard's numbers, and the entries of its journal.

Defaults are for a careful user: noise never trips them (`tests/train/guard/test_judge.py` states the rate), a step that is
tripped costs one batch, and a rollback costs what was trained since the last healthy checkpoint.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict


class LimitConfig(Strict):
    """A value is suspicious above median + mads x max(MAD, floor x |median|); the median and the median absolute
    deviation (MAD) are of accepted steps. One MAD is 0.67 standard deviations of a normal distribution."""

    mads: float = Field(gt=0, description="MADs above the median")
    floor: float = Field(ge=0, description="share of the median that a MAD counts as at least")


class HealthConfig(Strict):
    """What a checkpoint must show to be gone back to."""

    steps: int = Field(
        default=8, ge=1, description="last steps, of which none was skipped and whose medians are checked"
    )
    mads: float = Field(
        default=4.0,
        gt=0,
        description="MADs by which their medians may exceed those of the window before",
    )
    loss_scale: float = Field(default=1.0, gt=0, description="fp16: the loss scale must not be lower")


class CollapseConfig(Strict):
    """When the guard warns of a layer, by what is measured at logged steps; null: never. It is a warning alone."""

    entropy_share: float | None = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="attention entropy as a share of its maximum, below which it warns",
    )
    attention_logit: float | None = Field(
        default=100.0, gt=0, description="highest attention logit, above which it warns"
    )
    activation: float | None = Field(
        default=100.0,
        gt=0,
        description="largest element of the residual stream after a layer, mean of the positions, above which it warns",
    )
    rows: int = Field(default=3, ge=1, description="measured rows in a row beyond a bound, before it warns")


class GuardConfig(Strict):
    """What counts as a spike, and what is done about it. All of it may be changed when a run goes on: what was decided
    stands in the journal."""

    enabled: bool = True
    window: int = Field(
        default=128, ge=4, description="steps over whose accepted values the median is computed"
    )
    delay: int = Field(
        default=8, ge=2, description="latest steps excluded from it, so that a slow spike is detected"
    )
    min_history: int = Field(default=32, ge=4, description="with fewer accepted values, only NaN is detected")
    loss: LimitConfig = LimitConfig(mads=10.0, floor=0.005)
    grad_norm: LimitConfig = LimitConfig(mads=20.0, floor=0.1)
    activation: LimitConfig | None = Field(
        default=LimitConfig(mads=20.0, floor=0.25),
        description="RMS of the last norm's input; null: not checked",
    )
    loss_scale_floor: float = Field(
        default=1.0, gt=0, description="fp16: a loss scale at or below it is too low"
    )
    patience: int = Field(
        default=20,
        ge=1,
        description="steps in a row with too low a loss scale, or too large activations, before a rollback",
    )
    max_consecutive_skips: int = Field(
        default=4, ge=0, description="suspicious steps skipped in a row; one more causes a rollback"
    )
    max_skips: int = Field(default=16, ge=0, description="the same among the last `window` steps")
    margin: int = Field(
        default=8, ge=0, description="batches skipped after a rollback beyond the suspicious ones"
    )
    lr_factor: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="factor of the learning rate after a rollback; several multiply",
    )
    lr_steps: int = Field(default=200, ge=0, description="steps with this rate after the suspicious one")
    lr_ramp: int = Field(
        default=200, ge=0, description="steps after those, over which the rate rises back linearly"
    )
    max_rollbacks: int = Field(
        default=4, ge=0, description="rollbacks within `rollback_window` steps; one more stops the run"
    )
    rollback_window: int = Field(default=5000, ge=1, description="steps")
    healthy: HealthConfig = HealthConfig()
    collapse: CollapseConfig = CollapseConfig()
    documents: int = Field(
        default=16, ge=0, le=256, description="ids of an offending batch in log and journal"
    )

    @model_validator(mode="after")
    def numbers(self) -> GuardConfig:
        if self.min_history > self.window:
            raise ValueError(
                f"min_history {self.min_history} exceeds window {self.window}, which never holds as many: set min_history"
                f" to {self.window}"
            )
        if self.max_skips < self.max_consecutive_skips:
            raise ValueError(
                f"max_skips {self.max_skips} is below max_consecutive_skips {self.max_consecutive_skips}: set max_skips to"
                f" {self.max_consecutive_skips}"
            )
        if self.max_skips >= self.window:
            raise ValueError(
                f"max_skips {self.max_skips} leaves nothing of a window of {self.window}: set max_skips to {self.window - 1}"
            )
        return self


class Reason(Strict):
    """One signal that was out of bounds. Numbers that are not finite are written as words."""

    signal: str
    value: float | str
    limit: float | str


class SkippedData(Strict):
    """Batches passed over before `step` takes its own: of sequence numbers `n[0]` to below `n[1]`."""

    step: int = Field(ge=1)
    batches: int = Field(ge=1)
    n: tuple[int, int]


class JournalEntry(Strict):
    """A line of journal.jsonl: `skip` (the optimizer did not step), `rollback`, `stop`, `resume` (a process took up the
    checkpoint of `step`), `replay` (the entries before are another run's, and decide in the detector's place)."""

    v: Literal[1] = 1
    entry: int = Field(ge=1, description="its number in the journal")
    kind: Literal["skip", "rollback", "stop", "resume", "replay"]
    step: int = Field(ge=0, description="at which it was decided")
    why: list[Reason] = Field(default=[])
    note: str | None = None
    to_step: int | None = None
    healthy: bool | None = Field(default=None, description="whether the restored checkpoint was healthy")
    skipped: SkippedData | None = None
    lr_factor: float | None = None
    until_step: int | None = Field(default=None, description="last step with the lowered rate")
    back_step: int | None = Field(default=None, description="first step at the full rate again")
    documents: dict[str, list[str]] = Field(default={}, description="source -> some ids of the step's batch")
    time: str = ""

    def dumped(self) -> dict[str, Any]:
        """Without what the kind of entry does not have."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"v": self.v}
