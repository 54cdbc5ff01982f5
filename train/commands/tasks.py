"""`corpusmill tasks | task-data`, and what `evaluate --tasks` takes and prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.options import Json, print_json, print_table

if TYPE_CHECKING:
    from corpusmill.schemas.evaluation import Estimate, EvaluationResults, TaskResult


def tasks(
    name: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="print this task's YAML, to begin your own from")
    ] = None,
    json_: Json = False,
) -> None:
    """List the evaluation tasks that come with the package."""
    from corpusmill.train.evaluate.tasks.read import SHIPPED, find_task, shipped

    if name:
        found = find_task(name).task
        if json_:
            print_json(found.model_dump(mode="json"))
        else:
            typer.echo((SHIPPED / f"{found.task}.yaml").read_text(encoding="utf-8"), nl=False)
        return
    every = [find_task(one).task for one in shipped()]
    if json_:
        print_json([task.model_dump(mode="json", include={"task", "about", "output_type", "hub", "licence", "citation"})
                    for task in every])  # fmt: skip
        return
    for task in every:
        typer.echo(f"{task.task:18} {task.about}")


def task_data(
    name: Annotated[str, typer.Argument(metavar="TASK", help="a task's name, or its file (.yaml)")],
    out: Annotated[str, typer.Option(help="folder or URL to write the rows to")],
    json_: Json = False,
) -> None:
    """Fetch the rows of a task from the Hugging Face Hub."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.evaluate.tasks.fetch import fetch
    from corpusmill.train.evaluate.tasks.read import find_task

    found = fetch(find_task(name).task, Folder(out))
    if json_:
        print_json([record.model_dump(mode="json") for record in found])
        return
    for record in found:
        typer.echo(f"{Folder(out) / record.file}: {record.rows:,} rows of {record.source}")
        typer.echo(f"  sha256 {record.sha256}; licence: {record.licence or 'not known'}")


def names_of(given: Sequence[str]) -> list[str]:
    """Tasks of repeated or comma-separated options."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("--tasks: names no task; corpusmill tasks lists them")
    return names


def data_of(given: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Of repeated `NAME=FILE` and `FOLDER`: files by name, and folders."""
    files: dict[str, list[str]] = {}
    folders = []
    for text in given:
        name, sep, file = text.partition("=")
        if not sep:
            folders.append(text)
        elif not name or not file:
            raise UserError(f"--data {text}: must be TASK=FILE or a folder")
        else:
            files.setdefault(name, []).append(file)
    return files, folders


def print_results(results: EvaluationResults, names: Sequence[str]) -> None:
    """A table of each of these tasks, its accuracies beside chance, and what a reader must know of it."""
    for name in names:
        task = results.tasks[name]
        shots = f", {task.fewshot} examples before each" if task.fewshot else ""
        lines = [["metric", "value", "95 % interval", "chance"]]
        lines += [row(task, metric, figure) for metric, figure in task.metrics.items()]
        print_table(lines, f"{name}: {task.items:,} items{shots} ({results.name}, step {results.step})")
        for line in [
            *(f"{count} not scored: {reason}" for reason, count in task.skipped.items()),
            *task.notes,
        ]:
            typer.echo(f"{name}: {line}")


def row(task: TaskResult, metric: str, figure: Estimate) -> list[str]:
    """Cells of a figure. Beside accuracies stands chance, and whether the interval holds it."""
    from corpusmill.train.evaluate.measures import measure
    from corpusmill.train.evaluate.resampling import FEW

    chance = ""
    if task.chance is not None and measure(metric).chance:
        chance = f"{task.chance:.3f}"
        if figure.low is not None and figure.high is not None and figure.low <= task.chance <= figure.high:
            chance = f"at {chance}"
    interval = (
        FEW if figure.low is None or figure.high is None else f"{shown(figure.low)} to {shown(figure.high)}"
    )
    return [metric, shown(figure.value), interval, chance]


def shown(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
