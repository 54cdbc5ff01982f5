"""`corpusmill contamination`, and the page of all evaluations of a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, print_json, print_table

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.evaluation import ContaminationResults
    from corpusmill.schemas.training import TrainConfig


def contamination(
    run: Run,
    report: Annotated[
        str,
        typer.Argument(
            metavar="REPORT", help="output of `corpusmill decontaminate DOCUMENTS REPORT --against RUN/evaluation/items"
            " --action report`"
        ),
    ],
    json_: Json = False,
) -> None:  # fmt: skip
    """Each task on all items, and on those that the corpus does not hold."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.evaluate.report.contamination import compare
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run)
    found = compare(folder, Folder(report))
    write_page(config, folder)
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    print_table(contaminated(found), "Primary metric, 95 % intervals")
    for task in found.tasks:
        typer.echo(
            f"{task.task}: {task.found:,} of {task.searched:,} items that were searched for are in the corpus"
        )
        for why, count in task.not_searched.items():
            typer.echo(f"{task.task}: {count:,} not searched for: {why}")
        for one in task.documents[:3]:
            typer.echo(f"{task.task} {one.item}: {one.share:.0%} in {one.doc_id} of {one.source}")


def print_speed(config: TrainConfig, folder: Folder, json_: bool) -> None:
    """`corpusmill evaluate --speed`."""
    from corpusmill.train.generate.speed import measure

    found = measure(config, folder)
    write_page(config, folder)
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    rows = [["texts at once", "reading, tokens/s", "writing, tokens/s"]]
    for one in found.batches:
        reading = f"{one.prefill_tokens_per_second:,.0f} ({one.prefill_low:,.0f} to {one.prefill_high:,.0f})"
        writing = f"{one.decode_tokens_per_second:,.0f} ({one.decode_low:,.0f} to {one.decode_high:,.0f})"
        rows.append([str(one.batch), reading, writing])
    about = f"{found.threads} threads" if found.device == "cpu" else found.device
    print_table(
        rows,
        f"Prompts of {found.prompt_tokens} tokens, {found.new_tokens} new ones, {found.precision}, {about}",
    )
    typer.echo(f"medians of {found.rounds} rounds, in brackets the slowest and the fastest one")
    typer.echo(
        f"first token after {1000 * found.first_token_p50:.1f} ms (95th percentile {1000 * found.first_token_p95:.1f} ms);"
        f" peak memory {found.memory_mib:,.0f} MiB"
    )


def write_page(config: TrainConfig, folder: Folder) -> None:
    """evaluation.html and the model card, of all that the run's folder has of evaluations; in the first process."""
    if os.environ.get("RANK", "0") == "0":
        from corpusmill.train.evaluate.report.page import write

        for url in write(config, folder):
            typer.echo(f"written: {url}", err=True)


def contaminated(found: ContaminationResults) -> list[list[str]]:
    """Heading, and a line for each group of the items of each task."""
    from corpusmill.train.evaluate.resampling import shown

    rows = [["task", "items", "n", "figure"]]
    for task in found.tasks:
        groups = {"all": task.all, "not in the corpus": task.clean, "in the corpus": task.contaminated}
        rows += [[task.task, name, f"{one.n:,}", shown(one)] for name, one in groups.items() if one]
        if task.difference:
            rows.append([task.task, "in it, less not in it", "", shown(task.difference)])
    return rows
