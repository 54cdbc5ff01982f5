"""What a training config logs: where rows of metrics go, how often, and what is measured beside the training."""

from __future__ import annotations

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict


class LogConfig(Strict):
    """metrics.jsonl always; the rest if wanted."""

    every: int = Field(default=10, ge=1, description="steps between two lines")
    tensorboard: bool = True
    wandb: bool = Field(
        default=False, description="Weights & Biases, if it is installed; offline without an API key"
    )
    dashboard: bool = Field(
        default=False, description="keep dashboard.html in the output up to date during the run"
    )
    profile: str | None = Field(
        default=None,
        pattern=r"^[1-9]\d*:[1-9]\d*$",
        description="first:last step of which each process writes a trace to profile/ in the output",
    )

    energy: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="kWh since the start, by the machine's counters (RAPL, NVML), or estimated where it has none",
    )
    carbon_intensity: float | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda value: value is None,
        description="of the electricity, g CO2e a kWh, for carbon_kg; null: none",
    )

    @model_validator(mode="after")
    def counted(self) -> LogConfig:
        if self.carbon_intensity is not None and not self.energy:
            raise ValueError(
                "carbon_intensity: has no effect without energy: set log.energy to true, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def profiled(self) -> LogConfig:
        first, last = self.profiled_steps or (1, 1)
        if first > last:
            raise ValueError(f"profile: {self.profile}: the first step is after the last: set {last}:{first}")
        return self

    @property
    def profiled_steps(self) -> tuple[int, int] | None:
        """First and last step of the profile."""
        if self.profile is None:
            return None
        first, _, last = self.profile.partition(":")
        return int(first), int(last)
