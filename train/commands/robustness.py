"""`corpusmill robustness`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, Set, ends, print_json, print_table, value

if TYPE_CHECKING:
    from corpusmill.schemas.robustness import SourceContexts, TaskRobustness


def robustness(
    run: Run,
    tasks: Annotated[
        list[str] | None, typer.Option(help="names (corpusmill tasks) or files of tasks, separated by commas")
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="score validation texts behind perturbed halves of theirs")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=FILE|FOLDER", help="rows of a task, or the folder of task-data"),
    ] = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:RATE[:FILE]",
            help="typos, ocr, homoglyphs, case, whitespace, punctuation, drop, swap, synonyms or distractor (repeatable)",
        ),
    ] = None,
    perturb_choices: Annotated[
        bool, typer.Option("--perturb-choices", help="change the choices too, not the questions alone")
    ] = False,
    formats: Annotated[
        int, typer.Option(min=0, help="formats of the prompt, the task's own among them [none]")
    ] = 0,
    seed: Annotated[int, typer.Option(help="of what is changed")] = 0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="items of each task, documents of each source at most, spread evenly [all]"),
    ] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="examples in each prompt [the task's]")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="rows that are computed together")] = 16,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """How much worse the newest checkpoint answers perturbed questions, and in prompts of other formats."""
    from corpusmill.common.perturb import parse_all
    from corpusmill.train.commands.tasks import data_of, names_of
    from corpusmill.train.evaluate.tasks.robustness import robustness as work
    from corpusmill.train.run_folder import open_run

    given, folders = data_of(data or [])
    changes = parse_all(perturb or [])
    result = work(
        *open_run(run, set_), names_of(tasks) if tasks else [], changes, formats, choices=perturb_choices, seed=seed, given=given,
        folders=folders, limit=limit, fewshot=num_fewshot, rows=batch, context=context,
    )  # fmt: skip
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    if result.contexts:
        title = f"{result.name}, step {result.step:,}: bits per byte of second halves behind first halves"
        print_table(_contexts(result.contexts), title)
    for task in result.tasks:
        print_task(task, f"{task.task} ({result.name}, step {result.step:,})")


def _contexts(sources: dict[str, SourceContexts]) -> list[list[str]]:
    lines = [["source", "perturbation", "as it is", "perturbed", "change", "95 %", "documents"]]
    for name, source in sources.items():
        lines += [
            [
                name, one.perturbation, value(source.bits_per_byte), value(one.perturbed), value(one.difference, "+"),
                ends(one.difference), f"{one.changed:,} of {source.documents:,} changed",
            ]
            for one in source.perturbed
        ]  # fmt: skip
    return lines


def print_task(task: TaskRobustness, title: str) -> None:
    lines = [["perturbation", "metric", "as it is", "perturbed", "change", "95 %", "items changed"]]
    for one in task.perturbed:
        for metric, drop in one.metrics.items():
            lines.append(
                [
                    one.perturbation, metric, value(task.metrics.get(metric)), value(drop.perturbed), value(drop.difference, "+"),
                    ends(drop.difference), f"{one.changed:,}",
                ]
            )  # fmt: skip
    if task.perturbed:
        print_table(lines, title)
    found = task.formats
    if found:
        rows = [["format", found.metric]]
        rows += [[name, value(each)] for name, each in zip(found.formats, found.values, strict=True)]
        print_table(rows, f"{title}: formats of the prompt")
        typer.echo(
            f"{found.metric}: {found.values[found.lowest].value:.4f} to {found.values[found.highest].value:.4f}, a spread of"
            f" {found.spread:.4f} over {len(found.values)} formats"
        )
