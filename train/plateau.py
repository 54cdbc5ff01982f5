"""When validation no longer improves: the best step so far, whose checkpoint is kept, and whether the run ends (early stopping;
Prechelt 1998)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.schemas.validation import ValidationConfig


@dataclass
class Plateau:
    """`loss`: the lowest mean over sources, nats a token, of `step`; `since`: validations after it."""

    loss: float = math.inf
    step: int = 0
    since: int = 0

    def see(self, losses: Mapping[str, float], step: int, config: ValidationConfig) -> None:
        """A validation. Sources count alike; a loss that is not finite is no improvement, and before the
        first one that is, the guard's concern alone."""
        if config.patience is None or not losses:
            return
        mean = sum(losses.values()) / len(losses)
        if mean < self.loss - config.min_delta:
            self.loss, self.step, self.since = mean, step, 0
        elif self.step:
            self.since += 1

    def over(self, config: ValidationConfig) -> bool:
        """Whether the run is to end."""
        return config.patience is not None and self.since >= config.patience

    @property
    def pinned(self) -> tuple[int, ...]:
        """Steps whose checkpoints are kept whatever comes after."""
        return (self.step,) if self.step else ()

    def saved(self) -> dict[str, Any]:
        """For a checkpoint; empty before the first improvement."""
        return {"plateau": asdict(self)} if self.step else {}

    def result(self) -> dict[str, Any]:
        """For result.json."""
        return {"best_step": self.step, "best_validation": self.loss} if self.step else {}

    def line(self, step: int) -> str:
        """Why the run ends after `step`."""
        return f"stopping after step {step}: no validation since step {self.step} was better than its {self.loss:.4f}; its checkpoint is kept"
