"""`corpusmill glitch-tokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.yaml import printable
from corpusmill.train.commands.options import Json, Run, Set, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.schemas.glitch import GlitchToken

ROWS = 50  # that are printed; the file has all


def glitch_tokens(
    run: Run,
    most_seen: Annotated[
        int, typer.Option(min=0, help="list tokens that training has seen at most so often")
    ] = 0,
    documents: Annotated[
        int, typer.Option(min=0, help="documents to name for each; 0: none, which saves reading the shards")
    ] = 3,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Tokens that training hardly touched, by counts, embeddings and asking the model."""
    from corpusmill.train.evaluate.glitch import glitch_tokens as work
    from corpusmill.train.run_folder import open_run

    result = work(*open_run(run, set_), most_seen, documents)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    title = f"{result.name}, step {result.step}: tokens seen at most {most_seen} times"
    print_table(_lines(result.tokens), title)
    if result.suspects:
        print_table(_lines(result.suspects), "Seen more often, with rows like those of untouched tokens")
    typer.echo(result.finding)


def _lines(rows: Sequence[GlitchToken]) -> list[list[str]]:
    lines = [["token", "text", "in train", "seen", "norm", "distance", "repeated", "a document"]]
    for row in rows[:ROWS]:
        lines.append(
            [
                str(row.token), printable(row.text) + ("" if row.reachable else " (unreachable)"), f"{row.train:,}",
                f"{row.seen:,}", f"{row.input_norm:.3f}", "" if row.distance is None else f"{row.distance:.3f}",
                f"{row.repeat:.4f}", row.documents[0].doc_id if row.documents else "",
            ]
        )  # fmt: skip
    if len(rows) > ROWS:
        lines.append([f"and {len(rows) - ROWS:,} more", *[""] * (len(lines[0]) - 1)])
    return lines
