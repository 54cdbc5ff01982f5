"""`corpusmill exposure | forgetting | average`: what a chain of phases was trained on and has forgotten, and means of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, Set, ends, print_json, print_table, value

if TYPE_CHECKING:
    from corpusmill.schemas.phases import Averaged, Exposure, Forgetting


def exposure(
    run: Run,
    documents: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="write how often each document was trained on, as Parquet"),
    ] = None,
    doc: Annotated[
        str | None, typer.Option(metavar="ID", help="how often one document was trained on")
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """What a model was trained on in all phases: tokens and epochs of each source, and of each document.

    The batches are computed again from the plans of the runs, in seconds; `--documents` and `--doc` read every block that was drawn from.
    """
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.continual import exposure as work

    counted = work.count(*open_run(run, set_))
    result = work.exposure(counted)
    table = work.documents(counted) if documents or doc else None
    row = work.of_document(table, doc) if table is not None and doc else None
    if table is not None and documents:
        work.write_documents(table, Folder(documents))
    if json_:
        print_json(result.model_dump(mode="json") | ({"document": row} if row else {}))
        return
    print_table(_phases(result), "phases, the first one first")
    print_table(_sources(result), "tokens trained on, each repeat counted, and epochs")
    if row is not None:
        each = ", ".join(
            f"{count:,} in {one.name}" for count, one in zip(row["by_phase"], result.phases, strict=True)
        )
        typer.echo(
            f"{row['doc_id']} ({row['source']}): {row['times']:.2f} times its {row['tokens']:,} tokens: {each}"
        )
    if table is not None and documents:
        typer.echo(f"{documents}: {len(table):,} documents")


def _phases(result: Exposure) -> list[list[str]]:
    lines = [["phase", "up to step", "tokens", "sum of learning rates", "run"]]
    return lines + [
        [one.name, f"{one.step:,}", f"{one.tokens:,}", f"{one.lr_sum:.4g}", one.run] for one in result.phases
    ]


def _sources(result: Exposure) -> list[list[str]]:
    names = [one.name for one in result.phases]
    lines = [["source", "tokens there", *names, "all", "epochs"]]
    for row in result.sources:
        lines.append(
            [
                " = ".join(row.names), f"{row.tokens_available:,}", *(f"{count:,}" for count in row.tokens),
                f"{sum(row.tokens):,}", f"{sum(row.epochs):.2f}",
            ]
        )  # fmt: skip
    return lines


def forgetting(run: Run, set_: Set = None, json_: Json = False) -> None:
    """What the newest phase of a model has forgotten: each source's bits per byte at its start and now."""
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.continual.forgetting import forgetting as work

    result = work(*open_run(run, set_))
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    title = f"{result.name}: step {result.step:,} against step {result.start_step:,} of {result.start}"
    print_table(_forgotten(result), f"{title}; bits per byte of the validation splits")


def _forgotten(result: Forgetting) -> list[list[str]]:
    lines = [["source", "at the start", "now", "change", "95 %"]]
    for name, row in result.sources.items():
        shown = name if row.earlier else f"{name} (new)"
        lines.append(
            [shown, value(row.before), value(row.after), value(row.difference, "+"), ends(row.difference)]
        )
    for name, mean in (("mean of earlier sources", result.forgotten), ("mean of new ones", result.gained)):
        lines.append([name, "", "", value(mean, "+"), ends(mean)])
    return lines


def average(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="run folders, URLs or training configs")
    ],
    out: Annotated[
        str, typer.Option(help="folder or URL to write the average to; it becomes a run's folder")
    ],
    last: Annotated[
        int | None, typer.Option(min=2, help="of one run: how many of its latest checkpoints [5]")
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="keep a member only if the average gets better by it")
    ] = False,
    ema: Annotated[
        bool, typer.Option("--ema", help="the moving average that one run keeps (optimizer.ema)")
    ] = False,
    json_: Json = False,
) -> None:
    """The mean of the weights of checkpoints as a model: the latest ones of a run, or the newest one of each of several; or a run's moving
    average."""
    from corpusmill.common.errors import UserError
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.continual.average import Run as Opened
    from corpusmill.train.tools.continual.average import average as work

    if last is not None and len(runs) > 1:
        raise UserError(
            "--last: is of one run; of several, the newest checkpoint of each is taken: leave it out"
        )
    if ema and (len(runs) > 1 or last is not None or greedy):
        raise UserError(
            "--ema: is of one run, and one average: give neither several runs nor --last or --greedy"
        )
    result = work([Opened(*open_run(run)) for run in runs], Folder(out), last or 5, greedy, ema)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    print_table(_averaged(result), "bits per byte of the validation splits; differences to the best member")
    for number, member in enumerate(result.members):
        what = "averaged" if member.kept else "left out"
        best = ", the best one" if number == result.best else ""
        typer.echo(f"{member.run}, step {member.step:,}: {value(member.bits_per_byte)}, {what}{best}")
    if greedy:
        typer.echo(
            "members were chosen by these splits, so that the average looks better on them than on other text"
        )
    typer.echo(f"{Folder(out)}: to train on: --set init_from={Folder(out)}")


def _averaged(result: Averaged) -> list[list[str]]:
    lines = [["source", "best member", "average", "less best", "95 %", "ensemble", "less best", "95 %"]]
    for name, row in result.sources.items():
        both = [
            [value(mean), value(less, "+"), ends(less)]
            for mean, less in ((row.average, row.average_less_best), (row.ensemble, row.ensemble_less_best))
        ]
        lines.append([name, value(row.members[result.best]), *both[0], *both[1]])
    best = result.members[result.best].bits_per_byte
    return [
        *lines, ["mean of sources", value(best), value(result.average), "", "", value(result.ensemble), "", ""]
    ]  # fmt: skip
