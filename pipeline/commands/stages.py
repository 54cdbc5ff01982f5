"""Commands of the pipeline: `run` for a recipe, one command per stage for the user's own files, and those
that read a finished run. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.classifier import app as classifier
from corpusmill.pipeline.commands.dedup_plan import EXAMPLE as PLAN_EXAMPLE
from corpusmill.pipeline.commands.dedup_plan import OPTIONS, dedup_plan
from corpusmill.pipeline.commands.lineage import FIND_EXAMPLE, TRACE_EXAMPLE, find, trace
from corpusmill.pipeline.commands.options import Address, Json, Quiet, Set, print_json
from corpusmill.pipeline.commands.parity import EXAMPLE as PARITY_EXAMPLE
from corpusmill.pipeline.commands.parity import parity
from corpusmill.pipeline.commands.runs import report, verify, why
from corpusmill.pipeline.commands.shard_export import EXAMPLE as EXPORT_EXAMPLE
from corpusmill.pipeline.commands.shard_export import shard_export
from corpusmill.pipeline.commands.signals import EXAMPLE as SIGNALS_EXAMPLE
from corpusmill.pipeline.commands.signals import signals
from corpusmill.pipeline.commands.takedown import EXAMPLE as TAKEDOWN_EXAMPLE
from corpusmill.pipeline.commands.takedown import takedown
from corpusmill.pipeline.commands.what_if import EXAMPLE as WHAT_IF_EXAMPLE
from corpusmill.pipeline.commands.what_if import what_if
from corpusmill.pipeline.engine.layout import stage_folders
from corpusmill.schemas.decontaminate import DecontaminateParams
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.redact import RedactParams
from corpusmill.schemas.shard import ShardParams
from corpusmill.schemas.stages import IngestParams
from corpusmill.schemas.tokenizer import TokenizerParams

WorkerCount = Annotated[
    int | None, typer.Option("--workers", min=0, help="Local processes; 0: none. [cores]")
]

COMMANDS: dict[str, tuple[type[Strict], list[str], str]] = {
    "ingest": (IngestParams, ["ingest"], "Raw files to document partitions."),
    "filter": (FilterParams, ["ingest", "filter"], "Measure signals, judge rules, keep what passes."),
    "dedup": (DedupParams, ["ingest", "dedup"], "Remove exact and verified near-duplicates."),
    "decontaminate": (
        DecontaminateParams,
        ["ingest", "decontaminate"],
        "Remove what holds items of evaluation sets.",
    ),
    "redact": (RedactParams, ["ingest", "redact"], "Replace personal data and secrets."),
    "tokenizer": (
        TokenizerParams,
        ["ingest", "split", "tokenizer"],
        "Train a byte-level BPE tokenizer.",
    ),
    "shard": (
        ShardParams,
        ["ingest", "split", "tokenizer", "shard"],
        "Write WebDataset token shards.",
    ),
}
RECIPE_ONLY = {"remove_only_from"}  # a command of its own has one source
EXAMPLES = {
    "ingest": "corpusmill ingest crawl/*.warc.gz out/ingested",
    "filter": "corpusmill filter docs.jsonl.gz out/filtered --rules gopher_quality --rules c4",
    "dedup": "corpusmill dedup docs/*.parquet out/deduped --similarity 0.8 --text-column content",
    "decontaminate": "corpusmill decontaminate docs.jsonl out/clean --against evals/",
    "redact": "corpusmill redact mail.jsonl out/redacted --kinds email --kinds phone",
    "tokenizer": "corpusmill tokenizer docs.jsonl out/tokenizer --vocab-size 32000",
    "shard": "corpusmill shard docs.jsonl out/shards --tokenizer out/tokenizer",
}


def register(app: typer.Typer) -> None:
    """Add the pipeline's commands to the front door."""
    app.command("run", epilog="Example: corpusmill run configs/recipes/quickstart.yaml --set dedup.ngram=4")(
        run
    )
    for name in COMMANDS:
        app.command(name, epilog=f"Example: {EXAMPLES[name]}")(_stage_command(name))
    app.command("report", epilog="Example: corpusmill report runs/quickstart")(report)
    app.command("why", epilog="Example: corpusmill why 1791_george_washington_n --run runs/quickstart")(why)
    app.command("signals", epilog=f"Example: {SIGNALS_EXAMPLE}")(signals)
    app.command("what-if", epilog=f"Example: {WHAT_IF_EXAMPLE}")(what_if)
    app.command("parity", epilog=f"Example: {PARITY_EXAMPLE}")(parity)
    app.command("trace", epilog=f"Example: {TRACE_EXAMPLE}")(trace)
    app.command("find", epilog=f"Example: {FIND_EXAMPLE}")(find)
    app.command("shard-export", epilog=f"Example: {EXPORT_EXAMPLE}")(shard_export)
    app.command("verify", epilog="Example: corpusmill verify runs/quickstart")(verify)
    app.command("takedown", epilog=f"Example: {TAKEDOWN_EXAMPLE}")(takedown)
    app.command("dedup-plan", epilog=f"Example: {PLAN_EXAMPLE}")(dedup_plan)
    app.add_typer(classifier, name="classifier")


def run(
    recipe: Annotated[str, typer.Argument(help="A recipe (YAML).")],
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run and why; write nothing.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The whole pipeline: whatever is finished and valid is skipped."""
    from corpusmill.common.config import load
    from corpusmill.schemas.recipe import Recipe

    settings = list(set_ or []) + ([f"cluster.workers={workers}"] if workers is not None else [])
    loaded = load(Recipe, recipe, settings)
    _execute(loaded, loaded.output_url, scheduler, dry_run, json, quiet)


def _execute(
    recipe: Any, output: str, address: str | None, dry_run: bool, json: bool, quiet: bool,
    folders: dict[str, str] | None = None,
) -> None:  # fmt: skip
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.runner import Run

    progress = Progress(quiet=quiet)
    folder = Folder(output)
    with Workers(recipe.cluster, address, progress) as scheduler:
        overrides = {name: Folder(url) for name, url in (folders or {}).items()}
        job = Run(recipe, folder, scheduler, progress, overrides)
        planned = job.plan()
        todo = [entry for entry in planned if entry.done is None]
        if dry_run:
            _show_plan(planned, json)
            return
        if todo:
            progress.say(
                f"{folder}: {len(planned) - len(todo)} of {len(planned)} stages are finished and valid"
            )
        try:
            manifests = job.execute(planned)
        except KeyboardInterrupt:
            progress.say("interrupted; what is finished stays: run the same command to go on")
            raise
    if not todo:
        progress.say(f"{folder}: everything is finished and valid, nothing to do")
    _show_result(folder.url, manifests, json)


def _show_plan(planned: list[Any], json: bool) -> None:
    if json:
        print_json([{"stage": p.name, "key": p.key, "run": p.done is None, "why": p.why} for p in planned])
        return
    for entry in planned:
        state = "finished" if entry.done is not None else "RUN"
        typer.echo(f"{entry.name:<10} {state:<9} {entry.why or 'key and files match'}")


def _show_result(where: str, manifests: list[Any], json: bool) -> None:
    if json:
        stages = {
            m.stage: {
                "key": m.key,
                "counts": m.counts.model_dump(),
                "counters": m.counters,
                "seconds": m.seconds,
            }
            for m in manifests
        }
        print_json({"output": where, "stages": stages})
        return
    typer.echo(f"{'stage':<10} {'in':>9} {'kept':>9} {'removed':>9} {'quarantined':>11} {'MB kept':>9}")
    for m in manifests:
        if m.partitions:
            c = m.counts
            typer.echo(
                f"{m.stage:<10} {c.docs_in:>9,} {c.kept:>9,} {c.removed:>9,} {c.quarantined:>11,}"
                f" {c.bytes_kept / 1e6:>9.2f}"
            )
    typer.echo(f"output: {where}")


def _stage_command(name: str) -> Callable[..., None]:
    """A stage as a command of its own, with one option for each simple parameter of its model."""
    model, stages, summary = COMMANDS[name]
    input_format = "input_format" if "format" in model.model_fields else "format"

    def command(**given: Any) -> None:
        from corpusmill.common.config import override, validate
        from corpusmill.pipeline.tokenizer.given import TRAIN, read_given
        from corpusmill.schemas.recipe import Recipe

        paths, out = given.pop("input"), given.pop("output")
        if name == "dedup":
            taken, shards = given.pop("takedown"), given.pop("shards")
            if taken is not None:
                if paths:
                    raise UserError(
                        "--takedown: takes OUT alone; documents are added by a command of their own"
                    )
                from corpusmill.pipeline.commands.dedup_takedown import tell

                tell(given, taken, out, shards)
                return
            if not paths:
                raise UserError("dedup: give IN... and OUT")
            given["lines"] = given["lines"] and {"unit": given["lines"]}
            given["substrings"] = given["substrings"] and {"min_tokens": given["substrings"]}
        source = {
            "paths": paths, "format": given.pop(input_format), "text_column": given.pop("text_column"),
            "id_column": given.pop("id_column"),
        }  # fmt: skip
        settings, address, workers = given.pop("set_"), given.pop("scheduler"), given.pop("workers")
        json, quiet = given.pop("json"), given.pop("quiet")
        config: dict[str, Any] = {"name": name, "output": out, "sources": {"input": source}, "stages": stages}
        if name == "shard":
            path = given.pop("tokenizer")
            read_given("--tokenizer", path)  # said of the option; the stage knows a key of the recipe
            config["tokenizer"] = {"path": path}
        elif name == "tokenizer":
            if given["path"] is not None:
                read_given("--path", given["path"], TRAIN)
            config["split"] = {"validation_share": 0.0, "min_documents": 0}  # every document is for training
        config[name] = {key: value for key, value in given.items() if value not in (None, [])}
        if workers is not None:
            config["cluster"] = {"workers": workers}
        recipe = validate(Recipe, override(config, settings or []), f"corpusmill {name}")
        _execute(recipe, out, address, False, json, quiet, stage_folders(stages, out))

    command.__name__ = name
    command.__doc__ = summary
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    described = typer.Argument(metavar="IN...", help="Files, folders, globs or URLs.")
    inputs, optional_inputs = Annotated[list[str], described], Annotated[list[str] | None, described]
    output = Annotated[str, typer.Argument(metavar="OUT", help="Folder or URL for the result.")]
    parameters = [
        inspect.Parameter("input", positional, annotation=inputs),
        inspect.Parameter("output", positional, annotation=output),
    ]
    if name == "shard":
        existing = Annotated[
            str,
            typer.Option(
                "--tokenizer",
                help="tokenizer.json to encode with, or its folder; also of text shards, whose index names it.",
            ),
        ]
        parameters.append(inspect.Parameter("tokenizer", positional, annotation=existing))
    parameters += _options(model)
    if name == "dedup":
        parameters[0] = parameters[0].replace(annotation=optional_inputs, default=None)
        parameters[1] = parameters[1].replace(default=...)  # required: a signature wants a default after one
        parameters += [
            inspect.Parameter(flag, positional, annotation=Annotated[kind, option], default=None)
            for flag, kind, option in OPTIONS
        ]
    common: list[tuple[str, Any, Any]] = [
        (input_format, Annotated[str, typer.Option(help="auto, jsonl, parquet, text, markdown, warc, wet, html, mediawiki.")], "auto"),
        ("text_column", Annotated[str, typer.Option(help="Field with the text.")], "text"),
        ("id_column", Annotated[str | None, typer.Option(help="Field kept as the document's own id.")], None),
        ("set_", Set, None), ("scheduler", Address, None), ("workers", WorkerCount, None),
        ("json", Json, False), ("quiet", Quiet, False),
    ]  # fmt: skip
    taken = {p.name for p in parameters}
    parameters += [
        inspect.Parameter(n, positional, annotation=a, default=default)
        for n, a, default in common
        if n not in taken
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _options(model: type[Strict]) -> list[inspect.Parameter]:
    """One option per parameter whose type fits on a command line; the rest is reached by --set."""
    options = []
    for name, field in model.model_fields.items():
        kind: Any = _simple(field.annotation)
        if kind is None or name in RECIPE_ONLY:
            continue
        default = field.get_default(call_default_factory=True)
        shown = ", ".join(map(str, default)) if isinstance(default, list) else default
        if kind is bool:
            shown = "on" if default else "off"
        text = (field.description or "").rstrip(".")
        help_text = text if shown in (None, "") else f"{text} (default: {shown})".strip()
        flag = "--" + name.replace("_", "-")
        names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
        annotation = Annotated[kind | None, typer.Option(*names, help=help_text, show_default=False)]
        options.append(
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=None
            )
        )
    return options


def _simple(annotation: Any) -> Any:
    """The command-line type of a field, or None: unions with None, literals and lists of words are simple."""
    arguments = [a for a in get_args(annotation) if a is not type(None)]
    if type(None) in get_args(annotation):
        return _simple(arguments[0]) if len(arguments) == 1 else None
    if get_origin(annotation) is Literal or (inspect.isclass(annotation) and issubclass(annotation, StrEnum)):
        return str
    if get_origin(annotation) is list:
        return list[str] if _simple(arguments[0]) is str else None
    return annotation if annotation in (bool, int, float, str) else None
