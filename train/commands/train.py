"""`corpusmill train | evaluate | export | dashboard`; and one process of torchrun."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.train.commands.options import Config, Json, Run, Set, print_json, print_table, setting
from corpusmill.train.commands.results import print_speed, write_page


def train(
    config: Config,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="JOURNAL",
            help="apply the decisions in this journal.jsonl of another run, not the guard's",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FIRST:LAST", help="write traces of these steps, as 20:25 (log.profile)"),
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Train a model from a shard set, or go on where it stopped."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig

    chosen = [*(set_ or []), *([f"log.profile={profile}"] if profile else [])]
    found = load(TrainConfig, config, chosen)
    from corpusmill.train.trainer import train as run  # after the config: PyTorch takes seconds

    result = run(found, replay)
    if json_ and result:
        print_json(result)


def evaluate(
    run: Run,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="tasks to score instead: names (corpusmill tasks) or files, separated by commas"),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK=FILE|FOLDER",
            help="of --tasks: rows of a task (TASK.fewshot=FILE: its examples), or the folder of task-data",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="of --tasks: items of each at most, spread evenly [all]")
    ] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="of --tasks: examples in each prompt [the task's]")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="of --tasks: rows that are computed together")] = 16,
    speed: Annotated[
        bool, typer.Option("--speed", help="measure instead how fast it generates, at batches of 1, 4 and 16")
    ] = False,
    ngram_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="tokens that an n-gram model counts at most; 0: no such models [10,000,000]"
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="tokens from one row to the next, so that rows overlap and tokens have more context [a whole row]",
        ),
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Loss and bits per byte by source, beside n-gram models; or figures of tasks (--tasks), beside chance."""
    from corpusmill.train.run_folder import open_run

    if speed:
        print_speed(*open_run(run, set_), json_)
        return
    if stride and tasks:
        raise UserError(
            "--stride: is of validation splits; a task of whole texts has its own, in its YAML file"
        )
    if tasks:
        from corpusmill.train.commands.tasks import data_of, names_of, print_results
        from corpusmill.train.evaluate.tasks.run import evaluate_tasks

        given, folders = data_of(data or [])
        config, folder = open_run(run, set_)
        results, scored = evaluate_tasks(
            config, folder, names_of(tasks), given=given, folders=folders, limit=limit, fewshot=num_fewshot,
            rows=batch,
        )  # fmt: skip
        if json_:
            print_json(results.model_dump(mode="json"))
        else:
            print_results(results, scored)
        write_page(config, folder)
        return
    if data or limit or num_fewshot is not None:
        raise UserError("--data, --limit, --num-fewshot: are of tasks; name them with --tasks")
    from corpusmill.train.commands.evaluation import bits_table, ngram_notes, reading, table
    from corpusmill.train.evaluate.baselines import NGRAM_TOKENS
    from corpusmill.train.evaluate.splits import evaluate as work

    config, folder = open_run(run, set_)
    result = work(config, folder, NGRAM_TOKENS if ngram_tokens is None else ngram_tokens, stride)
    write_page(config, folder)
    if json_:
        print_json(result)
        return
    print_table(table(result), f"{result['name']}, step {result['step']}: validation split, nats a token")
    print_table(bits_table(result), f"Bits per byte: {reading(result)}")
    for line in ngram_notes(result):
        typer.echo(line)


def export(
    run: Run,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="folder or URL to write the model to; a GGUF file may be named"),
    ],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="hf: the Hugging Face layout; gguf: one file for llama.cpp; peft: a run's adapter alone",
        ),
    ] = "hf",
    dtype: Annotated[
        str | None, typer.Option(help="of --format hf and peft: float32, bfloat16 or float16 [float32]")
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="of --format gguf: f32, f16, q8_0 or q4_0 [f16]")
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Write the newest checkpoint in the Hugging Face layout, as a GGUF file, or its adapter in PEFT's format."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run

    if format_ not in ("hf", "gguf", "peft"):
        raise UserError(f"--format: must be hf, gguf or peft, is '{format_}'")
    if format_ == "gguf":
        from corpusmill.train.tools.gguf.write import export as write

        if dtype:
            raise UserError("--dtype: is of --format hf and peft; give --type")
        result = write(*open_run(run, set_), Folder(out), type_ or "f16")
        line = f"{result['output']}: {result['architecture']} of step {result['step']}, {result['type']}"
        lines = [line, *(f"note: {note}" for note in result["notes"])]
    elif type_:
        raise UserError("--type: is of --format gguf; give --dtype")
    elif format_ == "peft":
        from corpusmill.train.finetune.peft import export_adapter

        result = export_adapter(*open_run(run, set_), Folder(out), dtype or "float32")
        lines = [f"{result['output']}: the adapter of step {result['step']}, {result['tensors']} tensors"]
    else:
        from corpusmill.train.tools.hugging_face import export as work

        result = work(*open_run(run, set_), Folder(out), dtype or "float32")
        lines = [
            f"{result['output']}: {result['architecture']} of step {result['step']}, {result['files']} file(s) of weights"
        ]
        lines += [f"note: left out: {result['left_out']}"] if "left_out" in result else []
    if json_:
        print_json(result)
    else:
        typer.echo("\n".join(lines))


def dashboard(
    run: Run,
    out: Annotated[
        str | None, typer.Option(help="file or URL of the page; default: dashboard.html in the run's folder")
    ] = None,
    watch: Annotated[
        float | None, typer.Option(min=1, help="rewrite it every N seconds until the run ends")
    ] = None,
    set_: Annotated[list[str] | None, setting("output=s3://b/run")] = None,
    json_: Json = False,
) -> None:
    """One HTML page of a run, live while it trains: losses, schedule, norms, speed, the guard's events."""
    from corpusmill.train.log.dashboard import write, write_until_done
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    result = write_until_done(config, folder, out, watch) if watch else write(config, folder, out)
    if json_:
        print_json(result)
    else:
        typer.echo(f"{result['page']}: {result['rows']:,} rows up to step {result['step']:,}")


def main() -> None:
    """One process of torchrun. Exit codes: 0 done, 1 the work failed, 2 the command or config is wrong."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(train)
    code = 0
    try:
        app()
    except (UserError, WorkError) as error:
        rank = os.environ.get("RANK", "0")
        print(f"error: {error}" if rank == "0" else f"error (process {rank}): {error}", file=sys.stderr)
        code = error.exit_code
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # All is written; gloo's threads may abort the process if it unwinds while a peer is leaving.
        os._exit(code)
    raise SystemExit(code)
