"""What a run's folder holds of its evaluation on tasks: `evaluation/results.json` with the figures of each task, and
`evaluation/items/<task>.jsonl` with every item, from which all figures can be computed again.

Other figures of the same items (bias, calibration, contamination, comparisons of two models) are computed from the items alone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pydantic import Field

from corpusmill.schemas.manifest import Strict

RESULTS = "evaluation/results.json"
ITEMS = "evaluation/items"  # folder of <task>.jsonl
CALIBRATION = "evaluation/calibration.json"
DOCUMENTS = "evaluation/documents"  # folder of <source>.parquet

# `<source>.parquet`: the losses of the documents of a validation split, a row a document.
DOCUMENT_LOSSES = pa.schema(
    [
        ("doc_id", pa.binary(16)),
        ("tokens", pa.int64()),
        ("nats", pa.float64()),  # sum of the losses of its tokens
        ("bytes", pa.float64()),  # UTF-8, estimated: its characters times the bytes per character of the split
    ]
)


class Item(Strict):
    """One question and what the model did with it; a line of `<task>.jsonl`, in the order of the task's data."""

    id: str = Field(description="unique in the task, the same for every model")
    cluster: str = Field(
        description="items with the same one are not independent (a shared passage); else its `id`"
    )
    slices: dict[str, str] = Field(
        default={}, description="by what figures are split: subject, category, ..."
    )
    prompt: str = Field(description="text before the choice or the generated text, examples included")
    choices: list[str] = Field(default=[], description="texts that were scored after it")
    logprobs: list[float] = Field(default=[], description="of each choice: sum over its tokens, nats")
    tokens: list[int] = Field(default=[], description="of each choice: how many")
    greedy: list[bool] = Field(default=[], description="of each choice: whether greedy decoding gives it")
    unconditional: list[float] = Field(default=[], description="of each choice without the prompt, nats")
    gold: int | None = Field(default=None, description="place of the right choice")
    references: list[str] = Field(default=[], description="right texts, for generated ones")
    generated: str | None = Field(default=None, description="text that the model generated")
    metrics: dict[str, float] = Field(
        description="of this item, e.g. acc 0 or 1; a task's figure is their mean"
    )
    fields: dict[str, Any] = Field(
        default={}, description="of the data, as the task names them: for bias and error analysis"
    )


class Estimate(Strict):
    """A figure with its uncertainty."""

    value: float
    se: float | None = Field(
        description="standard error; null where there is no formula and no bootstrap was asked for"
    )
    low: float | None = Field(description="95 % interval")
    high: float | None
    n: int = Field(description="items")
    clusters: int = Field(description="independent groups of them")
    method: str = Field(description="of the interval: clt, clustered, wilson, agresti-min, seeds or bootstrap")


class TaskResult(Strict):
    """Figures of a task."""

    task: str
    task_hash: str = Field(description="of the task's definition, its data and the tokenizer")
    items: int
    fewshot: int = Field(description="examples in each prompt")
    chance: float | None = Field(description="expected accuracy of a guess")
    metrics: dict[str, Estimate]
    slices: dict[str, dict[str, dict[str, Estimate]]] = Field(
        default={}, description="slice, its value, metric"
    )
    skipped: dict[str, int] = Field(default={}, description="items that were not scored, by reason")
    notes: list[str] = Field(
        default=[], description="what a reader must know to compare the figures with others"
    )


class EvaluationResults(Strict):
    """`evaluation/results.json`."""

    name: str = Field(description="of the run")
    step: int
    weights_hash: str
    tokenizer_hash: str
    precision: str
    version: str = Field(description="of CorpusMill")
    tasks: dict[str, TaskResult]


class ReliabilityBin(Strict):
    """Answers of like confidence."""

    low: float = Field(description="lowest confidence")
    high: float = Field(description="highest confidence")
    n: int
    confidence: float = Field(description="mean")
    accuracy: float = Field(description="share of right answers: of a calibrated model about the confidence")


class Temperature(Strict):
    """A temperature fitted on one half of the items, and what it changes on the other half."""

    temperature: float = Field(description="divides the log-probabilities; above 1: the model is too confident")
    n: int = Field(description="items of the other half")
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float


class Calibration(Strict):
    """How far confidence is from accuracy. Confidence: the probability of the likeliest choice among the choices, or of the likeliest
    next token."""

    n: int = Field(description="items with a right choice, or tokens")
    accuracy: float
    confidence: float
    ece: float = Field(
        description="expected calibration error: mean difference of confidence and accuracy, in bins of equal numbers"
    )
    ece_width: float = Field(description="the same in bins of equal width")
    ece_calibrated: float = Field(description="mean ece that a calibrated model shows on so many items")
    ece_calibrated_high: float = Field(description="which it exceeds in 5 % of samples")
    brier: Estimate | None = Field(default=None, description="sum over the choices of (probability - 0 or 1)^2")
    nll: Estimate | None = Field(default=None, description="-log(probability of the right choice), nats")
    fitted: Temperature | None = None
    bins: list[ReliabilityBin] = Field(description="of equal numbers, in ascending order")


class CalibrationResults(Strict):
    """`evaluation/calibration.json`."""

    name: str = Field(description="of the run")
    tasks: dict[str, Calibration] = Field(description="of choices, from the items of the last evaluation on tasks")
    tasks_step: int | None = Field(description="of its checkpoint")
    next_token: dict[str, Calibration] = Field(default={}, description="of the validation split of each source")
    next_token_step: int | None = None
