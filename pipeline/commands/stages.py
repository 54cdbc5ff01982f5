"""One command per stage, for the user's own files, and the registration of all commands of the pipeline. Nothing heavy is
imported before a command runs.

A parameter of a stage whose type fits on a command line is an option; the rest is reached by `--set`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from corpusmill.pipeline.commands.classifier import app as classifier
from corpusmill.pipeline.commands.dedup import PLAN_EXAMPLE, dedup, dedup_plan
from corpusmill.pipeline.commands.options import IN_OUT, Given, stage_command
from corpusmill.pipeline.commands.passages import PASSAGES_EXAMPLE, passages
from corpusmill.pipeline.commands.plan import PLAN_RUN_EXAMPLE, plan_run
from corpusmill.pipeline.commands.publish import PUBLISH_EXAMPLE, publish
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
    COMPARE_EXAMPLE,
    EXPIRE_EXAMPLE,
    EXPORT_EXAMPLE,
    FIND_EXAMPLE,
    TRACE_EXAMPLE,
    compare,
    expire,
    find,
    report,
    shard_export,
    trace,
    verify,
    why,
)
from corpusmill.pipeline.commands.setup import INIT_EXAMPLE, WARMUP_EXAMPLE, init, warmup
from corpusmill.pipeline.commands.takedown import TAKEDOWN_EXAMPLE, takedown
from corpusmill.pipeline.commands.tokenizer import TOKENIZER_HELP, TokenizerCommand, tokenizer
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.recipe import STAGES
from corpusmill.schemas.shards import ShardParams
from corpusmill.schemas.stages import DecontaminateParams, IngestParams, RedactParams, StageSpec

ExistingTokenizer = Annotated[
    str,
    typer.Option(
        "--tokenizer", help="tokenizer.json to encode with, or its folder; text shards record it too."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the pipeline's commands to `corpusmill`."""
    app.command("init", epilog=f"Example: {INIT_EXAMPLE}")(init)
    app.command("run", epilog=f"Example: {RUN_EXAMPLE}")(run)
    app.command("plan-run", epilog=f"Example: {PLAN_RUN_EXAMPLE}")(plan_run)
    for name, spec in STAGES.items():
        if spec.declared.example:
            command = COMMANDS.get(name) or _plain(spec)
            kind = TokenizerCommand if name == "tokenizer" else None
            text = spec.declared.summary + (f"\n\n{TOKENIZER_HELP}" if kind else "")
            app.command(name, cls=kind, help=text, epilog=f"Example: {spec.declared.example}")(command)
    app.command("report", epilog="Example: corpusmill report runs/quickstart")(report)
    app.command("why", epilog="Example: corpusmill why 1791_george_washington_n --run runs/quickstart")(why)
    app.command("passages", epilog=f"Example: {PASSAGES_EXAMPLE}")(passages)
    app.command("signals", epilog=f"Example: {SIGNALS_EXAMPLE}")(signals)
    app.command("what-if", epilog=f"Example: {WHAT_IF_EXAMPLE}")(what_if)
    app.command("compare", epilog=f"Example: {COMPARE_EXAMPLE}")(compare)
    app.command("parity", epilog=f"Example: {PARITY_EXAMPLE}")(parity)
    app.command("trace", epilog=f"Example: {TRACE_EXAMPLE}")(trace)
    app.command("find", epilog=f"Example: {FIND_EXAMPLE}")(find)
    app.command("shard-export", epilog=f"Example: {EXPORT_EXAMPLE}")(shard_export)
    app.command("verify", epilog="Example: corpusmill verify runs/quickstart")(verify)
    app.command("publish", epilog=f"Example: {PUBLISH_EXAMPLE}")(publish)
    app.command("expire", epilog=f"Example: {EXPIRE_EXAMPLE}")(expire)
    app.command("takedown", epilog=f"Example: {TAKEDOWN_EXAMPLE}")(takedown)
    app.command("dedup-plan", epilog=f"Example: {PLAN_EXAMPLE}")(dedup_plan)
    app.command("warmup", epilog=f"Example: {WARMUP_EXAMPLE}")(warmup)
    app.add_typer(classifier, name="classifier")


def _plain(spec: StageSpec) -> Callable[..., None]:
    """The command of a stage that has none below: its parameters are reached by `--set`."""
    return stage_command(partial(run_stage, spec.name))


def _redact(given: dict[str, Any]) -> None:
    run_stage("redact", given, {"retain": "none"})  # or what was redacted would lie in OUT/before


def _shard(given: dict[str, Any]) -> None:
    from corpusmill.common.hugging_face import read_given

    path = given.pop("tokenizer")
    read_given("--tokenizer", path)  # a message that names the option; the stage knows a key of the recipe
    run_stage("shard", given, {"tokenizer": {"path": path}})


COMMANDS: dict[str, Callable[..., Any]] = {
    "ingest": stage_command(partial(run_stage, "ingest"), IngestParams),
    "filter": stage_command(partial(run_stage, "filter"), FilterParams),
    "dedup": dedup,
    "decontaminate": stage_command(partial(run_stage, "decontaminate"), DecontaminateParams),
    "redact": stage_command(_redact, RedactParams),
    "tokenizer": tokenizer,
    "shard": stage_command(_shard, ShardParams, (*IN_OUT, Given("tokenizer", ExistingTokenizer))),
}
