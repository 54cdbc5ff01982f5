"""`corpusmill score`: the metrics of texts, answers, samples and labels that a file holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.jsonl import not_there, read_jsonl
from corpusmill.common.storage import Folder
from corpusmill.train.evaluate.metrics import glue
from corpusmill.train.evaluate.metrics.answers import ANSWER_METRICS, pass_at_k
from corpusmill.train.evaluate.metrics.texts import TEXT_METRICS, of_texts
from corpusmill.train.evaluate.statistics import estimate

PASS = re.compile(r"pass@([1-9][0-9]*)")
Row = dict[str, Any]


def score_texts(url: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Figures of a JSONL file whose rows have a `text` and `references` (a text or a list), and may have a `cluster`; for pass@k,
    `samples` and `passed`. Raises `UserError` for another file, and an unknown metric."""
    for name in metrics:
        if name not in TEXT_METRICS and name not in ANSWER_METRICS and not PASS.fullmatch(name):
            known = [*TEXT_METRICS, *ANSWER_METRICS]
            raise UserError(f"--metric {name}: is none of {', '.join(known)}, pass@K{nearest(name, known)}")
    rows = read_rows(url)
    names = [str(row["cluster"]) if "cluster" in row else number for number, row in enumerate(rows)]
    result: dict[str, Any] = {"items": len(rows), "metrics": {}, "signatures": {}}
    for name in metrics:
        if found := PASS.fullmatch(name):
            values = [
                passed(row, int(found[1]), f"{url}: row {number}") for number, row in enumerate(rows, 1)
            ]
            result["metrics"][name] = estimate(values, names).model_dump()
            continue
        texts, references = columns(rows, url)
        if name in ANSWER_METRICS:
            metric = ANSWER_METRICS[name]
            values = [metric(text, wanted) for text, wanted in zip(texts, references, strict=True)]
            result["metrics"][name] = estimate(values, names).model_dump()
        else:
            scored = of_texts(name, texts, references, names)
            result["metrics"] |= {key: one.model_dump() for key, one in scored.figures.items()}
            result["signatures"][name] = scored.signature
    return result


def score_labels(url: str, task: str, data: str) -> dict[str, Any]:
    """Figures of a task of GLUE or SuperGLUE. The file of predictions has a JSON object a line, with the `idx` of a row of `data`, the
    task's own file, and its `label`. Every row must have one prediction, or `UserError` is raised."""
    rows = open_glue(task, data)
    if not rows or any(row.get("label") == -1 or row.get("answers") == [] for row in rows):
        raise UserError(f"--data {data}: has no labels to compare with")
    predictions: dict[str, Any] = {}
    first: dict[str, int] = {}
    for number, row in enumerate(read_rows(url), 1):
        if "idx" not in row or "label" not in row:
            raise UserError(f"{url}: row {number} has no idx and label")
        idx, label = str(row["idx"]), row["label"]
        if isinstance(label, list | dict):
            raise UserError(
                f"{url}: row {number}: label is neither a text nor a number: the name or number of a label, or a text for ReCoRD"
            )
        if idx in first:
            raise UserError(
                f"{url}: row {number}: a second prediction for idx {idx}, after row {first[idx]}: keep one"
            )
        predictions[idx], first[idx] = label, number
    missing = [row["idx"] for row in rows if row["idx"] not in predictions]
    if missing or len(predictions) != len(rows):
        example = f", such as that of idx {missing[0]}" if missing else ""
        raise UserError(
            f"{url}: {len(predictions)} predictions for {len(rows)} rows of {data}; {len(missing)} are missing{example}"
        )
    figures = glue.score(task, rows, [predictions[row["idx"]] for row in rows])
    return {
        "items": len(rows),
        "metrics": {name: one.model_dump() for name, one in figures.items()},
        "signatures": {},
    }


def open_glue(task: str, url: str) -> list[Row]:
    """The rows of a file of GLUE or SuperGLUE. Raises `UserError` for an unknown task, and a file that is not the task's."""
    if task not in glue.TASKS:
        raise UserError(
            f"{task}: is no task of GLUE or SuperGLUE: {', '.join(glue.TASKS)}{nearest(task, glue.TASKS)}"
        )
    try:
        return glue.read_rows(task, Folder(url).read().decode("utf-8"), url)
    except FileNotFoundError:
        raise not_there(Folder(url), url) from None
    except UnicodeDecodeError:
        raise UserError(f"{url}: is not UTF-8") from None


def read_rows(url: str) -> list[Row]:
    """The objects of a JSONL file. Raises `UserError` for one without any."""
    rows = list(read_jsonl(url))
    if not rows:
        raise UserError(f"{url}: has no rows")
    return rows


def columns(rows: Sequence[Row], url: str) -> tuple[list[str], list[list[str]]]:
    """The texts, and the references of each. Raises `UserError` naming the row without them."""
    texts, references = [], []
    for number, row in enumerate(rows, 1):
        text, wanted = row.get("text"), row.get("references")
        wanted = [wanted] if isinstance(wanted, str) else wanted
        if (
            not isinstance(text, str)
            or not isinstance(wanted, list)
            or not wanted
            or not all(isinstance(w, str) for w in wanted)
        ):
            raise UserError(
                f"{url}: row {number} must have a text `text`, and `references`: a text, or a list of texts"
            )
        texts.append(text)
        references.append(wanted)
    return texts, references


def passed(row: Row, k: int, where: str) -> float:
    """pass@k of a row."""
    samples, right = row.get("samples"), row.get("passed")
    if not isinstance(samples, int) or not isinstance(right, int) or not 0 <= right <= samples or samples < k:
        raise UserError(f"{where} must have `samples`, at least {k}, and how many of them `passed`")
    return pass_at_k(samples, right, k)
