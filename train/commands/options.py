"""What the trainer's commands share: options, and the printing of results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from corpusmill.common.errors import UserError


def setting(example: str) -> Any:
    """The option `--set KEY=VALUE`, with an example in its help."""
    return typer.Option("--set", metavar="KEY=VALUE", help=f"override, such as {example}")


Config = Annotated[str, typer.Argument(metavar="CONFIG", help="a training config (.yaml)")]
Run = Annotated[
    str, typer.Argument(metavar="CONFIG|RUN", help="a training config (.yaml), or a run's folder or URL")
]
Set = Annotated[list[str] | None, setting("schedule.steps=50")]
Json = Annotated[bool, typer.Option("--json", help="print one machine-readable result")]


def json_rows(file: Path, option: str, *texts: str, optional: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file that an option names. Raises `UserError` naming the line that is none, lacks one of the `texts`, or
    has an `optional` one that is no text."""
    try:
        # Not `splitlines`: a text may hold other separators, such as U+2028.
        lines = file.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise UserError(f"{option} {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{option} {file}: is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in texts):
            wanted = ", ".join(f'"{name}"' for name in texts)
            raise UserError(f"{option} {file}: line {number} is not a JSON object with a text {wanted}")
        for name in optional:
            if not isinstance(row.get(name, ""), str):
                raise UserError(f"{option} {file}: line {number}: {name} is not a text")
        yield row


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
