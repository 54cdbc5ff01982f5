"""One command per stage, for the user's own files, and the registration of all commands of the pipeline. Nothing heavy is
imported before a command runs.

A parameter of a stage whose type fits on a command line is an option; the rest is reached by `--set`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from corpusmill.pipeline.commands.classifier import app as classifier
from corpusmill.pipeline.commands.dedup import PLAN_EXAMPLE, dedup, dedup_plan
from corpusmill.pipeline.commands.options import (
    Address,
    IdColumn,
    InputFormat,
    Inputs,
    Json,
    Output,
    Quiet,
    Set,
    TextColumn,
    WorkerCount,
    parameter,
)
from corpusmill.pipeline.commands.rules import (
    PARITY_EXAMPLE,
    SIGNALS_EXAMPLE,
    WHAT_IF_EXAMPLE,
    parity,
    signals,
    what_if,
)
from corpusmill.pipeline.commands.run import RUN_EXAMPLE, run, run_stage
from corpusmill.pipeline.commands.runs import (
    EXPORT_EXAMPLE,
    FIND_EXAMPLE,
    TRACE_EXAMPLE,
    find,
    report,
    shard_export,
    trace,
    verify,
    why,
)
from corpusmill.pipeline.commands.setup import INIT_EXAMPLE, WARMUP_EXAMPLE, init, warmup
from corpusmill.pipeline.commands.takedown import TAKEDOWN_EXAMPLE, takedown
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.recipe import STAGES
from corpusmill.schemas.shards import ShardParams
from corpusmill.schemas.stages import DecontaminateParams, IngestParams, RedactParams, StageSpec
from corpusmill.schemas.tokenizer import TokenizerParams

ExistingTokenizer = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        help="tokenizer.json to encode with, or its folder; text shards record it too.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the pipeline's commands to `corpusmill`."""
    app.command("init", epilog=f"Example: {INIT_EXAMPLE}")(init)
    app.command("run", epilog=f"Example: {RUN_EXAMPLE}")(run)
    for name, spec in STAGES.items():
        if spec.declared.example:
            command = COMMANDS.get(name) or _plain(spec)
            app.command(name, help=spec.declared.summary, epilog=f"Example: {spec.declared.example}")(command)
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
    app.command("warmup", epilog=f"Example: {WARMUP_EXAMPLE}")(warmup)
    app.add_typer(classifier, name="classifier")


def _plain(spec: StageSpec) -> Callable[..., None]:
    """The command of a stage that has no function here: its parameters are reached by `--set`."""

    def command(
        input: Inputs,
        output: Output,
        format: InputFormat = "auto",
        text_column: TextColumn = "text",
        id_column: IdColumn = None,
        set_: Set = None,
        scheduler: Address = None,
        workers: WorkerCount = None,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        shared = dict(locals())
        shared.pop("spec", None)
        run_stage(spec.name, shared)

    return command


def ingest(
    input: Inputs,
    output: Output,
    partition_mb: Annotated[float | None, parameter(IngestParams, "partition_mb")] = None,
    max_record_mb: Annotated[float | None, parameter(IngestParams, "max_record_mb")] = None,
    html_extractor: Annotated[str | None, parameter(IngestParams, "html_extractor")] = None,
    repair_encoding: Annotated[bool | None, parameter(IngestParams, "repair_encoding")] = None,
    min_chars: Annotated[int | None, parameter(IngestParams, "min_chars")] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `IngestParams` for the parameters."""
    run_stage("ingest", locals())


def filter_(
    input: Inputs,
    output: Output,
    rules: Annotated[list[str] | None, parameter(FilterParams, "rules")] = None,
    disable: Annotated[list[str] | None, parameter(FilterParams, "disable")] = None,
    cut_lines: Annotated[bool | None, parameter(FilterParams, "cut_lines")] = None,
    plugins: Annotated[list[str] | None, parameter(FilterParams, "plugins")] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `FilterParams` for the parameters."""
    run_stage("filter", locals())


def decontaminate(
    input: Inputs,
    output: Output,
    against: Annotated[list[str] | None, parameter(DecontaminateParams, "against")] = None,
    fields: Annotated[list[str] | None, parameter(DecontaminateParams, "fields")] = None,
    ngram: Annotated[int | None, parameter(DecontaminateParams, "ngram")] = None,
    measure: Annotated[str | None, parameter(DecontaminateParams, "measure")] = None,
    threshold: Annotated[float | None, parameter(DecontaminateParams, "threshold")] = None,
    parts: Annotated[list[str] | None, parameter(DecontaminateParams, "parts")] = None,
    min_words: Annotated[int | None, parameter(DecontaminateParams, "min_words")] = None,
    answer_within: Annotated[int | None, parameter(DecontaminateParams, "answer_within")] = None,
    max_items: Annotated[int | None, parameter(DecontaminateParams, "max_items")] = None,
    max_documents: Annotated[int | None, parameter(DecontaminateParams, "max_documents")] = None,
    action: Annotated[str | None, parameter(DecontaminateParams, "action")] = None,
    span: Annotated[str | None, parameter(DecontaminateParams, "span")] = None,
    min_left: Annotated[int | None, parameter(DecontaminateParams, "min_left")] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `DecontaminateParams` for the parameters."""
    run_stage("decontaminate", locals())


def redact(
    input: Inputs,
    output: Output,
    kinds: Annotated[list[str] | None, parameter(RedactParams, "kinds")] = None,
    replacement: Annotated[str | None, parameter(RedactParams, "replacement")] = None,
    ip: Annotated[str | None, parameter(RedactParams, "ip")] = None,
    phone_regions: Annotated[list[str] | None, parameter(RedactParams, "phone_regions")] = None,
    key_env: Annotated[str | None, parameter(RedactParams, "key_env")] = None,
    model: Annotated[str | None, parameter(RedactParams, "model")] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `RedactParams` for the parameters."""
    run_stage("redact", locals())


def tokenizer(
    input: Inputs,
    output: Output,
    vocab_size: Annotated[int | None, parameter(TokenizerParams, "vocab_size")] = None,
    vocab_multiple: Annotated[int | None, parameter(TokenizerParams, "vocab_multiple")] = None,
    pre_tokenizer: Annotated[str | None, parameter(TokenizerParams, "pre_tokenizer")] = None,
    digits: Annotated[str | None, parameter(TokenizerParams, "digits")] = None,
    nfc: Annotated[bool | None, parameter(TokenizerParams, "nfc")] = None,
    special_tokens: Annotated[list[str] | None, parameter(TokenizerParams, "special_tokens")] = None,
    max_token_bytes: Annotated[int | None, parameter(TokenizerParams, "max_token_bytes")] = None,
    path: Annotated[str | None, parameter(TokenizerParams, "path")] = None,
    sample_mb: Annotated[float | None, parameter(TokenizerParams, "sample_mb")] = None,
    min_frequency: Annotated[int | None, parameter(TokenizerParams, "min_frequency")] = None,
    eos_token: Annotated[str | None, parameter(TokenizerParams, "eos_token")] = None,
    compare: Annotated[list[str] | None, parameter(TokenizerParams, "compare")] = None,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `TokenizerParams` for the parameters."""
    given = dict(locals())
    if path is not None:
        from corpusmill.common.hugging_face import TRAIN, read_given

        read_given("--path", path, TRAIN)
    everything = {"validation_share": 0.0, "min_documents": 0}  # every document is for training
    run_stage("tokenizer", given, {"split": everything})


def shard(
    input: Inputs,
    output: Output,
    tokenizer: ExistingTokenizer,
    format: Annotated[str | None, parameter(ShardParams, "format")] = None,
    block_tokens: Annotated[int | None, parameter(ShardParams, "block_tokens")] = None,
    shard_mb: Annotated[float | None, parameter(ShardParams, "shard_mb")] = None,
    input_format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    scheduler: Address = None,
    workers: WorkerCount = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See `ShardParams` for the parameters."""
    given = dict(locals())
    from corpusmill.common.hugging_face import read_given

    path = given.pop("tokenizer")
    read_given("--tokenizer", path)  # a message that names the option; the stage knows a key of the recipe
    run_stage("shard", given, {"tokenizer": {"path": path}})


COMMANDS: dict[str, Callable[..., Any]] = {
    "ingest": ingest, "filter": filter_, "dedup": dedup, "decontaminate": decontaminate, "redact": redact,
    "tokenizer": tokenizer, "shard": shard,
}  # fmt: skip
