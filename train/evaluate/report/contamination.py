"""Tasks beside the corpus that the model was trained on: each task's figure on all items, on those that no document of the corpus
holds, and the difference, with the documents named.

What a document holds is what `corpusmill decontaminate --action report` found of the items that an evaluation left in the run's
folder. Items too short to be searched for are in none of the two groups.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.decontamination import Contamination
from corpusmill.schemas.evaluation import (
    CONTAMINATION,
    ContaminatedTask,
    ContaminationResults,
    Item,
    TrainedDocument,
)
from corpusmill.train.evaluate.report.failures import primary
from corpusmill.train.evaluate.statistics import apart, estimate
from corpusmill.train.evaluate.stored import read_items, read_results

DOCUMENTS = 5  # named for an item
REPORT, TOUCHED, ITEMS_TABLE, UNITS_TABLE = (
    "contamination.json", "touched_items.jsonl", "index/items.parquet", "index/units.parquet",
)  # fmt: skip


class Searched(NamedTuple):
    """Of one task: ids of items that were searched for, of those found, and the documents of each."""

    searched: set[str]
    found: set[str]
    documents: dict[str, list[TrainedDocument]]


def compare(run: Folder, report: Folder) -> ContaminationResults:
    """Write `evaluation/contamination.json` of a run; `report`: the output of `corpusmill decontaminate`.

    Raises `UserError` where either is missing, and where the report is of other items.
    """
    results = read_results(run)
    if results is None or not results.tasks:
        raise UserError(f"{run}: no task was evaluated; run `corpusmill evaluate` with --tasks first")
    about, searches = read_report(report)
    tasks = []
    for name in results.tasks:
        if name not in searches:
            raise UserError(
                f"{report}: task {name} was not searched for; run `corpusmill decontaminate DOCUMENTS OUT --against"
                f" {run / 'evaluation/items'} --action report` again"
            )
        tasks.append(compared(name, list(read_items(run, name).values()), searches[name]))
    found = ContaminationResults(
        weights_hash=results.weights_hash,
        report=report.url,
        ngram=about.ngram,
        threshold=about.threshold,
        tasks=tasks,
    )
    (run / CONTAMINATION).write((found.model_dump_json(indent=1) + "\n").encode())
    return found


def compared(task: str, items: Sequence[Item], searched: Searched) -> ContaminatedTask:
    """The figures of one task, by its primary metric."""
    metric = primary(items)
    groups: dict[bool, list[Item]] = {True: [], False: []}
    for item in items:
        if item.id in searched.searched:
            groups[item.id in searched.found].append(item)

    def values(some: Sequence[Item]) -> list[float]:
        return [item.metrics[metric] for item in some]

    def clusters(some: Sequence[Item]) -> list[str]:
        return [item.cluster for item in some]

    def figure(some: Sequence[Item]) -> Any:
        return estimate(values(some), clusters(some)) if some else None

    enough = min(map(len, groups.values())) > 1
    names = clusters(groups[True]), clusters(groups[False])
    return ContaminatedTask(
        task=task, metric=metric, searched=sum(map(len, groups.values())), found=len(groups[True]), all=figure(items),
        clean=figure(groups[False]), contaminated=figure(groups[True]),
        difference=apart(values(groups[True]), values(groups[False]), names).estimate if enough else None,
        documents=[one for item in groups[True] for one in searched.documents.get(item.id, ())],
    )  # fmt: skip


def read_report(report: Folder) -> tuple[Contamination, dict[str, Searched]]:
    """What `corpusmill decontaminate` found, by set. Raises `UserError` if the folder is not its output."""
    try:
        about = Contamination.model_validate_json((report / REPORT).read())
        items = _table(report / ITEMS_TABLE)
        units = _table(report / UNITS_TABLE)
        touched = [json.loads(line) for line in (report / TOUCHED).read().splitlines()]
    except (FileNotFoundError, ValueError) as error:
        why = "not found" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise UserError(f"{report}: not the output of `corpusmill decontaminate`: {why}") from None
    found = {row["set"]: Searched(set(), set(), {}) for row in items}
    for row in items:
        if row["used"]:
            found[row["set"]].searched.add(row["id"])
    for row in touched:
        if row["drop"]:
            found[row["set"]].found.add(row["id"])
    for entry in (report / "matches").list():
        if not entry.path.endswith(".parquet"):
            continue
        for row in _table(report / "matches" / entry.path, [("acts", "=", True)]):
            for number in units[row["unit"]]["items"]:
                item = items[number]
                one = TrainedDocument(
                    item=item["id"],
                    doc_id=row["doc_id"].hex(),
                    source=row["source"],
                    share=round(row["value"], 4),
                )
                found[item["set"]].documents.setdefault(item["id"], []).append(one)
    for searched in found.values():
        for item_id, documents in searched.documents.items():
            kept = sorted(documents, key=lambda one: (-one.share, one.doc_id))
            searched.documents[item_id] = kept[:DOCUMENTS]
    return about, found


def _table(file: Folder, filters: Any = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(file.read()), filters=filters).to_pylist()
    return rows
