"""The plan of a run: what its stages will cost. `corpusmill.schemas.manifest.Figures` are the same for what came of it."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Figures, Strict


class StepPlan(Figures):
    """A step of a stage."""

    name: str
    kept_bytes: float = Field(
        default=0.0, ge=0, description="of those written, what stays when the stage is done"
    )
    one_core: bool = Field(
        default=False, description="runs on the driver or in one task, however many workers"
    )


class StagePlan(Figures):
    """A stage: sums over its steps, the largest memory of any."""

    name: str
    documents: float = Field(description="that come in (ingest: that come out)")
    text_bytes: float = Field(description="UTF-8, likewise")
    partitions: int = Field(ge=0, description="that it reads, or makes")
    kept_bytes: float = Field(ge=0, description="of the output")
    disk_bytes: float = Field(ge=0, description="of all that the run holds at most while the stage works")
    steps: tuple[StepPlan, ...]

    def figures(self) -> Figures:
        """Without the steps."""
        return Figures(**{name: getattr(self, name) for name in Figures.model_fields})


class RunPlan(Strict):
    """A whole run before it begins."""

    workers: int
    object_store: bool = Field(description="whether input and output lie in one, or on a local disk")
    input_bytes: float = Field(description="as stored")
    text_bytes: float
    documents: float
    stages: tuple[StagePlan, ...]
    total: Figures = Field(description="sums; of memory the most of any stage")
    kept_bytes: float = Field(description="of the finished run")
    disk_bytes: float = Field(description="that it needs at most while it runs")
    cost: float | None = Field(default=None, description="of the workers' time, in the unit of the price")
    bottleneck: str = Field(description="stage and step that take most of the time")
    warnings: tuple[str, ...] = ()

    def stage(self, name: str) -> StagePlan | None:
        """The plan of a stage; None if it is not in the plan."""
        return next((stage for stage in self.stages if stage.name == name), None)
