"""`corpusmill publish`: the folder of a finished run that may go out, and its upload to the Hugging Face Hub."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.format import quantity
from corpusmill.pipeline.commands.options import Address, Json, Quiet, WorkerCount, print_json

if TYPE_CHECKING:
    from corpusmill.schemas.publication import Publication

PUBLISH_EXAMPLE = "corpusmill publish runs/quickstart out/published --about about.yaml"


class Documents(StrEnum):
    """The format of published documents."""

    parquet = "parquet"
    jsonl = "jsonl"
    none = "none"


def publish(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a finished run.")],
    dest: Annotated[
        str, typer.Argument(metavar="DEST", help="Folder or URL that holds what goes out alone.")
    ],
    documents: Annotated[
        Documents,
        typer.Option(
            "--documents",
            help="Parquet, JSON lines (zstd), or none; the first two load with Hugging Face datasets.",
        ),
    ] = Documents.parquet,
    shards: Annotated[
        bool, typer.Option("--shards/--no-shards", help="Token shards and their indexes.")
    ] = True,
    ledger: Annotated[
        bool, typer.Option("--ledger/--no-ledger", help="What became of each record, by id alone.")
    ] = True,
    about: Annotated[
        str | None,
        typer.Option(
            "--about",
            metavar="FILE",
            help="YAML with title, creator, contact, url, version, date, license, citation.",
        ),
    ] = None,
    file_mb: Annotated[
        float, typer.Option("--file-mb", min=1, help="Text in a file of documents, MiB.")
    ] = 512,
    unredacted: Annotated[
        bool,
        typer.Option("--unredacted", help="Publish a run without redact; every column of its documents."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the publication in DEST.")] = False,
    push: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="OWNER/NAME",
            help="Upload it to the Hugging Face Hub, with the token in HF_TOKEN.",
        ),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="--push creates a public repository.")] = False,
    workers: WorkerCount = None,
    scheduler: Address = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the folder of a finished run that may go out."""
    from corpusmill.pipeline.engine.progress import explained

    with explained(
        f"{dest} is not finished and lacks its publication.json: run the same command again, which goes on"
    ):
        from corpusmill.common.config import load
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.engine.cluster import Workers
        from corpusmill.pipeline.engine.progress import Progress
        from corpusmill.pipeline.inspect.publication import publish as work
        from corpusmill.pipeline.inspect.publication import push as hub
        from corpusmill.schemas.publication import About, DocumentFormat
        from corpusmill.schemas.recipe import Cluster

        progress = Progress(quiet=quiet)
        folder = Folder(dest)
        if push is not None:
            hub.check_push(folder, push)
        forms: dict[Documents, DocumentFormat | None] = {
            Documents.parquet: "parquet", Documents.jsonl: "jsonl", Documents.none: None,
        }  # fmt: skip
        wanted = work.Wanted(
            forms[documents],
            shards,
            ledger,
            file_mb,
            unredacted,
            load(About, about) if about else About(),
        )
        with Workers(Cluster(workers=workers), scheduler, progress) as tasks:
            made = work.publish(Folder(run), folder, wanted, replace, tasks, progress.log)
    url = None
    if push is not None:
        if quiet:
            from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # lazy

            disable_progress_bars()
        with explained(f"{push} is not finished and lacks its publication.json: run the same command again"):
            url = hub.push(folder, push, public, progress.log)
    if json:
        print_json({"output": folder.url, "pushed": url, **made.model_dump()})
        return
    _show(made)
    typer.echo(f"output: {folder}" if url is None else f"output: {folder}\npushed: {url}")


def _show(made: Publication) -> None:
    """A publication in a few lines."""
    if made.documents:
        for one in made.documents.sets:
            typer.echo(
                f"{one.source:<16} {one.split:<11} {one.documents:>11,} documents {one.text_bytes / 1e6:>11,.2f} MB of text"
            )
    if made.shards:
        typer.echo(f"shards: {sum(one.tokens for one in made.shards.sets):,} tokens")
    if made.ledger:
        typer.echo(f"ledger: {quantity(made.ledger.rows, 'row')}")
    if made.taken_down:
        typer.echo(f"left out: {quantity(made.taken_down, 'document')} taken down")
    typer.echo(
        f"{quantity(made.files, 'file')}, {made.bytes / 1e6:,.1f} MB, checksums in {made.checksums.path}"
    )
