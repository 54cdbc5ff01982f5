"""The search config (one YAML file): which keys of a training config are tried, over which values, and how."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.training import SOURCE_NAME, OnRequest

OWN = ("name", "output", "stop_after", "may_change")  # keys that a search itself sets in its trials
IN_ROWS = (
    "validation",
    "loss",
    "loss_per_source",
    "tokens_per_second",
)  # of result.json and of metrics.jsonl


class Parameter(Strict):
    """The values of one key: `choices`, or from `low` to `high` (whole numbers if both are)."""

    choices: list[Any] | None = Field(default=None, min_length=1)
    low: int | float | None = None
    high: int | float | None = None
    log: bool = Field(default=False, description="drawn uniformly in the logarithm")
    step: int | float | None = Field(default=None, gt=0, description="low, low + step, ... up to high")
    points: int | None = Field(
        default=None, ge=2, description="`grid`: number of evenly spaced values from low to high"
    )

    @model_validator(mode="after")
    def one_of_two(self) -> Parameter:
        if self.choices is not None:
            if self.model_fields_set != {"choices"}:
                raise ValueError("give either choices, or low and high")
        elif self.low is None or self.high is None or self.low >= self.high:
            raise ValueError("give choices, or low and a high above it")
        elif self.log and (self.low <= 0 or self.step):
            raise ValueError("log needs a low above 0, and no step")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """(low, high) of a range."""
        assert self.low is not None and self.high is not None
        return self.low, self.high

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step or 1, int)

    def grid(self) -> list[Any]:
        """Every value of a grid, in rising order; raises `ValueError` if there is no end of them."""
        if self.choices is not None:
            return self.choices
        low, high = self.bounds
        if self.points is None and self.step is None:
            raise ValueError("a grid needs choices, or points or step beside low and high")
        if self.points is None:
            step = self.step or 1
            return [low + i * step for i in range(math.floor((high - low) / step * (1 + 1e-12)) + 1)]
        parts = [i / (self.points - 1) for i in range(self.points)]
        values = [low * (high / low) ** part if self.log else low + (high - low) * part for part in parts]
        values = [low, *values[1:-1], high]
        return list(dict.fromkeys(round(value) for value in values)) if self.whole else values


class HalvingConfig(Strict):
    """Successive halving, asynchronous (Li et al. 2020): at rungs `first`, `first` x factor, ... the best go on."""

    factor: int = Field(default=3, ge=2, description="one of this many trials continues")
    first: int | None = Field(default=None, ge=1, description="steps; default: validation.every")


class PopulationConfig(Strict):
    """Population-based training (Jaderberg et al. 2017)."""

    every: int | None = Field(
        default=None,
        ge=1,
        description="steps after which the worst quarter copies; default: a tenth of the run",
    )


class SearchConfig(Strict):
    """`corpusmill search CONFIG.yaml`: everything a search depends on."""

    name: str = Field(pattern=SOURCE_NAME, description="also the search's folder under runs/")
    output: str | None = Field(default=None, description="local folder of the search; default runs/<name>")
    config: str = Field(description="the training config (.yaml) that trials change")
    settings: dict[str, Any] = Field(
        default={}, description="dotted keys set in every trial: schedule.steps: 200"
    )
    objective: str = Field(
        default="validation", description="dotted key of result.json; of several numbers, the mean counts"
    )
    direction: Literal["minimize", "maximize"] = "minimize"
    sampler: Literal["grid", "random", "tpe", "successive_halving", "pbt"] = "tpe"
    trials: int | None = Field(
        default=None, ge=1, description="default: 20; `grid`: all; `pbt`: the population, 8"
    )
    seed: int = Field(default=0, ge=0, lt=2**32)
    parallel: int = Field(default=1, ge=1, description="trials at a time, each a process")
    space: dict[str, Parameter] = Field(min_length=1, description="dotted key -> its values")
    halving: HalvingConfig = HalvingConfig()
    population: PopulationConfig = PopulationConfig()

    @model_validator(mode="after")
    def possible(self) -> SearchConfig:
        for key in [*self.space, *self.settings]:
            if key in OWN:
                raise ValueError(f"{key}: is set by the search itself: leave it out")
        for key in self.space:
            if key in self.settings:
                raise ValueError(f"space.{key}: is in settings too: leave it out of one of them")
        if self.sampler == "grid":
            for key, parameter in self.space.items():
                try:
                    parameter.grid()
                except ValueError as error:
                    raise ValueError(f"space.{key}: {error}") from None
        if self.sampler == "pbt":
            bad = [key for key in self.space if key not in get_args(OnRequest)]
            if bad:
                raise ValueError(
                    f"space: pbt changes runs that have begun, and {', '.join(bad)} may not change in one (allowed:"
                    f" {', '.join(get_args(OnRequest))})"
                )
            if self.trials is not None and self.trials < 2:
                raise ValueError("trials: pbt needs a population of at least 2")
        if self.sampler == "successive_halving" and self.objective.split(".")[0] not in IN_ROWS:
            raise ValueError(
                f"objective: successive_halving compares runs under way: {self.objective} is known at the end only"
                f" (allowed: {', '.join(IN_ROWS)}, and keys in them)"
            )
        return self

    @property
    def folder(self) -> str:
        return self.output or f"runs/{self.name}"

    @property
    def total(self) -> int:
        """How many trials there are to be."""
        if self.sampler == "grid":
            size = math.prod(len(parameter.grid()) for parameter in self.space.values())
            return min(size, self.trials or size)
        return self.trials or (8 if self.sampler == "pbt" else 20)

    def combinations(self) -> list[dict[str, Any]]:
        """Every point of the grid, the last key changing fastest."""
        grids = [parameter.grid() for parameter in self.space.values()]
        return [dict(zip(self.space, values, strict=True)) for values in itertools.product(*grids)]
