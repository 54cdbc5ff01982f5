"""Options that several commands have, and the output that `--json` asks for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from corpusmill.schemas.manifest import Strict

Inputs = Annotated[list[str], typer.Argument(metavar="IN...", help="Files, folders, globs or URLs.")]
Output = Annotated[str, typer.Argument(metavar="OUT", help="Folder or URL for the result.")]
InputFormat = Annotated[
    str, typer.Option(help="auto, jsonl, parquet, text, markdown, warc, wet, html, mediawiki.")
]
TextColumn = Annotated[str, typer.Option(help="Field with the text.")]
IdColumn = Annotated[str | None, typer.Option(help="Field with the document's own id.")]
WorkerCount = Annotated[
    int | None, typer.Option("--workers", min=0, help="Local processes; 0: none. [cores]")
]

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


def parameter(model: type[Strict], name: str) -> Any:
    """The option of a stage's parameter: its flag, and its description and default as help."""
    field = model.model_fields[name]
    default = field.get_default(call_default_factory=True)
    shown = ", ".join(map(str, default)) if isinstance(default, list) else default
    flag = "--" + name.replace("_", "-")
    if isinstance(default, bool):
        shown = "on" if default else "off"
        flag = f"{flag}/--no-{flag[2:]}"
    text = (field.description or "").rstrip(".")
    help_text = text if shown in (None, "") else f"{text} (default: {shown})".strip()
    return typer.Option(flag, help=help_text, show_default=False)
