"""Documents taken out again: `corpusmill takedown FILE --run DIR` of finished shards, `dedup --takedown` of an index."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.commands.options import Address, Json, OwnProcess, Quiet, print_json

TAKEDOWN_EXAMPLE = "corpusmill takedown gone.txt --run runs/quickstart --cluster"
SHOWN = 20  # of each list, on a terminal


def takedown(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File that lists documents: doc_id, own id, locator or URL.")
    ],
    run: Annotated[
        str | None, typer.Option("--run", metavar="DIR", help="Folder or URL of a run or a stage's output.")
    ] = None,
    shards: Annotated[
        str | None, typer.Option("--shards", metavar="DIR", help="A folder of shards, instead of --run.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also remove the documents' duplicate clusters.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; write nothing.")
    ] = False,
    workers: OwnProcess = 0,
    scheduler: Address = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take documents out of finished shards.

    Exit code 1 if some were not found; the others are out.
    """
    from corpusmill.pipeline.engine.progress import explained

    if (run is None) == (shards is None):
        raise UserError("takedown: give --run DIR, or --shards DIR")
    with explained("nothing was written: run the same command again"):
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.engine.cluster import Workers
        from corpusmill.pipeline.engine.progress import Progress
        from corpusmill.pipeline.inspect.takedown.run import hint, place_of, state_of, take_down
        from corpusmill.schemas.recipe import Cluster

        place = place_of(run, shards)
    progress = Progress(quiet=quiet or json)
    with explained(lambda: state_of(place)), Workers(Cluster(workers=workers), scheduler, progress) as tasks:
        result = take_down(place, Folder(file), cluster, dry_run, tasks, progress.log)
    if json:
        print_json(result)
    else:
        for line in _summary(result):
            typer.echo(line)
    if missing := result["not_found"]:  # a request that is met in part is not one that is met
        raise WorkError(
            f"{file}: {len(missing)} of the {result['named']} documents named there not found, such as '{missing[0]}';"
            f" the others {'would go' if dry_run else 'are out of the shards'}; {hint(place)}"
        )


def _summary(result: dict[str, Any]) -> list[str]:
    """A takedown's result in words."""
    dry = result.get("dry_run", False)
    lines = []
    if result.get("resumed"):
        lines.append("finished: this takedown was under way")
    lines.append(
        f"named: {result['named']}; known: {result['found']}; in the shards: {result['in_shards']} documents"
    )
    if result["already"]:
        lines.append(f"taken down before: {result['already']} documents")
    lines += _listed("not found", result["not_found"])
    gone = [
        f"{row['doc_id']}: {row['outcome']} by {row['stage']}{_copy(row)}" for row in result["not_in_shards"]
    ]
    lines += _listed("not in the shards", gone)
    lines += _listed("a copy that stays (--cluster takes it too)", result["copies_stay"])
    lines += _listed("holds some" if dry else "written again", result["shards"])
    lines += _listed("empty, and so no more", result.get("emptied", []))
    if not dry:
        lines.append(f"removed: {result.get('tokens', 0):,} tokens")
    return [*lines, *(f"may still hold the text: {where}" for where in result["still_held"])]


def _copy(row: dict[str, str]) -> str:
    return f", as a copy of {row['duplicate_of']}" if "duplicate_of" in row else ""


def _listed(what: str, values: list[str]) -> list[str]:
    more = [f"{what}: … and {len(values) - SHOWN} more (--json lists all)"] if len(values) > SHOWN else []
    return [*(f"{what}: {value}" for value in values[:SHOWN]), *more]


def take_down_from_index(
    index: str | None, file: str, output: str, shards: str | None, workers: int | None, scheduler: str | None,
    json: bool, quiet: bool,
) -> None:  # fmt: skip
    """`dedup OUT --index DIR --takedown FILE`: take the documents out of an index, and print what followed."""
    from corpusmill.pipeline.inspect.takedown.index import take_down

    result = take_down(index, file, output, shards, workers, scheduler, quiet or json)
    if json:
        print_json(result)
        return
    typer.echo(f"taken down: {result['taken']} documents, of {result['named']} named")
    for shard in result.get("shards", []):
        typer.echo(f"held by: {shard}")
    typer.echo(f"output: {result['output']}")
