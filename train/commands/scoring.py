"""`corpusmill score` and `corpusmill arithmetic`: metrics of texts that exist already, and questions to ask."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.common.errors import UserError, nearest
from corpusmill.train.commands.options import Json, print_json, print_table
from corpusmill.train.evaluate.metrics.arithmetic import SIGNS, arithmetic_items


def score(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="JSONL with `text` and `references`; of --glue, `idx` and `label`"
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="bleu, chrf, chrf++, rouge, rouge-stemmed, meteor, exact_match, squad_exact, squad_f1, number_strict,"
            " number_flexible or pass@K (of rows with `samples` and `passed`); repeatable"
        ),
    ] = None,
    glue: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="a task of GLUE (mrpc) or SuperGLUE (super_cb), with its metrics"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="FILE", help="of --glue: the task's file, with labels")
    ] = None,
    json_: Json = False,
) -> None:
    """Metrics of generated texts or predicted labels, with intervals."""
    from corpusmill.train.evaluate.metrics.files import score_labels, score_texts
    from corpusmill.train.evaluate.resampling import FEW

    if bool(glue) == bool(metric) or bool(glue) != bool(data):
        raise UserError("give --metric, or --glue with --data")
    found = score_labels(file, glue, data) if glue and data else score_texts(file, metric or [])
    if json_:
        print_json(found)
        return
    lines = [["metric", "value", "95 % interval", "items", "of the interval"]]
    for name, one in found["metrics"].items():
        ends = FEW if one["low"] is None else f"{one['low']:.4f} to {one['high']:.4f}"
        lines.append([name, f"{one['value']:.4f}", ends, f"{one['n']:,}", one["method"]])
    print_table(lines, file)
    for name, signature in found["signatures"].items():
        typer.echo(f"{name}: {signature}")


def style(
    guide: Annotated[str, typer.Argument(metavar="GUIDE", help="a style guide (YAML): docs/finetune.md")],
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="JSONL with `text`, as `corpusmill generate --batch` writes it"),
    ],
    json_: Json = False,
) -> None:
    """How many texts satisfy each rule of a style guide."""
    from corpusmill.train.data.conversations.style import read_guide
    from corpusmill.train.evaluate.metrics.files import read_rows
    from corpusmill.train.evaluate.metrics.style import adherence
    from corpusmill.train.evaluate.resampling import shown

    texts = [row.get("text") for row in read_rows(file)]
    wrong = next((number for number, text in enumerate(texts, 1) if not isinstance(text, str)), None)
    if wrong is not None:
        raise UserError(f"{file}: row {wrong} must have a text `text`")
    report = adherence(read_guide(guide), [str(text) for text in texts])
    if json_:
        print_json(report.model_dump(mode="json"))
        return
    lines = [["rule", "kind", "share that keeps it", "first rows that do not"]]
    for rule in report.rules:
        rows = ", ".join(str(number + 1) for number in rule.broken) or "none"
        lines.append([rule.id, rule.kind, shown(rule.kept), rows])
    lines.append(["all rules", "", shown(report.all_rules), ""])
    print_table(lines, f"{report.guide}: {report.texts:,} texts")


def glue_rows(
    task: Annotated[str, typer.Argument(metavar="TASK", help="of GLUE (mrpc) or SuperGLUE (super_cb)")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="the task's TSV or JSONL")],
) -> None:
    """The rows of a file of GLUE or SuperGLUE, a JSON line each: data of a task."""
    from corpusmill.train.evaluate.metrics.files import open_glue

    for row in open_glue(task, file):
        print_json(row)


def arithmetic(
    operation: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(SIGNS)} (repeatable) [all]")
    ] = None,
    digits: Annotated[
        list[int] | None, typer.Option(min=1, max=100, help="of both numbers (repeatable) [1, 2, 3]")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="questions of each kind, at most")] = 100,
    seed: Annotated[int, typer.Option(help="equal seeds give equal questions")] = 0,
) -> None:
    """Questions of arithmetic, a JSON line each: data of a task."""
    for name in operation or ():
        if name not in SIGNS:
            raise UserError(f"--operation {name}: is none of {', '.join(SIGNS)}{nearest(name, SIGNS)}")
    for row in arithmetic_items(operation or list(SIGNS), digits or (1, 2, 3), count, seed):
        print_json(row)
