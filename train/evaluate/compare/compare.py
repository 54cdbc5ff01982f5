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
from corpusmill.schemas.tasks import CLASSES
from corpusmill.train.evaluate.compare.lists import compared_lists, compared_sums
from corpusmill.train.evaluate.documents import kept
from corpusmill.train.evaluate.measures import measure
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
from corpusmill.train.evaluate.stored import BITS_PER_BYTE, item_values, read_items, read_results
from corpusmill.train.evaluate.tasks.metrics import of_sums

ALPHA = 0.05
# They are exp of another figure, which is the one to compare.
UNPAIRED = {"perplexity", "byte_perplexity", "word_perplexity"}
Row = dict[str, Any]


class Run(NamedTuple):
    """What a run's folder has of its evaluation: on tasks, and on the validation split, of the checkpoint of `split_step`."""

    folder: Folder
    results: EvaluationResults | None
    documents: dict[str, pa.Table]
    split_step: int | None
    reading: tuple[int, int] | None  # window and stride of the validation split

    @property
    def tasks(self) -> dict[str, TaskResult]:
        return self.results.tasks if self.results else {}


class Paired(NamedTuple):
    """The items that all runs of both sides have: of each side, those of each run, in one order. `alone`: how many items only some runs
    have, on each side."""

    metric: str
    sides: tuple[list[list[Item]], list[list[Item]]]
    alone: tuple[int, int]

    @property
    def items(self) -> list[Item]:
        return self.sides[0][0]

    def at(self, places: Sequence[int]) -> Paired:
        """Some of them."""
        a, b = ([[run[place] for place in places] for run in side] for side in self.sides)
        return Paired(self.metric, (a, b), (0, 0))


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
    as well; `detect`: a difference, for which the number of items is computed that would show it. A task whose questions differ between
    the runs is left out with a note. Raises `UserError` for a folder without an evaluation, and where nothing can be compared.
    """
    sides = [open_evaluation(url) for url in a], [open_evaluation(url) for url in b]
    runs = [*sides[0], *sides[1]]
    chosen, left_out, not_paired = shared_tasks(sides, tasks)
    rows: list[Row] = []
    slices: list[Row] = []
    for task in chosen:
        items = tuple([read_items(run.folder, task) for run in side] for side in sides)
        chosen_metrics = metrics or first_metric(sides[0][0].tasks[task], items[0][0])
        if not chosen_metrics:
            not_paired.append(f"{task}: not compared: its items have none of its metrics")
        for metric in chosen_metrics:
            of_list = metric in CLASSES and all(metric in run.tasks[task].metrics for run in runs)
            paired = pair(items[0], items[1], metric, of_list)
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
        raise UserError(not_paired[0] if not_paired and not metrics else nothing_shared(sides, metrics))
    if by and not slices:
        keys = sorted({key for run in runs for result in run.tasks.values() for key in result.slices})
        raise UserError(f"--by {by}: no item has it; items have {', '.join(keys) or 'no slices'}")
    for family in (rows, slices, documents):
        adjust(family)
    return {
        "a": [described(run) for run in sides[0]], "b": [described(run) for run in sides[1]], "rows": rows,
        "slices": slices, "documents": documents, "not_compared": left_out,
        "notes": [*not_paired, *notes(sides, runs, chosen)],
    }  # fmt: skip


def open_evaluation(url: str) -> Run:
    """The evaluation in a run's folder. Raises `UserError` if it has none."""
    folder = Folder(url)
    results = read_results(folder)
    step, reading = None, None
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        splits = json.loads((folder / EVALUATION).read())
        step = int(splits["step"])
        reading = int(splits["window"]), int(splits["stride"])
    run = Run(folder, results, kept(folder), step, reading)
    if results is None and not run.documents:
        raise UserError(
            f"{folder}: has no {RESULTS} and no losses of documents; run `corpusmill evaluate` on it first, with --tasks for tasks"
        )
    return run


def shared_tasks(
    sides: tuple[list[Run], list[Run]], wanted: Sequence[str] | None
) -> tuple[list[str], list[str], list[str]]:
    """The tasks that every run was asked, of the wanted ones; those that only some runs have; and a line for each whose questions differ
    between the runs. Raises `UserError` for a wanted one that is not among the first."""
    runs = [run for side in sides for run in side]
    common = [name for name in runs[0].tasks if all(name in run.tasks for run in runs)]
    others = sorted({name for run in runs for name in run.tasks} - set(common))
    for name in wanted or ():
        if name not in common:
            raise UserError(
                f"--task {name}: not a task that all runs were scored on, which are {', '.join(common) or 'none'}{nearest(name, common)}"
            )
    chosen, differing = [], []
    for name in common:
        if wanted and name not in wanted:
            continue
        first = runs[0].tasks[name]
        other = next((run for run in runs[1:] if not same_questions(first, run.tasks[name])), None)
        if other is None:
            chosen.append(name)
            continue
        line = (
            f"{name}: not compared: {runs[0].folder} and {other.folder} were not asked the same questions: its definition, rows or"
            " examples differ; evaluate both alike"
        )
        if wanted:
            raise UserError(line)
        differing.append(line)
    return chosen, [] if wanted else others, differing


def same_questions(one: TaskResult, other: TaskResult) -> bool:
    """Whether two results are of the same definition and data; how many of the questions were asked may differ."""
    if one.task_hash == other.task_hash:
        return True
    return bool(one.questions_hash) and one.questions_hash == other.questions_hash


def first_metric(result: TaskResult, items: dict[str, Item]) -> list[str]:
    """The task's first metric that can be compared: of its items, of sums over them, or of the list of their labels."""
    known = {name for item in items.values() for name in (*item.metrics, *item.sums)}
    return [name for name in result.metrics if name in known or name in CLASSES][:1]


def pair(
    a: list[dict[str, Item]], b: list[dict[str, Item]], metric: str, of_list: bool = False
) -> Paired | None:
    """The items with a metric that all runs have, in the order of the first run; None if there are none. `of_list`: the task has the
    metric of the labels of all items."""

    def has(item: Item) -> bool:
        if metric in item.metrics or metric in item.sums:
            return True
        return of_list and item.gold is not None and bool(item.logprobs)

    having = [[{id for id, item in run.items() if has(item)} for run in side] for side in (a, b)]
    common = set.intersection(*having[0], *having[1])
    if not common:
        return None
    order = [id for id in a[0] if id in common]
    x, y = ([[run[id] for id in order] for run in side] for side in (a, b))
    alone = [len(set.union(*side) - common) for side in having]
    return Paired(metric, (x, y), (alone[0], alone[1]))


def by_slice(paired: Paired, by: str) -> dict[str, Paired]:
    """The items by the value of one of their slices, in the order of the values; items without it are in none."""
    places: dict[str, list[int]] = {}
    for place, item in enumerate(paired.items):
        if by in item.slices:
            places.setdefault(item.slices[by], []).append(place)
    return {value: paired.at(chosen) for value, chosen in sorted(places.items())}


def compared_row(paired: Paired, detect: float | None) -> Row:
    """Figures of both sides and of their difference, B less A."""
    clusters = [item.cluster for item in paired.items]
    if all(paired.metric in item.metrics for item in paired.items):
        a, b = ([item_values(run, paired.metric) for run in side] for side in paired.sides)
        figures = [
            estimate(np.mean(side, axis=0), clusters, proportion=measure(paired.metric).share)
            for side in (a, b)
        ]
        found = seeds(b, a, clusters)
    elif all(paired.metric in item.sums for item in paired.items):
        rows = [[[item.sums[paired.metric] for item in run] for run in side] for side in paired.sides]
        second, first, found = compared_sums(rows[1], rows[0], of_sums(paired.metric), clusters)
        figures = [first, second]
    else:
        labels = [[[int(np.argmax(i.logprobs)) for i in run] for run in side] for side in paired.sides]
        golds = [item.gold or 0 for item in paired.items]
        second, first, found = compared_lists(labels[1], labels[0], golds, paired.metric, clusters)
        figures = [first, second]
    row = {"a": figures[0].model_dump(), "b": figures[1].model_dump(), **difference_of(found, detect)}
    return {**row, "only_a": paired.alone[0], "only_b": paired.alone[1]}


def difference_of(found: Difference, detect: float | None) -> Row:
    """A difference, the smallest one that so many items would show with probability 0.8, and how many items and clusters `detect` takes:
    None where only more runs could show it."""
    error, n, clusters = found.estimate.se, found.estimate.n, found.estimate.clusters
    row: Row = {"difference": found.estimate.model_dump(), "p": found.p}
    row["detectable"] = detectable(found.estimate)
    if detect is not None:
        deviation = math.sqrt(max(error**2 - found.runs, 0.0) * clusters) if error else 0.0
        needed = items_needed(detect, deviation, runs=found.runs) if error else None
        row["clusters_needed"] = needed
        row["items_needed"] = None if needed is None else math.ceil(needed * n / clusters)
        row["more_runs_needed"] = bool(error) and needed is None
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
            "source": source, "metric": BITS_PER_BYTE, "a": estimate(np.mean(a, axis=0), proportion=False).model_dump(),
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


def notes(sides: tuple[list[Run], list[Run]], runs: list[Run], tasks: Sequence[str]) -> list[str]:
    """What a reader must know beside the figures; `tasks`: those compared."""
    lines = []
    known = [run.results for run in runs if run.results]
    weights = [{run.results.weights_hash for run in side if run.results} for side in sides]
    if weights[0] and weights[0] == weights[1] and all(run.results for run in runs):
        lines.append("A and B have the same weights")
    if len({found.precision for found in known}) > 1:
        lines.append("the runs were scored in different precisions")
    if tasks and len({found.tokenizer_hash for found in known}) > 1:
        lines.append(
            "the runs have different tokenizers: figures of tokens or log-probabilities are of other units"
        )
    for task in tasks:
        results = [run.tasks[task] for run in runs]
        if len(limits := {result.limit for result in results}) > 1:
            named = sorted("all" if limit is None else f"{limit:,}" for limit in limits)
            lines.append(
                f"{task}: {' and '.join(named)} items were asked for; those of all runs are compared"
            )
        if len(contexts := {result.context for result in results if result.context}) > 1:
            named = [f"{context:,}" for context in sorted(contexts)]
            lines.append(f"{task}: the models read at most {' and '.join(named)} tokens of an item")
    if len({run.reading for run in runs if run.documents and run.reading}) > 1:
        lines.append(
            "validation text was read in different windows or strides (corpusmill evaluate --stride)"
        )
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
            - UNPAIRED
        )
        return (
            f"--metric {', '.join(metrics)}: no task that all runs have has it; they have {', '.join(known)}"
        )
    names = [sorted({name for run in side for name in [*run.tasks, *run.documents]}) for side in sides]
    return (
        f"nothing that all runs were scored on: {sides[0][0].folder} has {', '.join(names[0])}; {sides[1][0].folder} has"
        f" {', '.join(names[1])}"
    )
