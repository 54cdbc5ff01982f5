"""Options that several commands have, and the output that `--json` asks for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable result on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeatable.")
]
Address = Annotated[
    str | None, typer.Option("--scheduler", metavar="tcp://…", help="A Dask cluster's address.")
]


def print_json(value: Any) -> None:
    """One machine-readable result on stdout."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())
