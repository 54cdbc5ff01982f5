"""Tables for people: drawn on a terminal, Markdown elsewhere."""

from __future__ import annotations


def markdown(lines: list[list[str]]) -> str:
    """Heading and rows as Markdown, columns aligned, all but the first to the right."""
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]

    def line(row: list[str]) -> str:
        first, *rest = zip(row, widths, strict=True)
        return (
            "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]) + " |"
        )

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(lines[0]), rule, *map(line, lines[1:])])


def drawn(lines: list[list[str]], title: str) -> None:
    """The same on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(lines[0]):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in lines[1:]:
        table.add_row(*row)
    Console().print(table)
