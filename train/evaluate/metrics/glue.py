"""GLUE (Wang et al. 2018) and SuperGLUE (Wang et al. 2019): the files of their data as rows, and each task's own metrics.

Rows have the column names and label numbers of the data sets `glue` and `super_glue` on the Hugging Face Hub, so that prompt
templates written for those fit; the files are those of gluebenchmark.com and super.gluebenchmark.com.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate.metrics.answers import squad_exact, squad_f1
from corpusmill.train.evaluate.metrics.classification import classification, correlation
from corpusmill.train.evaluate.statistics import estimate

Row = dict[str, Any]


class Glue(NamedTuple):
    """A task. `labels`: their names in the order of their numbers; none where labels are numbers. `columns`: of a GLUE file, its
    column for each field, by name or, in a file without a heading, by number."""

    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    columns: dict[str, str | int] | None = None
    heading: bool = True


NO_YES = ("False", "True")
ENTAILED = ("entailment", "not_entailment")
SENTENCES: dict[str, str | int] = {"sentence1": "sentence1", "sentence2": "sentence2", "idx": "index"}
NLI: dict[str, str | int] = {"premise": "sentence1", "hypothesis": "sentence2", "idx": "index"}
THREE = ("entailment", "neutral", "contradiction")

GLUE: dict[str, Glue] = {
    "cola": Glue(("matthews",), ("0", "1"), {"label": 1, "sentence": 3}, heading=False),
    "sst2": Glue(("accuracy",), ("0", "1"), {"sentence": "sentence", "label": "label"}),
    "mrpc": Glue(
        ("f1", "accuracy"), ("0", "1"),
        {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    ),
    "stsb": Glue(("pearson", "spearman"), (), {**SENTENCES, "label": "score"}),
    "qqp": Glue(
        ("f1", "accuracy"), ("0", "1"),
        {"question1": "question1", "question2": "question2", "label": "is_duplicate", "idx": "id"},
    ),
    "mnli": Glue(("accuracy",), THREE, {**NLI, "label": "gold_label"}),
    "qnli": Glue(
        ("accuracy",), ENTAILED, {"question": "question", "sentence": "sentence", "label": "label", "idx": "index"}
    ),
    "rte": Glue(("accuracy",), ENTAILED, {**SENTENCES, "label": "label"}),
    "wnli": Glue(("accuracy",), ("0", "1"), {**SENTENCES, "label": "label"}),
    "ax": Glue(("matthews",), THREE, {"premise": "sentence1", "hypothesis": "sentence2", "label": "label", "idx": "index"}),
}  # fmt: skip
SUPERGLUE: dict[str, Glue] = {
    "boolq": Glue(("accuracy",), NO_YES),
    "cb": Glue(("accuracy", "f1_macro"), ("entailment", "contradiction", "neutral")),
    "copa": Glue(("accuracy",), ("0", "1")),
    "multirc": Glue(("f1a", "exact_match"), ("0", "1")),
    "record": Glue(("f1", "exact_match")),
    "rte": Glue(("accuracy",), ENTAILED),
    "wic": Glue(("accuracy",), NO_YES),
    "wsc": Glue(("accuracy",), NO_YES),
    "axb": Glue(("matthews",), ENTAILED),
    "axg": Glue(("accuracy",), ENTAILED),
}
TASKS = {**GLUE, **{f"super_{name}": task for name, task in SUPERGLUE.items()}}


def read_rows(task: str, text: str, where: str = "data") -> list[Row]:
    """The rows of a file of a task (a key of `TASKS`): a TSV of GLUE, a JSONL of SuperGLUE. Rows of MultiRC and ReCoRD are one for each
    answer and query. `label` is a number, -1 in a file without labels; `idx` identifies the row. Raises `UserError` naming the line of
    a row that does not fit."""
    if task in GLUE:
        return list(_tsv(GLUE[task], text, where))
    name = task.removeprefix("super_")
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows += _nested(name, json.loads(line), f"{where}: line {number}")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UserError(f"{where}: line {number}: not a row of {task}: {error!r}") from None
    return rows


def _tsv(task: Glue, text: str, where: str) -> Iterator[Row]:
    """Rows of a TSV, in which quotation marks are characters like others."""
    lines = iter(enumerate(text.lstrip("\ufeff").split("\n"), 1))
    heading = next(lines)[1].rstrip("\r").split("\t") if task.heading else []
    at = {}
    for field, column in (task.columns or {}).items():
        if isinstance(column, int):
            at[field] = column
        elif column in heading:
            at[field] = heading.index(column)
        elif field not in ("label", "idx"):
            raise UserError(f"{where}: has no column {column}; its heading is {', '.join(heading)}")
    count = 0
    for number, line in lines:
        cells = line.rstrip("\r").split("\t")
        if cells == [""]:
            continue
        if len(cells) <= max(at.values()):
            raise UserError(
                f"{where}: line {number}: {len(cells)} columns, {max(at.values()) + 1} are needed"
            )
        row: Row = {field: cells[place] for field, place in at.items()}
        row["idx"] = row.get("idx", str(count))
        row["label"] = _label(task, row.get("label"), f"{where}: line {number}")
        count += 1
        yield row


def _label(task: Glue, value: Any, where: str) -> float | int:
    """The number of a label, or a number as it is."""
    if value is None:
        return -1
    if not task.labels:
        try:
            return float(value)
        except ValueError:
            raise UserError(f"{where}: the label {value!r} is not a number") from None
    if str(value) not in task.labels:
        raise UserError(f"{where}: the label {value!r} is none of {', '.join(task.labels)}")
    return task.labels.index(str(value))


def _nested(name: str, row: Row, where: str) -> Iterator[Row]:
    """The rows that a line of SuperGLUE holds."""
    task = SUPERGLUE[name]
    if name == "multirc":
        passage = row["passage"]
        for question in passage["questions"]:
            for answer in question["answers"]:
                yield {
                    "paragraph": passage["text"], "question": question["question"], "answer": answer["text"],
                    "idx": f"{row['idx']}-{question['idx']}-{answer['idx']}", "group": f"{row['idx']}-{question['idx']}",
                    "passage": str(row["idx"]), "label": _label(task, answer.get("label"), where),
                }  # fmt: skip
    elif name == "record":
        passage = row["passage"]
        entities = [passage["text"][one["start"] : one["end"] + 1] for one in passage["entities"]]
        for query in row["qas"]:
            answers = [one["text"] for one in query.get("answers", [])]
            yield {
                "passage": passage["text"], "query": query["query"], "entities": list(dict.fromkeys(entities)),
                "answers": list(dict.fromkeys(answers)), "idx": str(query["idx"]), "group": str(row["idx"]),
            }  # fmt: skip
    else:
        flat = {**row, **row.get("target", {})}
        flat.pop("target", None)
        yield {**flat, "idx": str(row["idx"]), "label": _label(task, row.get("label"), where)}


def score(task: str, rows: Sequence[Row], predictions: Sequence[Any]) -> dict[str, Estimate]:
    """The metrics of a task (a key of `TASKS`) for a prediction a row: the number or name of a label, a number, or a text for ReCoRD.
    Rows of one passage are one cluster. A prediction that is no label is wrong; one
    of STS-B that is no number raises `UserError`."""
    about = TASKS[task]
    if task == "super_record":
        clusters = [row["group"] for row in rows]
        pairs = [(str(text), row["answers"]) for text, row in zip(predictions, rows, strict=True)]
        return {
            "f1": estimate([squad_f1(*pair) for pair in pairs], clusters),
            "exact_match": estimate([squad_exact(*pair) for pair in pairs], clusters),
        }
    wanted = [row["label"] for row in rows]
    if not about.labels:
        try:
            return correlation([float(value) for value in predictions], wanted, about.metrics)
        except (TypeError, ValueError):
            raise UserError(f"{task}: a prediction is not a number") from None
    found = [about.labels.index(str(p)) if str(p) in about.labels else p for p in predictions]
    if task == "super_multirc":
        return multirc(rows, found)
    return classification(found, wanted, about.metrics)


def multirc(rows: Sequence[Row], found: Sequence[Any]) -> dict[str, Estimate]:
    """MultiRC's F1 over all answers (F1a), and the share of questions all of whose answers are judged rightly."""
    passages = [row["passage"] for row in rows]
    wanted = [row["label"] for row in rows]
    figures = classification(found, wanted, ["f1"], clusters=passages)
    right: dict[str, bool] = {}
    passage: dict[str, str] = {}
    for row, one in zip(rows, found, strict=True):
        right[row["group"]] = right.get(row["group"], True) and one == row["label"]
        passage[row["group"]] = row["passage"]
    exact = estimate([float(value) for value in right.values()], list(passage.values()))
    return {"f1a": figures["f1"], "exact_match": exact}
