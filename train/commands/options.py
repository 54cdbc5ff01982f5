"""What the trainer's commands share: options, and the printing of results."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from corpusmill.schemas.evaluation import Estimate


def setting(example: str) -> Any:
    """The option `--set KEY=VALUE`, with an example in its help."""
    return typer.Option("--set", metavar="KEY=VALUE", help=f"override, such as {example}")


Config = Annotated[str, typer.Argument(metavar="CONFIG", help="a training config (.yaml)")]
Run = Annotated[
    str, typer.Argument(metavar="CONFIG|RUN", help="a training config (.yaml), or a run's folder or URL")
]
Set = Annotated[list[str] | None, setting("schedule.steps=50")]
Json = Annotated[bool, typer.Option("--json", help="print one machine-readable result")]


def print_json(result: Any) -> None:
    """One line of JSON on standard output."""
    typer.echo(json.dumps(result, ensure_ascii=False))


def print_table(lines: list[list[str]], title: str) -> None:
    """Heading and rows: a drawn table on a terminal, Markdown when piped; all columns but the first to the right."""
    if not sys.stdout.isatty():
        typer.echo(f"{title}\n\n{markdown(lines)}\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(lines[0]):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in lines[1:]:
        table.add_row(*row)
    Console().print(table)


def markdown(lines: list[list[str]]) -> str:
    """Heading and rows as a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]

    def line(row: list[str]) -> str:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return "| " + " | ".join([row[0].ljust(widths[0]), *numbers]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(lines[0]), rule, *map(line, lines[1:])])


def value(found: Estimate | None, sign: str = "") -> str:
    """A cell with the value of an estimate; `sign`: +, of a difference."""
    return "–" if found is None else f"{found.value:{sign}.4f}"


def ends(found: Estimate | None) -> str:
    """A cell with the ends of the interval of a difference."""
    return "–" if found is None or found.low is None else f"{found.low:+.4f} to {found.high:+.4f}"
