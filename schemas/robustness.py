"""Tasks under perturbed questions and other prompt formats: `evaluation/robustness.json`."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

ROBUSTNESS = "evaluation/robustness.json"


class Drop(Strict):
    """A metric under perturbed questions."""

    perturbed: Estimate
    difference: Estimate = Field(description="perturbed less unperturbed, paired by item")
    p: float | None = Field(description="two-sided, of no difference")


class PerturbedTask(Strict):
    """A task under one perturbation."""

    perturbation: str = Field(description="kind, rate and file, as typos:0.05")
    changed: int = Field(description="items whose text is another one")
    items: int = Field(description="that were scored with and without it")
    metrics: dict[str, Drop]


class FormatSpread(Strict):
    """A task's first metric under prompts that differ in their format alone (Sclar et al. 2023)."""

    metric: str
    formats: list[str] = Field(description="the first one is the task's own")
    values: list[Estimate]
    lowest: int = Field(description="number of the format with the lowest value, from 0")
    highest: int
    spread: float = Field(description="highest less lowest value")


class TaskRobustness(Strict):
    """A task's figures as it is, and under each change."""

    task: str
    questions_hash: str
    metrics: dict[str, Estimate]
    perturbed: list[PerturbedTask]
    formats: FormatSpread | None = None


class ContextDrop(Strict):
    """Bits per byte of the second halves of documents behind perturbed first halves."""

    perturbation: str
    changed: int = Field(description="documents whose first half is another text")
    perturbed: Estimate
    difference: Estimate = Field(description="perturbed less unperturbed, paired by document")
    p: float | None = Field(description="two-sided, of no difference")


class SourceContexts(Strict):
    """A source's validation split."""

    documents: int
    bytes: int = Field(description="of the second halves, which are scored")
    bits_per_byte: Estimate = Field(description="of them behind the first halves as they are")
    perturbed: list[ContextDrop]


class Robustness(Strict):
    """The whole file."""

    name: str
    step: int
    weights_hash: str
    seed: int
    choices: bool = Field(description="whether the choices were perturbed too")
    tasks: list[TaskRobustness]
    contexts: dict[str, SourceContexts] = Field(
        default={}, description="by source, with --context; the texts of sources in place of tasks"
    )
