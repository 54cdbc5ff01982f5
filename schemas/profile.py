"""Where a run's time went: `profile.json` in its folder, by process, stage and phase. It adds up: every moment of a process is in one
phase. Not part of any hash."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict

FILE = "profile.json"


class PhaseCosts(Strict):
    """A phase of a stage in one process."""

    stage: str = Field(description="empty: the process itself, such as its start, or the plan of the run")
    phase: str = Field(description="what it did; of phases within each other the innermost")
    seconds: float = Field(ge=0, description="wall time; beyond the CPU time of its threads it waited")
    cpu_seconds: float = Field(ge=0, description="of all threads of the process meanwhile")
    read_bytes: int = Field(default=0, ge=0, description="asked of files and object stores")
    written_bytes: int = Field(default=0, ge=0)


class ProcessCosts(Strict):
    """A process from its start to the end of the run."""

    process: str = Field(description="driver, or worker and its number")
    phases: list[PhaseCosts] = Field(description="in the order in which they first came")

    @property
    def cpu_seconds(self) -> float:
        """Of all phases."""
        return sum(one.cpu_seconds for one in self.phases)

    @property
    def seconds(self) -> float:
        """Of all phases."""
        return sum(one.seconds for one in self.phases)


class RunProfile(Strict):
    """The last run that had something to do."""

    seconds: float = Field(
        ge=0, description="wall time from the start of the driver until its record was written"
    )
    cpu_seconds: float = Field(ge=0, description="of all processes")
    processes: list[ProcessCosts] = Field(description="the driver first")
