"""Tasks beside the corpus that the model was trained on: each task's figure on all items, on those that no document of the corpus
holds, and the difference, with the documents named.

What a document holds is what `corpusmill decontaminate --action report` found of the items that an evaluation left in the run's
folder: the same items by their texts, whichever model answered them. Items that could not be searched for are in none of the two
groups, and are counted by the reason.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
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
    question_hash,
)
from corpusmill.train.evaluate.measures import measure
from corpusmill.train.evaluate.report.failures import primary
from corpusmill.train.evaluate.statistics import apart, estimate
from corpusmill.train.evaluate.stored import item_values, read_items, read_results

DOCUMENTS = 5  # named for an item
REPORT, TOUCHED, ITEMS_TABLE, RECORDS_TABLE, UNITS_TABLE = (
    "contamination.json", "touched_items.jsonl", "index/items.parquet", "index/records.parquet", "index/units.parquet",
)  # fmt: skip


class Searched(NamedTuple):
    """An item of the report: the hash of its texts, why it could not be searched for (None: it was), whether it was found, and the
    documents that hold it."""

    question: str
    why: str | None
    found: bool
    documents: list[TrainedDocument]


def compare(run: Folder, report: Folder) -> ContaminationResults:
    """Write `evaluation/contamination.json` of a run; `report`: the output of `corpusmill decontaminate`.

    Raises `UserError` where either is missing, and where the report is of other items.
    """
    results = read_results(run)
    if results is None or not results.tasks:
        raise UserError(f"{run}: no task was evaluated; run `corpusmill evaluate` with --tasks first")
    about, searches = read_report(report)
    tasks = []
    for name, result in results.tasks.items():
        items = list(read_items(run, name).values())
        searched = searches.get(name, {})
        others = [
            item.id
            for item in items
            if item.id not in searched or searched[item.id].question != question_hash(item.model_dump())
        ]
        if others:
            raise UserError(
                f"{report}: {len(others)} of {len(items)} items of task {name} were not searched for, or had other texts (such as"
                f" {others[0]}); run `corpusmill decontaminate DOCUMENTS OUT --against {run / 'evaluation/items'} --action report` again"
            )
        tasks.append(compared(name, result.task_hash, items, searched))
    found = ContaminationResults(
        weights_hash=results.weights_hash,
        report=report.url,
        ngram=about.ngram,
        threshold=about.threshold,
        tasks=tasks,
    )
    (run / CONTAMINATION).write((found.model_dump_json(indent=1) + "\n").encode())
    return found


def compared(
    task: str, task_hash: str, items: Sequence[Item], searched: Mapping[str, Searched]
) -> ContaminatedTask:
    """The figures of one task, by its primary metric; none if its items have no figure of their own."""
    metric = primary(items)
    groups: dict[bool, list[Item]] = {True: [], False: []}
    reasons = Counter[str]()
    for item in items:
        one = searched[item.id]
        if one.why is None:
            groups[one.found].append(item)
        else:
            reasons[one.why] += 1

    def values(some: Sequence[Item]) -> Any:
        return item_values(some, metric)

    def clusters(some: Sequence[Item]) -> list[str]:
        return [item.cluster for item in some]

    def figure(some: Sequence[Item]) -> Any:
        return estimate(values(some), clusters(some), measure(metric).share) if some and metric else None

    enough = bool(metric) and min(map(len, groups.values())) > 1
    names = clusters(groups[True]), clusters(groups[False])
    return ContaminatedTask(
        task=task, task_hash=task_hash, metric=metric, searched=sum(map(len, groups.values())),
        not_searched=dict(sorted(reasons.items())), found=len(groups[True]), all=figure(items), clean=figure(groups[False]),
        contaminated=figure(groups[True]),
        difference=apart(values(groups[True]), values(groups[False]), names).estimate if enough else None,
        documents=[one for item in groups[True] for one in searched[item.id].documents],
    )  # fmt: skip


def read_report(report: Folder) -> tuple[Contamination, dict[str, dict[str, Searched]]]:
    """What `corpusmill decontaminate` found, by set and id. Raises `UserError` if the folder is not its output."""
    try:
        about = Contamination.model_validate_json((report / REPORT).read())
        items, records, units = (_table(report / name) for name in (ITEMS_TABLE, RECORDS_TABLE, UNITS_TABLE))
        touched = [json.loads(line) for line in (report / TOUCHED).read().splitlines()]
    except (FileNotFoundError, ValueError) as error:
        why = "not found" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise UserError(
            f"{report}: not the output of `corpusmill decontaminate` of this version: {why}"
        ) from None
    drop = {(row["set"], row["id"]) for row in touched if row["drop"]}
    documents: dict[int, list[TrainedDocument]] = {}  # by item
    for entry in (report / "matches").list():
        if not entry.path.endswith(".parquet"):
            continue
        for row in _table(report / "matches" / entry.path, [("acts", "=", True)]):
            for number in units[row["unit"]]["items"]:
                one = TrainedDocument(
                    item="", doc_id=row["doc_id"].hex(), source=row["source"], share=round(row["value"], 4)
                )
                documents.setdefault(number, []).append(one)
    found: dict[str, dict[str, Searched]] = {}
    for record in records:
        item = items[record["item"]]
        own = sorted(documents.get(record["item"], ()), key=lambda one: (-one.share, one.doc_id))[:DOCUMENTS]
        found.setdefault(item["set"], {})[record["id"]] = Searched(
            record["question"], item["why"], (item["set"], record["id"]) in drop,
            [one.model_copy(update={"item": record["id"]}) for one in own],
        )  # fmt: skip
    return about, found


def _table(file: Folder, filters: Any = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(file.read()), filters=filters).to_pylist()
    return rows
