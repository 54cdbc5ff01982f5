"""Commands that read a finished run or a stage's output: `report`, `why`, `verify`, `trace` (from a token to its source), `find` (from a
document to its tokens), `compare` (two runs), `shard-export` (a shard set for other tools)."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.pipeline.commands.options import (
    Address,
    Json,
    OwnProcess,
    Quiet,
    Set,
    WorkerCount,
    present,
    print_json,
)


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run or a stage's output.")],
    set_: Set = None,
    quiet: Quiet = False,
) -> None:
    """Write report and data card of a run or one stage again."""
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
    from corpusmill.pipeline.inspect.why import explain_all
    from corpusmill.pipeline.inspect.why import why as ask

    rows = ask(Folder(run), document)
    if json:
        print_json(rows)
        return
    typer.echo(explain_all(rows, document))


def verify(
    path: Annotated[str, typer.Argument(help="Folder or URL of a run or a stage's output.")],
    sample: Annotated[
        int,
        typer.Option("--sample", min=0, help="Documents of shards to decode and compare with their text."),
    ] = 400,
    all_: Annotated[bool, typer.Option("--all", help="Decode every document.")] = False,
    workers: OwnProcess = 0,
    public_key: Annotated[
        str | None,
        typer.Option("--public-key", metavar="KEY", help="Who must have signed it: a PEM file, or base64."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Search for what redact recognised instead: 0 must be left.")
    ] = False,
    run: Annotated[
        str, typer.Option("--run", metavar="DIR", help="With --private: the run of a publication.")
    ] = "",
    json: Json = False,
) -> None:
    """Recompute checksums and counts; decode a sample of the shards.

    Exit code 1 if there is a problem, or the run is not finished.
    """
    import time

    if private:
        _verify_private(path, run, json)
        return
    if run:
        raise UserError("--run: belongs to --private; give the folder of the run itself")

    from corpusmill.pipeline.engine.progress import explained

    started = time.monotonic()
    with explained("verify writes nothing and finds all again: run the same command again"):
        from corpusmill.common.signing import public_key as key_of
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.engine.cluster import Workers
        from corpusmill.pipeline.engine.progress import Progress
        from corpusmill.pipeline.inspect.verify import verify as check
        from corpusmill.schemas.recipe import Cluster

        progress = Progress(quiet=workers == 0)
        with Workers(Cluster(workers=workers), None, progress) as scheduler:
            key = key_of(public_key) if public_key is not None else ""
            result = check(Folder(path), scheduler, None if all_ else sample, key)
    seconds = time.monotonic() - started
    if json:
        counts = {stage: c.model_dump() for stage, c in result.stages.items()}
        print_json(
            {
                "files": result.files, "bytes": result.bytes, "seconds": round(seconds, 3), "stages": counts,
                "decoded": result.decoded, "unfinished": result.unfinished, "signed_by": result.signed_by, "notes": result.notes,
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
        if result.signed_by:
            typer.echo(f"signed by {result.signed_by}")
        problems = quantity(len(result.problems), "problem")
        whole = " in a run that is not finished" if result.unfinished else ""
        typer.echo(
            f"{result.files} files, {result.bytes / 1e6:.1f} MB{decoded}, {result.bytes / 1e6 / seconds:.0f} MB/s:"
            f" {problems}{whole}"
        )
    if result.problems:
        if not json:
            typer.echo("to mend a run: delete the files named here, and give its command again")
        raise WorkError("\n".join(result.problems))
    if result.unfinished:
        raise typer.Exit(1)


def _verify_private(path: str, run: str, json: bool) -> None:
    from dataclasses import asdict

    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.inspect.private import search_published

    found = search_published(path, run)
    if json:
        print_json({**asdict(found), "left": found.counts})
    else:
        for kind, count in found.counts.items():
            typer.echo(f"{kind:<12} {count:>9,}")
        left = sum(found.counts.values())
        typer.echo(f"{found.files} files, {found.bytes / 1e6:.1f} MB searched: {left:,} originals left")
        if not run:
            typer.echo(
                "note: of a run, what publish takes was searched, without source_id and locator of the documents, which it cleans"
            )
    places = [
        f"{Folder(path) / one.file}: {one.count:,} {one.kind} left, first at {one.first}"
        for one in found.finds
    ]
    problems = [*places, *(f"{Folder(path)}/{line} (not searched)" for line in found.skipped)]
    if problems:
        raise WorkError("\n".join(problems))


EXPIRE_EXAMPLE = "corpusmill expire runs/quickstart --now"


def expire(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run or a stage's output.")],
    now: Annotated[bool, typer.Option("--now", help="Whatever the recipe's `retain` is.")] = False,
    json: Json = False,
) -> None:
    """Delete the text of stages before the last local one."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.expire import expire as delete
    from corpusmill.pipeline.engine.expire import intermediate
    from corpusmill.pipeline.engine.layout import folders_of, recipe_of
    from corpusmill.pipeline.engine.owner import Claim

    recipe, alone = recipe_of(run)
    if recipe.retain == "all" and not now:
        raise UserError(f"{run}: its recipe keeps all text (retain: all); give --now to delete it")
    places = folders_of(Folder(run), recipe.stage_names, alone)
    with Claim(Folder(run), _log):
        gone = delete(intermediate(recipe, places.__getitem__), recipe.retain, _log, now=now)
    if json:
        print_json({"run": Folder(run).url, "bytes": gone})
    elif not gone:
        typer.echo("nothing to delete: it is deleted already, or it is not time yet")


TRACE_EXAMPLE = "corpusmill trace books-train-000000:2:100-120 --run runs/quickstart"
FIND_EXAMPLE = "corpusmill find 1791_george_washington_n --run runs/quickstart"


def _log(line: str) -> None:
    typer.echo(line, err=True)


def trace(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="SHARD:BLOCK:TOKEN...", help="Or a range of tokens, A-B. SHARD: a tar's name or path."
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="DIR", help="Folder or URL of a run, a stage's output, or shards."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw/--no-raw", help="Read the source's record again.")] = True,
    show_redacted: Annotated[
        bool, typer.Option("--show-redacted", help="Show what redact replaced, from the text as ingested.")
    ] = False,
    json: Json = False,
) -> None:
    """From tokens back to source, record, characters and bytes."""
    from corpusmill.pipeline.inspect.lineage.shards import parse
    from corpusmill.pipeline.inspect.lineage.show import as_json, in_words
    from corpusmill.pipeline.inspect.lineage.trace import Tracer, open_shards
    from corpusmill.pipeline.inspect.why import explain

    found, errors = [], []
    tracers: dict[str | None, Tracer] = {}
    for text in addresses:
        try:
            address = parse(text)
            place = None if run is not None else address.shard.rpartition("/")[0]
            if place not in tracers:
                tracers[place] = Tracer(*open_shards(address, run, _log), raw)
            found += list(tracers[place].trace(address))
        except (UserError, WorkError) as error:  # the others are answered all the same
            errors.append(error)
    if json and found:
        print_json([as_json(one, show_redacted) for one in found])
    elif found:
        for one in found:
            typer.echo(in_words(one, explain, show_redacted))
    asked = [tracer.shards.requests for tracer in tracers.values()]
    if asked:
        _log(f"{sum(r.count for r in asked)} reads of the run, {sum(r.received for r in asked):,} bytes")
    if errors:
        kind = UserError if any(isinstance(error, UserError) for error in errors) else WorkError
        raise kind("\n".join(dict.fromkeys(map(str, errors))))


def find(
    document: Annotated[
        str, typer.Argument(metavar="DOC_ID", help="doc_id in hex, the input's own id, a locator or a URL.")
    ],
    run: Annotated[
        str, typer.Option("--run", metavar="DIR", help="Folder or URL of a run, a stage's output, or shards.")
    ],
    chars: Annotated[
        str | None,
        typer.Option("--chars", metavar="A-B", help="Only these characters of the cleaned text, from 0."),
    ] = None,
    ingested: Annotated[
        str | None, typer.Option("--ingested", metavar="A-B", help="The same, of the text as ingested.")
    ] = None,
    json: Json = False,
) -> None:
    """The shards, blocks and tokens of a document."""
    from corpusmill.pipeline.inspect.lineage.find import Finder
    from corpusmill.pipeline.inspect.lineage.shards import characters
    from corpusmill.pipeline.inspect.lineage.show import found_in_words, found_json
    from corpusmill.pipeline.inspect.lineage.trace import shards_of

    if chars is not None and ingested is not None:
        raise UserError(
            "--chars and --ingested: give one of them: characters are of the cleaned text, or the ingested"
        )
    wanted = None if chars is None else characters("--chars", chars)
    before = None if ingested is None else characters("--ingested", ingested)
    shards, places = shards_of(run, _log)
    found = Finder(shards, places).find(document, wanted, before)
    asked = shards.requests
    if json:
        documents = [found_json(one) for one in found]
        print_json({"documents": documents, "requests": asked.count, "bytes": asked.received})
    else:
        for one in found:
            typer.echo(found_in_words(one))
    _log(f"{quantity(asked.count, 'read')}, {quantity(asked.received, 'byte')}")


COMPARE_EXAMPLE = "corpusmill compare runs/before runs/after --html compare.html"


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Folder or URL of a run or a stage's output.")],
    b: Annotated[str, typer.Argument(metavar="B", help="That of another run.")],
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page as well: a path or URL.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Documents to show of each kind of change.")] = 3,
    scheduler: Address = None,
    workers: OwnProcess = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Two runs: which documents entered and left, and why."""
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.inspect.compare.answer import compare as ask
    from corpusmill.pipeline.inspect.compare.page import render
    from corpusmill.pipeline.inspect.compare.runs import open_run
    from corpusmill.pipeline.inspect.compare.words import show
    from corpusmill.schemas.recipe import Cluster

    runs = open_run(a), open_run(b)
    with Workers(Cluster(workers=workers), scheduler, Progress(quiet=quiet or workers == 0)) as tasks:
        found = ask(*runs, tasks, examples)
    present(found, show, render, html, json)


EXPORT_EXAMPLE = "corpusmill shard-export runs/quickstart out/megatron --to megatron"


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
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Shards for Megatron-LM, datatrove, DALI or webshart."""
    from corpusmill.pipeline.engine.progress import explained

    with explained(f"{out} lacks files: run the same command again, which writes all of them again"):
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
