"""`corpusmill passages`: what `decontaminate` found, beside the items of the evaluation sets."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.pipeline.commands.options import Json, present

PASSAGES_EXAMPLE = "corpusmill passages out/clean --html passages.html"


def passages(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run or a stage's output.")],
    document: Annotated[
        str | None, typer.Option("--doc", metavar="DOC_ID", help="Of this document alone.")
    ] = None,
    set_: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Of this evaluation set alone.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Passages to show.")] = 50,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="The evaluation files, if they are not where the recipe names them."
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page as well: a path or URL.")
    ] = None,
    json: Json = False,
) -> None:
    """Passages that hold items of evaluation sets, beside the items."""
    from corpusmill.pipeline.inspect.passages.gather import gather
    from corpusmill.pipeline.inspect.passages.page import render, show

    found = gather(run, document, set_, limit, against or ())
    present(found, show, render, html, json)
