"""The figures of `evaluation.html` and of the model card, from the files in a run's folder; of what was not measured, nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import (
    CALIBRATION,
    CONTAMINATION,
    SPEED,
    CalibrationResults,
    Estimate,
    EvaluationResults,
    Item,
    TaskResult,
)
from corpusmill.schemas.fairness import FAIRNESS, FairnessResults
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.calibration import of_choices
from corpusmill.train.evaluate.measures import measure
from corpusmill.train.evaluate.report import bias
from corpusmill.train.evaluate.report.failures import primary, shuffled, weak, words, worst
from corpusmill.train.evaluate.splits import EVALUATION
from corpusmill.train.evaluate.statistics import centred, estimate, of_core
from corpusmill.train.evaluate.stored import read_items, read_results
from corpusmill.train.run_folder import PLAN, RESULT, read_json

Facts = dict[str, Any]
OF_TRAINING = ("parameters", "tokens", "seconds", "tokens_per_second")  # known when a run is done
SAMPLES = 3  # of a task: right, wrong, and surely wrong ones
SLICE_VALUES = 40  # of one kind, in the table of a task
IN_CORPUS = "found in the corpus"
PREFERENCE = {"above chance": "stereotype likelier", "below chance": "stereotype less likely"}


def gather(config: TrainConfig, run: Folder) -> Facts:
    """Raises `UserError` if the run has not been evaluated, or its results are damaged."""
    results, splits, speed = read_results(run), read_json(run / EVALUATION), read_json(run / SPEED)
    fairness, calibration = _fairness(run, results), _calibration(run)
    steps = [part["step"] for part in (splits, speed, calibration) if part]
    steps += [one.step for one in (fairness, results) if one]
    if not steps:
        raise UserError(f"{run}: has no evaluation; run `corpusmill evaluate` first")
    found = results.tasks if results else {}
    items = {name: list(read_items(run, name).values()) for name in found}
    contamination = _contamination(run, results)
    tasks = [_task(one, in_corpus(items[name], name, contamination)) for name, one in found.items()]
    return {
        "name": config.name,
        "step": max(steps),
        "results": results.model_dump(exclude={"tasks"}) if results else None,
        "splits": splits,
        "tasks": tasks,
        "contamination": contamination,
        "calibration": calibration,
        "speed": speed,
        "fairness": fairness,
        "bias": bias.parts(fairness) if fairness else [],
        "core": core([(items[name], one.chance) for name, one in found.items()]),
        "result": dict.fromkeys(OF_TRAINING) | read_json(run / RESULT),
        "plan": {"sources": {}} | read_json(run / PLAN),
        "config": config.model_dump(mode="json"),
    }


def _contamination(run: Folder, results: EvaluationResults | None) -> Facts:
    """What `corpusmill contamination` found for these weights, of tasks whose items are still those that it looked at."""
    found = read_json(run / CONTAMINATION)
    if results is None or found.get("weights_hash") != results.weights_hash:
        return {}
    hashes = {name: one.task_hash for name, one in results.tasks.items()}
    tasks = [one for one in found["tasks"] if one.get("task_hash", "") == hashes.get(one["task"])]
    return {**found, "tasks": tasks} if tasks else {}


def in_corpus(items: Sequence[Item], task: str, contamination: Facts) -> list[Item]:
    """With a slice more: whether a document of the corpus was found to hold the item, if the task was searched for."""
    for one in contamination.get("tasks", ()):
        if one["task"] == task:
            known = {document["item"] for document in one["documents"]}
            values = ["yes" if item.id in known else "no" for item in items]
            return [
                item.model_copy(update={"slices": {**item.slices, IN_CORPUS: value}})
                for item, value in zip(items, values, strict=True)
            ]
    return list(items)


def _calibration(run: Folder) -> Facts:
    """What `corpusmill calibration --next-token` found, by source, and its step; that of tasks is computed from their items."""
    try:
        found = CalibrationResults.from_json((run / CALIBRATION).read(), run / CALIBRATION, UserError)
    except FileNotFoundError:
        return {}
    if not found.next_token:
        return {}
    sources = {name: one.model_dump() for name, one in found.next_token.items()}
    return {"step": found.next_token_step or 0, "sources": sources}


def _fairness(run: Folder, results: EvaluationResults | None) -> FairnessResults | None:
    """What `corpusmill fairness` found; None if of other weights than the tasks' results."""
    try:
        found = FairnessResults.from_json((run / FAIRNESS).read(), run / FAIRNESS, UserError)
    except FileNotFoundError:
        return None
    return None if results is not None and found.weights_hash != results.weights_hash else found


def _task(result: TaskResult, items: Sequence[Item]) -> Facts:
    metric, dumped = primary(items), result.model_dump()
    calibration = None if result.bias else of_choices(items)
    return {
        "measure": measure(metric),
        "measures": {name: measure(name) for name in result.metrics},
        "result": dumped,
        "calibration": calibration.model_dump() if calibration else None,
        "primary": metric,
        "verdict": _verdict(result, metric),
        "samples": _samples(items, metric) if metric else {},
        "weak": [
            one._asdict()
            | {
                "difference": one.difference.model_dump(),
                "examples": [_sample(item) for item in one.examples],
            }
            for one in (weak(items, metric) if metric else [])
        ],
        "words": [one._asdict() for one in words(items, metric)] if metric else [],
        "slices": {kind: list(values.items())[:SLICE_VALUES] for kind, values in dumped["slices"].items()},
    }


def _verdict(result: TaskResult, metric: str) -> str:
    """Of metrics of which a guess has a known value; a preference is no skill."""
    one = measure(metric)
    found = verdict(result.metrics.get(metric), result.chance) if one.chance else ""
    return found if one.better else PREFERENCE.get(found, found)


def verdict(estimate: Estimate | None, chance: float | None) -> str:
    """Whether a figure differs from a guess, in words."""
    if estimate is None or chance is None or estimate.low is None or estimate.high is None:
        return ""
    if estimate.low > chance:
        return "above chance"
    return "below chance" if estimate.high < chance else "at chance"


def core(tasks: Sequence[tuple[Sequence[Item], float | None]]) -> Facts | None:
    """CORE's mean above chance over tasks (their items, their chance level) that are of its kinds, with its standard error; None
    without one."""
    parts, errors = list[tuple[float, float]](), list[float | None]()
    for items, chance in tasks:
        if (part := of_core(items, chance)) is not None:
            found = estimate([float(item.core or 0) for item in items], [item.cluster for item in items])
            parts.append(part)
            errors.append(None if found.se is None else found.se / (1 - part[1]))
    known = [error for error in errors if error is not None]
    se = (
        math.sqrt(sum(error**2 for error in known)) / len(known)
        if known and len(known) == len(parts)
        else None
    )
    value = centred(parts)
    return None if value is None else {"value": value, "se": se, "tasks": len(parts)}


def _samples(items: Sequence[Item], metric: str) -> dict[str, list[Facts]]:
    """A fair sample of right and wrong items, by the hash of their ids, and the wrong ones of which the model was surest; of metrics
    by which no item is right or wrong the worst ones, if more or less of them is better."""
    wrong = worst(items, metric, len(items))
    if not measure(metric).right:
        return {"worst": [_sample(item) for item in wrong[:SAMPLES]]} if wrong else {}
    right = [item for item in shuffled(items) if item.metrics[metric] >= 0.5]
    sure = sorted((i for i in wrong if len(i.logprobs) > 1 and i.right_choices), key=lambda i: -_margin(i))
    return {
        "right": [_sample(item) for item in right[:SAMPLES]],
        "wrong": [_sample(item) for item in wrong[:SAMPLES]],
        "surely wrong": [_sample(item) for item in sure[:SAMPLES]],
    }


def _margin(item: Item) -> float:
    """By how many nats the model prefers another choice to the likeliest right one."""
    return max(item.logprobs) - max(item.logprobs[place] for place in item.right_choices)


def _sample(item: Item) -> Facts:
    chosen = item.logprobs.index(max(item.logprobs)) if item.logprobs else None
    rows = [
        {"text": text, "logprob": item.logprobs[n] if item.logprobs else None, "gold": n in item.right_choices, "chosen": n == chosen}
        for n, text in enumerate(item.choices)
    ]  # fmt: skip
    return {
        "id": item.id,
        "prompt": item.prompt,
        "choices": rows,
        "references": item.references,
        "generated": item.generated,
        "slices": item.slices,
    }
