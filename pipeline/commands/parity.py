"""`parity`: two rule sets over the user's own data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from corpusmill.pipeline.commands.options import Json, print_json

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLE: Final = "corpusmill parity gopher_quality+gopher_repetition gopher@datatrove docs/*.jsonl.gz"

Sets = "A rule set, or several joined by '+': names of sets that ship, or files of your own."


def parity(
    a: Annotated[str, typer.Argument(metavar="A", help=Sets)],
    b: Annotated[str, typer.Argument(metavar="B", help=Sets)],
    input: Annotated[list[str], typer.Argument(metavar="IN...", help="Files, folders, globs or URLs.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Compare the first so many documents. [all]")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Documents to show for each rule.")] = 3,
    format: Annotated[str, typer.Option(help="auto, jsonl, parquet, text, markdown, warc, ...")] = "auto",
    text_column: Annotated[str, typer.Option(help="Field with the text.")] = "text",
    id_column: Annotated[str | None, typer.Option(help="Field with the document's own id.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of filter for both; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Where two rule sets disagree on your documents."""
    from corpusmill.common.config import override, validate
    from corpusmill.pipeline.inspect.parity.compare import Parity, shown
    from corpusmill.schemas.recipe import Recipe

    sides = [names.split("+") for names in (a, b)]
    source = {"paths": input, "format": format, "text_column": text_column, "id_column": id_column}
    config: dict[str, Any] = {
        "name": "parity", "sources": {"input": source}, "stages": ["ingest", "filter"],
        "filter": {"rules": list(dict.fromkeys([*sides[0], *sides[1]]))},
    }  # fmt: skip
    recipe = validate(Recipe, override(config, set_ or []), "corpusmill parity")
    found = Parity(sides[0], sides[1], recipe.filter.model_dump(), examples)
    left = limit
    for docs in documents(recipe):
        found.add(docs if left is None else docs.slice(0, left))
        if left is not None:
            left -= len(docs)
            if left <= 0:
                break
    if json:
        print_json(found.as_json())
    else:
        typer.echo(shown(found))


def documents(recipe: Any) -> Iterator[pa.Table]:
    """The documents of a recipe's sources, a partition at a time, as `ingest` reads them; nothing is written.

    Raises `UserError` for a path where nothing is.
    """
    from corpusmill.pipeline.engine.custom import load_stage

    stage: Any = load_stage("ingest", recipe)
    for unit in stage.units():
        for _, outcome, _ in stage.read(unit):
            yield outcome.kept
