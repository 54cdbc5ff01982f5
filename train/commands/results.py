"""`corpusmill perplexity | contamination`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, Set, print_json, print_table

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.evaluation import Estimate
    from corpusmill.schemas.training import TrainConfig


def perplexity(
    run: Run,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help=".jsonl, .json, .csv, .tsv (also .gz), or .txt: one document")
    ],
    column: Annotated[str, typer.Option(help="of the rows, in which the texts are")] = "text",
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="tokens that a window scores; the rest of it is context [all of it]"),
    ] = None,
    eos: Annotated[bool, typer.Option("--eos", help="score the end of each text, too")] = False,
    batch: Annotated[int, typer.Option(min=1, help="rows that are computed together")] = 16,
    set_: Set = None,
    json_: Json = False,
) -> None:  # fmt: skip
    """Bits per byte and perplexity of texts of your own."""
    from corpusmill.train.evaluate.texts import evaluate_texts
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    found = evaluate_texts(config, folder, files, stride=stride, column=column, eos=eos, rows=batch)
    write_page(config, folder)
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    rows = [["set", "documents", "tokens", "bits per byte", "perplexity: token", "word"]]
    for one in found.sets.values():
        rows.append(
            [
                one.name, f"{one.documents:,}", f"{one.tokens:,}", _figure(one.bits_per_byte), f"{one.token_perplexity:,.1f}",
                f"{one.word_perplexity:,.1f}",
            ]
        )  # fmt: skip
    print_table(rows, f"{found.name}, step {found.step}: windows of {found.window}, stride {found.stride}")
    for one in found.sets.values():
        for reason, count in one.skipped.items():
            typer.echo(f"{one.name}: {count:,} rows left out: {reason}")


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
    from corpusmill.train.evaluate.contamination import compare
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run)
    found = compare(folder, Folder(report))
    write_page(config, folder)
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    rows = [["task", "searched", "in the corpus", "all items", "not in it", "in it less not in it"]]
    for task in found.tasks:
        rows.append(
            [
                task.task, f"{task.searched:,}", f"{task.found:,}", _figure(task.all), _figure(task.clean),
                _figure(task.difference, sign="+"),
            ]
        )  # fmt: skip
    print_table(rows, "Primary metric with intervals of 95 %")
    for task in found.tasks:
        for one in task.documents[:3]:
            typer.echo(f"{task.task} {one.item}: {one.share:.0%} in {one.doc_id} of {one.source}")


def write_page(config: TrainConfig, folder: Folder) -> None:
    """evaluation.html and the model card, of all that the run's folder has of evaluations; in the first process."""
    if os.environ.get("RANK", "0") == "0":
        from corpusmill.train.evaluate.report.page import write

        for url in write(config, folder):
            typer.echo(f"written: {url}", err=True)


def _figure(estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{sign}.3f}"
    return f"{estimate.value:{sign}.3f} ({estimate.low:{sign}.3f} to {estimate.high:{sign}.3f})"
