"""What a run's folder holds of its evaluation on tasks: `evaluation/results.json` with the figures of each task, and
`evaluation/items/<task>.jsonl` with every item, from which all figures can be computed again.

Other figures of the same items (bias, calibration, contamination, comparisons of two models) are computed from the items alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field

from corpusmill.schemas.manifest import Strict, hash_json

RESULTS = "evaluation/results.json"
CONTAMINATION = "evaluation/contamination.json"
SPEED = "evaluation/speed.json"
ITEMS = "evaluation/items"  # folder of <task>.jsonl
CALIBRATION = "evaluation/calibration.json"
DOCUMENTS = "evaluation/documents"  # folder of <source>.parquet

# `<source>.parquet`: the losses of the documents of a validation split, a row a document.
DOCUMENT_LOSSES = pa.schema(
    [
        ("doc_id", pa.binary(16)),
        ("tokens", pa.int64()),
        ("nats", pa.float64()),  # sum of the losses of its tokens
        (
            "bytes",
            pa.float64(),
        ),  # UTF-8, estimated: its characters times the bytes per character of the split
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
    question: str = Field(
        default="", description="what of it is the item's own: without the description and the examples"
    )
    choices: list[str] = Field(default=[], description="texts that were scored after it")
    logprobs: list[float] = Field(default=[], description="of each choice: sum over its tokens, nats")
    tokens: list[int] = Field(default=[], description="of each choice: how many")
    greedy: list[bool] = Field(default=[], description="of each choice: whether greedy decoding gives it")
    unconditional: list[float] = Field(default=[], description="of each choice without the prompt, nats")
    gold: int | None = Field(default=None, description="place of the right choice")
    golds: list[int] = Field(default=[], description="places of all right choices, if there are several")
    core: bool | None = Field(
        default=None,
        description="whether it is right by CORE's rule: of choices the highest mean log-probability of the tokens in which"
        " they differ, of one continuation greedy decoding; null: CORE has no such kind, or the task is about bias",
    )
    references: list[str] = Field(default=[], description="right texts, for generated ones")
    answers: list[str] = Field(
        default=[], description="right choices or texts: what the corpus is searched for beside the question"
    )
    generated: str | None = Field(default=None, description="text that the model generated")
    metrics: dict[str, float] = Field(
        description="of this item, e.g. acc 0 or 1; a task's figure is their mean"
    )
    sums: dict[str, list[float]] = Field(
        default={},
        description="by metric: what its figure is computed from, summed over items (of corpus BLEU, numbers of n-grams)",
    )
    fields: dict[str, Any] = Field(
        default={}, description="of the data, as the task names them: for bias and error analysis"
    )

    @property
    def right_choices(self) -> list[int]:
        """Places of all right choices."""
        return self.golds or ([] if self.gold is None else [self.gold])


def question_hash(row: Mapping[str, Any]) -> str:
    """Of a line of `<task>.jsonl`: equal where the same is asked, whichever model answers, with whichever examples before it."""
    fields = ("question", "choices", "references", "answers", "gold", "golds")
    return hash_json([None if row.get(name) in (None, "", []) else row[name] for name in fields])


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
    method: str = Field(
        description="of the interval: clt, clustered, wilson, agresti-min, agresti-caffo, seeds, bootstrap or t over folds"
    )


class TaskResult(Strict):
    """Figures of a task."""

    task: str
    task_hash: str = Field(description="of all that the figures depend on but the weights")
    questions_hash: str = Field(
        default="", description="of the task's definition and data: what two models must share to be compared"
    )
    limit: int | None = Field(default=None, description="items that were asked for (--limit); null: all")
    context: int | None = Field(default=None, description="positions of the model: more is cut")
    items: int
    fewshot: int = Field(description="examples in each prompt")
    chance: float | None = Field(description="expected accuracy of a guess")
    bias: bool = Field(
        default=False, description="it shows a bias, not a skill: not in CORE's mean, nor in calibration"
    )
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


class TrainedDocument(Strict):
    """A document of the corpus that holds an item: `share` of the item's words."""

    item: str
    doc_id: str = Field(description="hex; `corpusmill why` and `corpusmill find` take it")
    source: str
    share: float


class ContaminatedTask(Strict):
    """A task's figure on all items, and without those that the corpus holds."""

    task: str
    task_hash: str = Field(description="of the result whose items these are")
    metric: str
    searched: int = Field(description="items that could be searched for")
    not_searched: dict[str, int] = Field(default={}, description="the others, by reason")
    found: int = Field(description="of those searched for, items that a document of the corpus holds")
    all: Estimate | None = Field(description="null: no item has a figure of its own")
    clean: Estimate | None = Field(description="of the items that were searched for and not found")
    contaminated: Estimate | None = Field(description="of the items found")
    difference: Estimate | None = Field(description="contaminated less clean")
    documents: list[TrainedDocument] = Field(description="for each item found those with the largest share")


class ContaminationResults(Strict):
    """`evaluation/contamination.json`: tasks beside the corpus that the model was trained on."""

    weights_hash: str
    report: str = Field(
        description="folder of `corpusmill decontaminate` that the items were searched for by"
    )
    ngram: int
    threshold: float
    tasks: list[ContaminatedTask]


class BatchSpeed(Strict):
    """Of texts that are generated together."""

    batch: int
    prefill_tokens_per_second: float = Field(description="of reading prompts; median of the rounds")
    prefill_low: float = Field(description="of the slowest round")
    prefill_high: float = Field(description="of the fastest round")
    decode_tokens_per_second: float = Field(
        description="of writing, after each text's first token; median of the rounds"
    )
    decode_low: float
    decode_high: float


class SpeedResults(Strict):
    """`evaluation/speed.json`: what `corpusmill evaluate --speed` measured."""

    step: int
    device: str
    threads: int
    precision: str
    prompt_tokens: int
    new_tokens: int
    rounds: int = Field(description="of each batch, after those that do not count")
    batches: list[BatchSpeed]
    first_token_p50: float = Field(description="seconds from a prompt to its first token, one at a time")
    first_token_p95: float
    memory_mib: float = Field(description="peak of the device, or of the process on a CPU")


class ReliabilityBin(Strict):
    """Answers of like confidence."""

    low: float = Field(description="lowest confidence")
    high: float = Field(description="highest confidence")
    n: int
    confidence: float = Field(description="mean")
    accuracy: float = Field(description="share of right answers: of a calibrated model about the confidence")


class Temperature(Strict):
    """A temperature fitted on one half of the items, and what it changes on the other half."""

    temperature: float = Field(
        description="divides the log-probabilities; above 1: the model is too confident"
    )
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
    brier: Estimate | None = Field(
        default=None, description="sum over the choices of (probability - 0 or 1)^2"
    )
    nll: Estimate | None = Field(default=None, description="-log(probability of the right choice), nats")
    fitted: Temperature | None = None
    bins: list[ReliabilityBin] = Field(description="of equal numbers, in ascending order")


class CalibrationResults(Strict):
    """`evaluation/calibration.json`."""

    name: str = Field(description="of the run")
    tasks: dict[str, Calibration] = Field(
        description="of choices, from the items of the last evaluation on tasks"
    )
    tasks_step: int | None = Field(description="of its checkpoint")
    next_token: dict[str, Calibration] = Field(
        default={}, description="of the validation split of each source"
    )
    next_token_step: int | None = None
