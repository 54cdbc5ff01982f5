"""What a run has come to, through all restarts: seconds, energy, and the newest validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corpusmill.train.log.energy import Energy
from corpusmill.train.plateau import Plateau

if TYPE_CHECKING:
    from corpusmill.schemas.log import LogConfig
    from corpusmill.train.parallel.mesh import World


@dataclass
class Progress:
    """Of a run, through all restarts: seconds of training, energy, and the newest validation losses."""

    seconds: float = 0.0
    validation: dict[str, float] = field(default_factory=dict)
    validation_ema: dict[str, float] = field(default_factory=dict)  # of `optimizer.ema`
    validation_infill: dict[str, float] = field(default_factory=dict)  # of middles, with `data.infill`
    preference: dict[str, dict[str, float]] = field(default_factory=dict)  # of an objective, by source
    plateau: Plateau = field(default_factory=Plateau)
    energy: Energy | None = None  # of `log.energy`

    @classmethod
    def of(cls, config: LogConfig, world: World) -> Progress:
        """Of a run that begins."""
        return cls(energy=Energy(config, world.device) if config.energy else None)

    def passed(self, seconds: float, world: World) -> float:
        """Add the seconds since the last row, and the energy used since the last call; returns the seconds. Collective."""
        self.seconds += seconds
        if self.energy:
            self.energy.passed(world)
        return seconds

    def spent(self) -> dict[str, Any]:
        """What a row of metrics has of energy."""
        return self.energy.row() if self.energy else {}

    def results(self) -> dict[str, Any]:
        """What result.json has of validation and energy."""
        used = self.energy.result() if self.energy else {}
        return {"validation": self.validation, **self.beside(), **self.plateau.result(), **used}

    def beside(self) -> dict[str, Any]:
        """What a row of metrics has of the averaged weights, and of gaps that are filled."""
        found = {"validation_ema": self.validation_ema, "validation_infill": self.validation_infill}
        return {name: losses for name, losses in found.items() if losses}

    def preferences(self) -> dict[str, Any]:
        """What a row of metrics has of an objective on the validation split."""
        return {"validation_preference": self.preference} if self.preference else {}

    def saved(self) -> dict[str, Any]:
        """For a checkpoint."""
        used = {"energy": self.energy.saved()} if self.energy else {}
        return {
            "seconds": self.seconds, "validation": self.validation, **self.beside(), **self.plateau.saved(), **used,
        }  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        """Continue with what a checkpoint has."""
        self.validation, self.validation_ema = saved["validation"], saved.get("validation_ema", {})
        self.validation_infill = saved.get("validation_infill", {})
        self.plateau = Plateau(**saved.get("plateau", {}))
        self.seconds = max(self.seconds, saved["seconds"])
        if self.energy:
            self.energy.load(saved.get("energy"))
