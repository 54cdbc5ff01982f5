"""`corpusmill dedup`: duplicates of the user's own files; and documents out of an index (`--takedown`), and who holds them."""

from __future__ import annotations

from json import loads as load_json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.options import (
    Address,
    IdColumn,
    InputFormat,
    Json,
    Output,
    Quiet,
    Set,
    TextColumn,
    WorkerCount,
    parameter,
    print_json,
)
from corpusmill.pipeline.commands.run import run_stage
from corpusmill.schemas.dedup import DedupParams

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder

OptionalInputs = Annotated[
    list[str] | None, typer.Argument(metavar="IN...", help="Files, folders, globs or URLs.")
]
# Models of their own among the parameters, and what is no parameter.
LINES = typer.Option(metavar="UNIT", help="Cut repeated units: line, paragraph, sentences; absent: none.")
SUBSTRINGS = typer.Option(metavar="TOKENS", help="Cut repeated runs of so many tokens or more; absent: none.")
TAKEDOWN = typer.Option(metavar="FILE", help="Take the documents on its lines out of --index; no IN.")
SHARDS = typer.Option(metavar="DIR", help="With --takedown: a run's shards, to name those that hold them.")
FINISHED = "takedown.json"  # written when all else is


def dedup(
    input: OptionalInputs = None,
    output: Output = ...,  # type: ignore[assignment]  # required, after one that is not
    url: Annotated[bool | None, parameter(DedupParams, "url")] = None,
    exact: Annotated[bool | None, parameter(DedupParams, "exact")] = None,
    normalized: Annotated[bool | None, parameter(DedupParams, "normalized")] = None,
    minhash: Annotated[bool | None, parameter(DedupParams, "minhash")] = None,
    preset: Annotated[str | None, parameter(DedupParams, "preset")] = None,
    similarity: Annotated[float | None, parameter(DedupParams, "similarity")] = None,
    recall: Annotated[float | None, parameter(DedupParams, "recall")] = None,
    containment: Annotated[float | None, parameter(DedupParams, "containment")] = None,
    shingle: Annotated[str | None, parameter(DedupParams, "shingle")] = None,
    ngram: Annotated[int | None, parameter(DedupParams, "ngram")] = None,
    max_shingles: Annotated[int | None, parameter(DedupParams, "max_shingles")] = None,
    num_perm: Annotated[int | None, parameter(DedupParams, "num_perm")] = None,
    bands: Annotated[int | None, parameter(DedupParams, "bands")] = None,
    rows: Annotated[int | None, parameter(DedupParams, "rows")] = None,
    seed: Annotated[int | None, parameter(DedupParams, "seed")] = None,
    memory_mb: Annotated[int | None, parameter(DedupParams, "memory_mb")] = None,
    scratch_bytes_per_doc: Annotated[int | None, parameter(DedupParams, "scratch_bytes_per_doc")] = None,
    keep: Annotated[str | None, parameter(DedupParams, "keep")] = None,
    keep_order: Annotated[list[str] | None, parameter(DedupParams, "keep_order")] = None,
    max_source_loss: Annotated[float | None, parameter(DedupParams, "max_source_loss")] = None,
    max_cluster: Annotated[int | None, parameter(DedupParams, "max_cluster")] = None,
    sample: Annotated[int | None, parameter(DedupParams, "sample")] = None,
    planted: Annotated[int | None, parameter(DedupParams, "planted")] = None,
    store_signatures: Annotated[bool | None, parameter(DedupParams, "store_signatures")] = None,
    index: Annotated[str | None, parameter(DedupParams, "index")] = None,
    lines: Annotated[str | None, LINES] = None,
    substrings: Annotated[int | None, SUBSTRINGS] = None,
    takedown: Annotated[str | None, TAKEDOWN] = None,
    shards: Annotated[str | None, SHARDS] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `DedupParams` for the parameters."""
    given = dict(locals())
    del given["takedown"], given["shards"]
    if takedown is not None:
        if input:
            raise UserError("--takedown: takes OUT alone; documents are added by a command of their own")
        result = take_down(index, takedown, output, shards, workers, scheduler, quiet or json)
        _show_takedown(result, json)
        return
    if not input:
        raise UserError("dedup: give IN... and OUT")
    given["lines"] = lines and {"unit": lines}
    given["substrings"] = substrings and {"min_tokens": substrings}
    run_stage("dedup", given)


def take_down(
    index: str | None, file: str, output: str, shards: str | None, workers: int | None, address: str | None,
    quiet: bool,
) -> dict[str, Any]:  # fmt: skip
    """Take the documents that `file` names out of an index; what follows is published in `output`.

    `takedown.parquet`: who they were; `changes.parquet`: documents that stay now in their place; with `shards`,
    `shards.parquet`: the blocks and texts that hold them. Raises `UserError` if there is no index, or nothing is found.
    """
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.dedup.banding import Banding
    from corpusmill.pipeline.dedup.deduplication import Deduplication
    from corpusmill.pipeline.dedup.index.change import NobodyNamed
    from corpusmill.pipeline.dedup.index.index_file import read_index
    from corpusmill.pipeline.dedup.quality_report import publish_json
    from corpusmill.pipeline.dedup.stage import Dedup
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.publish import publish_table
    from corpusmill.pipeline.engine.requested_documents import read_names
    from corpusmill.pipeline.engine.stage import Context
    from corpusmill.pipeline.inspect.takedown.find import holding
    from corpusmill.pipeline.shard.read import open_set
    from corpusmill.schemas.recipe import Cluster, Recipe

    if index is None:
        raise UserError("--takedown: give the index too, with --index DIR")
    found = read_index(Folder(index))
    if found is None:
        raise UserError(f"{index}: no index there; `corpusmill dedup IN OUT --index {index}` makes one")
    named = read_names(Folder(file))
    if shards is not None:
        open_set(Folder(shards))  # a wrong folder is refused before anything is done
    params = DedupParams(**found.params, index=index)
    sources = {name: {"paths": ["-"], "priority": rank} for name, rank in found.priorities.items()}
    recipe = Recipe.model_validate({"name": "takedown", "sources": sources})
    progress, out = Progress(quiet=quiet), Folder(output)
    with Workers(Cluster(workers=workers), address, progress) as scheduler:
        context = Context(recipe, out, out, [], {}, scheduler, progress.say)
        run = Deduplication(context, params, Banding(found.bands, found.rows), Dedup.version, named)
        assert run.change is not None
        done = _finished(out, found.generation, run.change.key)
        if done is not None:  # all is published: what a kill left of the last step is done
            run.change.forget()
            return {"output": out.url, **done}
        try:
            _, counters = run.run()
        except NobodyNamed as error:
            raise UserError(f"{file}: {error}") from None
        assert run.change.taken is not None
        taken = run.change.taken
        publish_table(out, "takedown.parquet", taken)
        result: dict[str, Any] = {"named": len(named), "taken": len(taken), "counters": counters}
        if shards is not None:
            held = holding(Folder(shards), taken["doc_id"].to_pylist(), scheduler)
            publish_table(out, "shards.parquet", held)
            result["shards"] = sorted(set(held["shard"].to_pylist()))
    (out / "scratch").delete()
    finished = {"change": run.change.key, "generation": run.change.generation, "result": result}
    publish_json(out, FINISHED, finished)
    run.change.forget()
    return {"output": out.url, **result}


def _finished(out: Folder, generation: int, change: str) -> dict[str, Any] | None:
    """The result of the same takedown, if it is the last change of the index and all of it is published."""
    try:
        found = load_json((out / FINISHED).read())
    except (FileNotFoundError, ValueError):
        return None
    same = found.get("change") == change and found.get("generation") == generation
    return dict(found["result"]) if same else None


def _show_takedown(result: dict[str, Any], json: bool) -> None:
    if json:
        print_json(result)
        return
    typer.echo(f"taken down: {result['taken']} documents, of {result['named']} named")
    for shard in result.get("shards", []):
        typer.echo(f"held by: {shard}")
    typer.echo(f"output: {result['output']}")
