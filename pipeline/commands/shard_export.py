"""`corpusmill shard-export`: a shard set for other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.pipeline.commands.options import Json, Quiet, print_json

EXAMPLE = "corpusmill shard-export runs/quickstart out/megatron --to megatron"


def shard_export(
    shards: Annotated[
        str, typer.Argument(metavar="SHARDS", help="Folder or URL of a run, or of its shards.")
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder or URL for the result.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="TOOL",
            help="megatron (.bin, .idx), datatrove (.ds), dali (.idx beside tars), webshart (.json beside tars).",
        ),
    ],
    workers: Annotated[int | None, typer.Option(min=0, help="Local processes; 0: none. [cores]")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Shards for Megatron-LM, datatrove, DALI or webshart."""
    from corpusmill.pipeline.engine.progress import explained

    with explained(f"{out} lacks files: run the same command again, which writes all of them anew"):
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.engine.cluster import Workers
        from corpusmill.pipeline.engine.progress import Progress
        from corpusmill.pipeline.shard.export import export
        from corpusmill.schemas.recipe import Cluster

        progress = Progress(quiet=quiet)
        with Workers(Cluster(workers=workers), None, progress) as scheduler:
            files = export(Folder(shards), Folder(out), to, scheduler)
    if json:
        print_json({"output": Folder(out).url, "files": files})
        return
    typer.echo(f"output: {Folder(out)}, {len(files)} files")
