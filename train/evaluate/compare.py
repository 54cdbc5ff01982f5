"""`corpusmill compare-models`: the same items and documents under two models, or two groups of runs that differ in the seed; which
differences are beyond noise."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import RESULTS, EvaluationResults, Item, TaskResult
from corpusmill.train.evaluate.documents import kept
from corpusmill.train.evaluate.splits import EVALUATION
from corpusmill.train.evaluate.statistics import (
    Difference,
    detectable,
    estimate,
    holm,
    items_needed,
    linearised,
    seeds,
)
from corpusmill.train.evaluate.stored import read_items, read_results

ALPHA = 0.05
BYTES = "bits_per_byte"
Row = dict[str, Any]


class Run(NamedTuple):
    """What a run's folder has of its evaluation: on tasks, and on the validation split, of the checkpoint of `split_step`."""

    folder: Folder
    results: EvaluationResults | None
    documents: dict[str, pa.Table]
    split_step: int | None

    @property
    def tasks(self) -> dict[str, TaskResult]:
        return self.results.tasks if self.results else {}


class Paired(NamedTuple):
    """The items that all runs of both sides have. `values`: of each side, a row a run; `alone`: how many items only some runs have, on
    each side."""

    items: list[Item]
    values: tuple[list[list[float]], list[list[float]]]
    alone: tuple[int, int]

    def at(self, places: Sequence[int]) -> Paired:
        """Some of them."""
        a, b = ([[run[place] for place in places] for run in side] for side in self.values)
        return Paired([self.items[place] for place in places], (a, b), (0, 0))


def compare_models(
    a: Sequence[str],
    b: Sequence[str],
    tasks: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    by: str | None = None,
    detect: float | None = None,
) -> dict[str, Any]:
    """The runs `b` beside the runs `a` (folders or URLs), of which each side's differ in the seed alone.

    `tasks`: these alone; `metrics`: instead of each task's first; `by`: a key of the items' slices, by whose values each task is split
    as well; `detect`: a difference, for which the number of items is computed that would show it. Raises `UserError` for a folder
    without an evaluation, and for a task that the runs did not score in the same way.
    """
    sides = [open_evaluation(url) for url in a], [open_evaluation(url) for url in b]
    runs = [*sides[0], *sides[1]]
    chosen, left_out = shared_tasks(sides, tasks)
    rows: list[Row] = []
    slices: list[Row] = []
    for task in chosen:
        items = tuple([read_items(run.folder, task) for run in side] for side in sides)
        chosen_metrics = metrics or first_metric(sides[0][0].tasks[task], items[0][0])
        left_out += [] if chosen_metrics else [task]
        for metric in chosen_metrics:
            paired = pair(items[0], items[1], metric)
            if paired is None:
                left_out.append(f"{task}, {metric}")
                continue
            rows.append({"task": task, "metric": metric, **compared_row(paired, detect)})
            if by:
                slices += [
                    {"task": task, "metric": metric, "slice": value, **compared_row(part, detect)}
                    for value, part in by_slice(paired, by).items()
                ]
    documents = [] if tasks or metrics else [*compared_documents(sides, detect)]
    if not tasks and not metrics:
        known = {source for run in runs for source in run.documents} - {row["source"] for row in documents}
        left_out += [f"documents of {source}" for source in sorted(known)]
    if not rows and not documents:
        raise UserError(nothing_shared(sides, metrics))
    if by and not slices:
        keys = sorted({key for run in runs for result in run.tasks.values() for key in result.slices})
        raise UserError(f"--by {by}: no item has it; items have {', '.join(keys) or 'no slices'}")
    for family in (rows, slices, documents):
        adjust(family)
    return {
        "a": [described(run) for run in sides[0]], "b": [described(run) for run in sides[1]], "rows": rows,
        "slices": slices, "documents": documents, "not_compared": left_out, "notes": notes(sides, runs),
    }  # fmt: skip


def open_evaluation(url: str) -> Run:
    """The evaluation in a run's folder. Raises `UserError` if it has none."""
    folder = Folder(url)
    results = read_results(folder)
    step: int | None = None
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        step = int(json.loads((folder / EVALUATION).read())["step"])
    run = Run(folder, results, kept(folder), step)
    if results is None and not run.documents:
        raise UserError(
            f"{folder}: has no {RESULTS} and no losses of documents; run `corpusmill evaluate` on it first, with --tasks for tasks"
        )
    return run


def shared_tasks(
    sides: tuple[list[Run], list[Run]], wanted: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The tasks that every run has, of the wanted ones, and those that only some runs have. Raises `UserError` for a wanted one that is
    not among the first, and for one that differs between the runs."""
    runs = [run for side in sides for run in side]
    common = [name for name in runs[0].tasks if all(name in run.tasks for run in runs)]
    others = sorted({name for run in runs for name in run.tasks} - set(common))
    for name in wanted or ():
        if name not in common:
            raise UserError(
                f"--task {name}: not a task that all runs were scored on, which are {', '.join(common) or 'none'}{nearest(name, common)}"
            )
    common = [name for name in common if not wanted or name in wanted]
    for name in common:
        for other in runs[1:]:
            hashes = runs[0].tasks[name].task_hash, other.tasks[name].task_hash
            if hashes[0] != hashes[1]:
                raise UserError(
                    f"{name}: {runs[0].folder} and {other.folder} were not scored on the same task (task_hash {hashes[0][:12]} and"
                    f" {hashes[1][:12]}): its definition, data or tokenizer differ; evaluate both alike, or choose others with --task"
                )
    return common, [] if wanted else others


def first_metric(result: TaskResult, items: dict[str, Item]) -> list[str]:
    """The task's first metric that items have; none of a task whose metrics are of the whole list."""
    known = {name for item in items.values() for name in item.metrics}
    return [name for name in result.metrics if name in known][:1]


def pair(a: list[dict[str, Item]], b: list[dict[str, Item]], metric: str) -> Paired | None:
    """The items with a metric that all runs have, in the order of the first run; None if there are none."""
    having = [[{id for id, item in run.items() if metric in item.metrics} for run in side] for side in (a, b)]
    common = set.intersection(*having[0], *having[1])
    if not common:
        return None
    items = [item for id, item in a[0].items() if id in common]
    x, y = ([[run[item.id].metrics[metric] for item in items] for run in side] for side in (a, b))
    alone = [len(set.union(*side) - common) for side in having]
    return Paired(items, (x, y), (alone[0], alone[1]))


def by_slice(paired: Paired, by: str) -> dict[str, Paired]:
    """The items by the value of one of their slices, in the order of the values; items without it are in none."""
    places: dict[str, list[int]] = {}
    for place, item in enumerate(paired.items):
        if by in item.slices:
            places.setdefault(item.slices[by], []).append(place)
    return {value: paired.at(chosen) for value, chosen in sorted(places.items())}


def compared_row(paired: Paired, detect: float | None) -> Row:
    """Figures of both sides and of their difference, B less A."""
    a, b = paired.values
    clusters = [item.cluster for item in paired.items]
    means = [np.mean(side, axis=0).tolist() for side in paired.values]
    row = {
        "a": estimate(means[0], clusters).model_dump(),
        "b": estimate(means[1], clusters).model_dump(),
        **difference_of(seeds(b, a, clusters), detect),
    }
    return {**row, "only_a": paired.alone[0], "only_b": paired.alone[1]}


def difference_of(found: Difference, detect: float | None) -> Row:
    """A difference, the smallest one that so many items would show with probability 0.8, and how many items `detect` takes."""
    error, n = found.estimate.se, found.estimate.clusters
    row: Row = {"difference": found.estimate.model_dump(), "p": found.p}
    row["detectable"] = detectable(found.estimate)
    if detect is not None:
        row["items_needed"] = items_needed(detect, error * math.sqrt(n)) if error else None
    return row


def compared_documents(sides: tuple[list[Run], list[Run]], detect: float | None) -> Iterable[Row]:
    """Bits per byte of each source whose documents' losses all runs have, paired by document."""
    runs = [run for side in sides for run in side]
    for source in sides[0][0].documents:
        if not all(source in run.documents for run in runs):
            continue
        tables = [run.documents[source] for run in runs]
        names = [np.array(table["doc_id"].to_pylist(), dtype="S16") for table in tables]
        common = names[0]
        for other in names[1:]:
            common = np.intersect1d(common, other)
        if not len(common):
            continue
        orders = [np.argsort(name) for name in names]
        places = [
            order[np.searchsorted(name, common, sorter=order)]
            for name, order in zip(names, orders, strict=True)
        ]
        size = tables[0]["bytes"].to_numpy()[places[0]]
        values = [
            linearised(table["nats"].to_numpy()[place] / math.log(2), size)
            for table, place in zip(tables, places, strict=True)
        ]
        a, b = values[: len(sides[0])], values[len(sides[0]) :]
        alone = [len(name) - len(common) for name in names]
        yield {
            "source": source, "metric": BYTES, "a": estimate(np.mean(a, axis=0), proportion=False).model_dump(),
            "b": estimate(np.mean(b, axis=0), proportion=False).model_dump(), **difference_of(seeds(b, a), detect),
            "only_a": max(alone[: len(a)]), "only_b": max(alone[len(a) :]),
        }  # fmt: skip


def adjust(family: list[Row]) -> None:
    """Holm's correction over the rows of one table, and which of them differ beyond noise."""
    tested = [row for row in family if row["p"] is not None]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"], row["beyond_noise"] = p, p < ALPHA
    for row in family:
        if row["p"] is None:
            row["p_holm"], row["beyond_noise"] = None, False


def described(run: Run) -> dict[str, Any]:
    """A run in the result."""
    found = run.results
    return {
        "run": run.folder.url,
        "split_step": run.split_step,
        **({"name": found.name, "step": found.step, "weights_hash": found.weights_hash} if found else {}),
    }


def notes(sides: tuple[list[Run], list[Run]], runs: list[Run]) -> list[str]:
    """What a reader must know beside the figures."""
    lines = []
    known = [run.results for run in runs if run.results]
    weights = [{run.results.weights_hash for run in side if run.results} for side in sides]
    if weights[0] and weights[0] == weights[1] and all(run.results for run in runs):
        lines.append("A and B have the same weights")
    if len({found.precision for found in known}) > 1:
        lines.append("the runs were scored in different precisions")
    if len(runs) == 2:
        lines.append(
            "one run a side: the intervals are for these two checkpoints; runs that differ in the seed alone differ too, often by"
            " more (give further ones with --also-a and --also-b)"
        )
    return lines


def nothing_shared(sides: tuple[list[Run], list[Run]], metrics: Sequence[str] | None) -> str:
    """Why there is nothing to compare."""
    if metrics:
        known = sorted(
            {name for side in sides for run in side for r in run.tasks.values() for name in r.metrics}
        )
        return (
            f"--metric {', '.join(metrics)}: no task that all runs have has it; they have {', '.join(known)}"
        )
    names = [sorted({name for run in side for name in [*run.tasks, *run.documents]}) for side in sides]
    return (
        f"nothing that all runs were scored on: {sides[0][0].folder} has {', '.join(names[0])}; {sides[1][0].folder} has"
        f" {', '.join(names[1])}"
    )
