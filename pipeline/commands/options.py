"""Options that several commands have, and the output that `--json` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from inspect import Parameter, Signature, isclass
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

import typer

from corpusmill.schemas.manifest import Strict

Answer = TypeVar("Answer")

Inputs = Annotated[
    list[str], typer.Argument(metavar="IN...", help="Files, folders, globs or URLs (also hf://datasets/...).")
]
Output = Annotated[str, typer.Argument(metavar="OUT", help="Folder or URL for the result.")]
InputFormat = Annotated[
    str, typer.Option(help="auto, jsonl, parquet, text, markdown, warc, wet, html, mediawiki.")
]
TextColumn = Annotated[str, typer.Option(help="Field with the text.")]
IdColumn = Annotated[str | None, typer.Option(help="Field with the document's own id.")]
WorkerCount = Annotated[
    int | None, typer.Option("--workers", min=0, help="Local processes; 0: none. [cores]")
]
RunWorkers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="Local processes; 0: none. [0 up to 16 MB of text, else cores]"),
]
OwnProcess = Annotated[int, typer.Option("--workers", min=0, help="Local processes; 0: none.")]

Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable result on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Make the finished run of another recipe again, in its place.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeatable.")
]
Address = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="tcp://…", help="A Dask scheduler's address, or its file."),
]


def print_json(value: Any) -> None:
    """One machine-readable result on stdout."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def present(
    found: Answer,
    show: Callable[[Answer], str],
    render: Callable[[Answer], str],
    html: str | None,
    json: bool,
) -> None:
    """An answer as text, or as JSON; and as a page at the path or URL `html`, if one is given."""
    from corpusmill.common.storage import Folder

    if html is not None:
        Folder(html).write(render(found).encode())
    if json:
        print_json(found)
        return
    typer.echo(show(found))
    if html is not None:
        typer.echo(f"\n{Folder(html)}")


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


class Given(NamedTuple):
    """An argument of a stage's command: its name, its type with typer's description, its default."""

    name: str
    annotation: Any
    default: Any = Parameter.empty  # it is required


IN_OUT: Final = (Given("input", Inputs), Given("output", Output))
SHARED: Final = (
    Given("text_column", TextColumn, "text"), Given("id_column", IdColumn, None), Given("set_", Set, None),
    Given("scheduler", Address, None), Given("workers", WorkerCount, None), Given("json", Json, False),
    Given("quiet", Quiet, False), Given("replace", Replace, False),
)  # fmt: skip
RECIPE_ONLY: Final = ("remove_only_from",)  # a command of its own has one source


def stage_command(
    run: Callable[[dict[str, Any]], None],
    model: type[Strict] | None = None,
    first: Sequence[Given] = IN_OUT,
    more: Sequence[Given] = (),
) -> Callable[..., None]:
    """The command of a stage, which calls `run` with its arguments by name: `first`, the parameters of `model` whose types
    fit on a command line, `more`, and what all such commands have. Without `model`, parameters are reached by `--set`."""
    types = {} if model is None else {n: _kind(f.annotation) for n, f in model.model_fields.items()}
    options = [
        Given(name, Annotated[kind | None, parameter(model, name)], None)
        for name, kind in types.items()
        if model and kind and name not in RECIPE_ONLY
    ]
    form = Given("input_format" if "format" in types else "format", InputFormat, "auto")

    def command(**given: Any) -> None:
        run(given)

    command.__signature__ = Signature(  # type: ignore[attr-defined]  # which typer reads
        [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
            for one in (*first, *options, *more, form, *SHARED)
        ]
    )
    return command


def _kind(annotation: Any) -> Any:
    """The type of a parameter on the command line, without None: its own if it is a number or a string, `str` for a choice,
    `list[str]` for a list of either; None for all others."""
    arguments = [kind for kind in get_args(annotation) if kind is not type(None)]
    if type(None) in get_args(annotation):
        return _kind(arguments[0]) if len(arguments) == 1 else None
    if get_origin(annotation) is Literal or (isclass(annotation) and issubclass(annotation, StrEnum)):
        return str
    if get_origin(annotation) is list:
        return list[str] if _kind(arguments[0]) is str else None
    return annotation if annotation in (bool, int, float, str) else None
