"""`corpusmill dedup`: duplicates of the user's own files; and `dedup-plan`: what that would cost and find, before any of it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.options import Given, Json, Output, print_json, stage_command
from corpusmill.pipeline.commands.run import run_stage
from corpusmill.pipeline.commands.takedown import take_down_from_index
from corpusmill.schemas.dedup import DedupParams

if TYPE_CHECKING:
    from corpusmill.pipeline.dedup.estimate.corpus import Corpus
    from corpusmill.pipeline.engine.stage import Partition

OPTIONAL_INPUTS = Annotated[
    list[str] | None, typer.Argument(metavar="IN...", help="Files, folders, globs or URLs.")
]
# Models of their own among the parameters, and what is no parameter.
LINES = typer.Option(metavar="UNIT", help="Cut repeated units: line, paragraph, sentences (default: none).")
SUBSTRINGS = typer.Option(
    metavar="TOKENS", help="Cut repeated runs of this many tokens or more (default: none)."
)
TAKEDOWN = typer.Option(metavar="FILE", help="Remove the documents that FILE lists from --index; no IN.")
SHARDS = typer.Option(
    metavar="DIR", help="With --takedown: a run's shards, to list those that contain the documents."
)


def _dedup(given: dict[str, Any]) -> None:
    takedown, shards = given.pop("takedown"), given.pop("shards")
    if takedown is not None:
        if given["input"]:
            raise UserError("--takedown: takes only OUT; add documents with a separate command")
        names = ("workers", "scheduler", "json", "quiet")
        take_down_from_index(
            given["index"], takedown, given["output"], shards, *(given[name] for name in names)
        )
        return
    if not given["input"]:
        raise UserError("dedup: give IN... and OUT")
    lines, substrings = given["lines"], given["substrings"]
    given["lines"] = lines and {"unit": lines}
    given["substrings"] = substrings and {"min_tokens": substrings}
    run_stage("dedup", given)


dedup = stage_command(
    _dedup,
    DedupParams,
    (Given("input", OPTIONAL_INPUTS, None), Given("output", Output)),
    (
        Given("lines", Annotated[str | None, LINES], None),
        Given("substrings", Annotated[int | None, SUBSTRINGS], None),
        Given("takedown", Annotated[str | None, TAKEDOWN], None),
        Given("shards", Annotated[str | None, SHARDS], None),
    ),
)


PLAN_EXAMPLE = "corpusmill dedup-plan --documents 10e9 --bytes-per-document 3000 --workers 100 --recall 0.95"


def dedup_plan(
    input: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IN...]",
            help="Output folders of `corpusmill ingest` or of any stage of a run; a sample is scaled to --documents.",
        ),
    ] = None,
    documents: Annotated[float | None, typer.Option(help="Documents in the corpus, such as 10e9.")] = None,
    bytes_per_document: Annotated[float | None, typer.Option(help="Mean UTF-8 bytes per document.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers of one core each.")] = 100,
    similarity: Annotated[float | None, typer.Option(help="dedup.similarity")] = None,
    recall: Annotated[float | None, typer.Option(help="dedup.recall")] = None,
    copies: Annotated[
        float, typer.Option(min=0, help="Mean number of exact copies per document, if no IN shows it.")
    ] = 0.3,
    duplicates: Annotated[
        float, typer.Option(min=0, help="Mean number of near-duplicates (0.5 to 1) per document, likewise.")
    ] = 0.5,
    partition_mb: Annotated[
        float | None,
        typer.Option(
            help="Text per partition, MiB, as ingest.partition_mb (default: as in IN; without IN 64)."
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Partitions are on a local disk, not in an object store.")
    ] = False,
    worker_memory_gb: Annotated[float, typer.Option(help="Memory of a worker.")] = 1.5,
    driver_memory_gb: Annotated[float, typer.Option(help="Memory of the driver.")] = 64.0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other key of dedup; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """What a deduplication would cost and find, and its limits."""
    from corpusmill.common.config import override, validate
    from corpusmill.pipeline.dedup.banding import banding
    from corpusmill.pipeline.dedup.estimate.model import estimate
    from corpusmill.pipeline.dedup.estimate.plan_text import Limits, exceeded, show, show_steps, unpromised
    from corpusmill.pipeline.engine.planning.constants import LOCAL, OBJECT_STORE
    from corpusmill.schemas.dedup import DedupParams

    given = {"similarity": similarity, "recall": recall}
    settings = [item.removeprefix("dedup.") for item in set_ or []]
    config = override({key: value for key, value in given.items() if value is not None}, settings)
    params = validate(DedupParams, config, "corpusmill dedup-plan")
    solved = banding(params)
    corpus = _corpus(input or [], documents, bytes_per_document, partition_mb, copies, duplicates, params)
    found = estimate(corpus, params, solved, workers, LOCAL if local else OBJECT_STORE)
    limits = Limits(worker_bytes=worker_memory_gb * 1e9, driver_bytes=driver_memory_gb * 1e9)
    over = exceeded(found, limits)
    if json:
        result = {
            "corpus": corpus.model_dump(), "estimate": found.model_dump(), "limits": limits.model_dump(),
            "exceeded": over,
        }  # fmt: skip
        print_json(result)
        return
    typer.echo(show(found))
    for line in unpromised(params, solved):
        typer.echo(line)
    typer.echo(show_steps(found))
    for line in over:
        typer.echo(f"exceeded  {line}")
    if not over:
        typer.echo("no limit is exceeded")


def _corpus(
    input: list[str], documents: float | None, size: float | None, partition_mb: float | None, copies: float,
    duplicates: float, params: Any,
) -> Corpus:  # fmt: skip
    from corpusmill.pipeline.dedup.estimate.corpus import assumed, grown
    from corpusmill.pipeline.dedup.estimate.pilot import pilot

    given = {"documents": documents, "bytes-per-document": size, "partition-mb": partition_mb}
    for name, value in given.items():
        if value is not None and not 0 < value < 1e18:
            raise UserError(f"--{name}: {value:g} must be greater than 0, and less than 1e18")
    partition_bytes = (partition_mb or 64.0) * 2**20
    if not input:
        if documents is None or size is None:
            raise UserError(
                f"corpusmill dedup-plan: give IN, or both --documents and --bytes-per-document: {PLAN_EXAMPLE}"
            )
        return assumed(int(documents), size, partition_bytes, duplicates, copies)
    seen = pilot(_partitions(input), params)
    if documents is None and size is None and partition_mb is None:
        return seen
    return grown(seen, documents, size, partition_bytes if partition_mb else None)


def _partitions(input: list[str]) -> list[Partition]:
    """The partitions of finished stages, by their manifests."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.stage import Partition
    from corpusmill.schemas.manifest import MANIFEST, PartitionManifest, StageManifest

    found = []
    for url in input:
        folder = Folder(url)
        try:
            stage = StageManifest.model_validate_json((folder / MANIFEST).read())
            for name in stage.partitions:
                part = PartitionManifest.model_validate_json((folder / f"parts/{name}.json").read())
                file = part.files[0]
                found.append(Partition(name, folder, part.counts.kept, part.counts.bytes_kept, file.xxh3))
        except (FileNotFoundError, ValueError):
            raise UserError(
                f"{url}: not the folder of a finished stage; give what `corpusmill ingest IN OUT` wrote to OUT"
            ) from None
    if not found:
        raise UserError(f"{', '.join(input)}: no partitions of documents there")
    return found
