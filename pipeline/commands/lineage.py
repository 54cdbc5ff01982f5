"""`corpusmill trace` and `corpusmill find`: from a token to its source, and from a document to its tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.pipeline.commands.options import Json, print_json

TRACE_EXAMPLE = "corpusmill trace books-train-000000:2:100-120 --run runs/quickstart"
FIND_EXAMPLE = "corpusmill find 1791_george_washington_n --run runs/quickstart"


def _say(line: str) -> None:
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
    from corpusmill.pipeline.inspect.lineage.address import parse
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
                tracers[place] = Tracer(*open_shards(address, run, _say), raw)
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
        _say(f"{sum(r.count for r in asked)} reads of the run, {sum(r.received for r in asked):,} bytes")
    if errors:
        kind = WorkError if not any(isinstance(error, UserError) for error in errors) else UserError
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
    from corpusmill.pipeline.inspect.lineage.address import characters
    from corpusmill.pipeline.inspect.lineage.find import Finder
    from corpusmill.pipeline.inspect.lineage.show import found_in_words, found_json
    from corpusmill.pipeline.inspect.lineage.trace import shards_of

    if chars is not None and ingested is not None:
        raise UserError(
            "--chars and --ingested: give one of them: characters are of the cleaned text, or the ingested"
        )
    wanted = None if chars is None else characters("--chars", chars)
    before = None if ingested is None else characters("--ingested", ingested)
    shards, places = shards_of(run, _say)
    found = Finder(shards, places).find(document, wanted, before)
    asked = shards.requests
    if json:
        documents = [found_json(one) for one in found]
        print_json({"documents": documents, "requests": asked.count, "bytes": asked.received})
    else:
        for one in found:
            typer.echo(found_in_words(one))
    _say(f"{asked.count} reads, {asked.received:,} bytes")
