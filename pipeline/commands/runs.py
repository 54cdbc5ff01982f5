"""Commands that read a finished run or a stage's output: `report`, `why`, `verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.commands.options import Json, Quiet, Set, print_json


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run or a stage's output.")],
    set_: Set = None,
    quiet: Quiet = False,
) -> None:
    """Write report and data card of a run or one stage anew."""
    from corpusmill.common.config import override, validate
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.layout import recipe_of, stage_folders
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.runner import Run
    from corpusmill.schemas.recipe import Cluster, Recipe

    found, alone = recipe_of(run)
    config = found.model_dump(mode="json")
    stages = [s for s in config["stages"] if s != "report"]
    config["stages"] = [*stages, "report"]
    folders = {name: Folder(url) for name, url in stage_folders(stages, run).items()} if alone else {}
    settings = [s if s.startswith("report.") else f"report.{s}" for s in set_ or []]
    recipe = validate(Recipe, override(config, settings), run)
    progress = Progress(quiet=quiet)
    with Workers(Cluster(workers=0), None, progress) as scheduler:
        Run(recipe, Folder(run), scheduler, progress, folders).report()
    typer.echo(f"{Folder(run) / 'report.html'}")


def why(
    document: Annotated[
        str, typer.Argument(metavar="DOC_ID", help="doc_id in hex, the input's own id, or a locator.")
    ],
    run: Annotated[
        str, typer.Option("--run", metavar="DIR", help="Folder or URL of a run or a stage's output.")
    ],
    json: Json = False,
) -> None:
    """Every decision on one document, values and thresholds."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.inspect.why import explain
    from corpusmill.pipeline.inspect.why import why as ask

    rows = ask(Folder(run), document)
    if json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(explain(row))


def verify(
    path: Annotated[str, typer.Argument(help="Folder or URL of a run or a stage's output.")],
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Documents of shards decoded and held to their text.")
    ] = 400,
    all_: Annotated[bool, typer.Option("--all", help="Decode every document.")] = False,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Local processes; 0: none.")] = 0,
    json: Json = False,
) -> None:
    """Recompute checksums and counts; decode a sample of the shards."""
    import time

    from corpusmill.pipeline.engine.progress import explained

    started = time.monotonic()
    with explained("verify writes nothing and finds all again: run the same command again"):
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.engine.cluster import Workers
        from corpusmill.pipeline.engine.progress import Progress
        from corpusmill.pipeline.inspect.verify import verify as check
        from corpusmill.schemas.recipe import Cluster

        progress = Progress(quiet=workers == 0)
        with Workers(Cluster(workers=workers), None, progress) as scheduler:
            result = check(Folder(path), scheduler, None if all_ else sample)
    seconds = time.monotonic() - started
    if json:
        counts = {stage: c.model_dump() for stage, c in result.stages.items()}
        print_json(
            {
                "files": result.files, "bytes": result.bytes, "seconds": round(seconds, 3), "stages": counts,
                "decoded": result.decoded, "unfinished": result.unfinished, "notes": result.notes,
                "problems": result.problems,
            }
        )  # fmt: skip
    else:
        for stage, c in result.stages.items():
            typer.echo(
                f"{stage:<10} in {c.docs_in:,} = kept {c.kept:,} + removed {c.removed:,} + quarantined {c.quarantined:,}"
            )
        for note in result.notes:
            typer.echo(f"note: {note}")
        decoded = f", {result.decoded:,} documents of shards decoded" if result.decoded else ""
        problems = f"{len(result.problems)} problem{'' if len(result.problems) == 1 else 's'}"
        whole = " in a run that is not finished" if result.unfinished else ""
        typer.echo(
            f"{result.files} files, {result.bytes / 1e6:.1f} MB{decoded}, {result.bytes / 1e6 / seconds:.0f} MB/s:"
            f" {problems}{whole}"
        )
    if result.problems:
        raise WorkError("\n".join(result.problems))
