"""The trainer's commands. Each body imports what it needs, so that `corpusmill --help` loads no torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from corpusmill.train.commands.checkpoint import app as checkpoint
from corpusmill.train.commands.dashboard import dashboard
from corpusmill.train.commands.estimate import estimate
from corpusmill.train.commands.tune import lr_find, search

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="a training config (.yaml)")]
Run = Annotated[
    str, typer.Argument(metavar="CONFIG|RUN", help="a training config (.yaml), or a run's folder or URL")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override, such as schedule.steps=50")
]
Json = Annotated[bool, typer.Option("--json", help="print one machine-readable result")]


def train(
    config: Config,
    replay: Annotated[
        str | None,
        typer.Option(metavar="JOURNAL", help="decide as this journal.jsonl of another run, not by the guard"),
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Train a model from a shard set, or go on where it stopped."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.trainer import train as run

    result = run(load(TrainConfig, config, set_), replay)
    if json_ and result:
        show(result)


def evaluate(run: Run, set_: Set = None, json_: Json = False) -> None:
    """Loss and bits per byte by source, beside a unigram model."""
    from corpusmill.train.evaluate.evaluate import evaluate as work
    from corpusmill.train.evaluate.evaluate import table
    from corpusmill.train.run_folder import open_run

    result = work(*open_run(run, set_))
    if json_:
        show(result)
    else:
        print_table(table(result), f"{result['name']}, step {result['step']}: validation split")


def generate(
    run: Run,
    prompt: Annotated[str, typer.Option(help="text to go on with")] = "",
    max_tokens: Annotated[int, typer.Option(help="tokens at most")] = 100,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token")] = 0.8,
    top_k: Annotated[int, typer.Option(help="of the k likeliest tokens; 0: of all")] = 50,
    top_p: Annotated[float, typer.Option(help="of the likeliest tokens that hold this share")] = 0.95,
    seed: Annotated[int, typer.Option(help="equal seeds give equal texts")] = 0,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Sample text from the newest checkpoint."""
    from corpusmill.train.generate.generate import generate as work
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    pieces = work(
        config,
        folder,
        prompt,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    if json_:
        show({"prompt": prompt, "text": "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def export(
    run: Run,
    out: Annotated[str, typer.Argument(metavar="OUT", help="folder or URL to write the model to")],
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Write the newest checkpoint in the Hugging Face layout."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.convert.export import export as work

    result = work(*open_run(run, set_), Folder(out), dtype)
    if json_:
        show(result)
    else:
        typer.echo(
            f"{result['output']}: {result['architecture']} of step {result['step']}, {result['files']} file(s) of weights"
        )


def plan(
    config: Config,
    world: Annotated[int, typer.Option(min=1, help="data-parallel processes that it will run on")] = 1,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The mixture before the run: tokens, epochs, steps, bytes, requests and their cost."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.preview import describe_plan

    result = describe_plan(load(TrainConfig, config, set_), world)
    if json_:
        show(result)
        return
    lines = [["source", "share", "slots", "tokens there", "trained on", "epochs", "blocks", "MB"]]
    for name, row in result["sources"].items():
        lines.append(
            [
                name, f"{row['share']:.3f}", ", ".join(map(str, row["slots"])), f"{row['tokens_available']:,}",
                f"{row['tokens_trained']:,}", f"{row['epochs']:.2f}", f"{row['blocks']:,}", f"{row['bytes'] / 1e6:,.1f}",
            ]
        )  # fmt: skip
    print_table(lines, f"{result['name']}: {result['steps']:,} steps, plan {result['plan'][:16]}")
    for stage in result["stages"]:
        typer.echo(
            f"from step {stage['from_step']:,}: {stage['global_batch']:,} sequences of {stage['sequence_length']:,} tokens,"
            f" the mixture exact in every {stage['lanes']:,}"
        )
    typer.echo(f"{result['tokens']:,} tokens in {result['steps']:,} steps")
    if result["tokens_skipped"]:
        typer.echo(f"passed over: {result['tokens_skipped']:,} tokens")
    typer.echo(
        f"{result['requests']:,} requests (about {result['requests_usd']:.2f} USD), {result['bytes_read'] / 1e6:,.1f} MB read"
        f" by {world} process(es), {result['amplification']:.2f} times what they train on\n"
        f"{result['memory_bytes'] / 2**20:,.1f} MiB of blocks open in a process; a disk cache of all blocks takes"
        f" {result['cache_bytes'] / 1e6:,.1f} MB"
    )
    if result["left_out"]:
        typer.echo(f"not read: {', '.join(result['left_out'])}")
    for warning in result["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


def batch(
    config: Config,
    step: Annotated[int, typer.Option(min=1, help="the optimizer step, counted from 1")],
    rank: Annotated[int | None, typer.Option(help="the part of this data-parallel process alone")] = None,
    world: Annotated[int, typer.Option(min=1, help="data-parallel processes there are, for --rank")] = 1,
    text: Annotated[bool, typer.Option("--text", help="print the text of each sequence, decoded")] = False,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The documents in the batch of any step, past or future."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.inspect import describe_batch

    result = describe_batch(load(TrainConfig, config, set_), step, rank, world, text)
    if json_:
        show(result)
        return
    lines = [["slot", "source", "epoch", "block", "tokens", "doc_id", "characters"]]
    for row in result["sequences"]:
        place = [
            str(row["slot"]), row["source"], str(row["epoch"]), row["block"],
            ", ".join("{}-{}".format(*piece) for piece in row["tokens"]),
        ]  # fmt: skip
        for document in row["documents"]:
            lines.append([*place, document["doc_id"], "{}-{}".format(*document["chars"])])
            place = [""] * 5
    print_table(lines, f"step {step}, plan {result['plan'][:16]}")
    for row in result["sequences"] if text else []:
        typer.echo(f"--- slot {row['slot']}, {row['source']}, {row['block']}\n{row['text']}")


def register(app: typer.Typer) -> None:
    """Add the trainer's commands to the front door."""
    for command, options in EXAMPLES.items():
        name = command.__name__.replace("_", "-")
        config = f"configs/{'search' if command is search else 'train'}/quickstart.yaml"
        app.command(name, epilog=f"Example: corpusmill {name} {config}{options}")(command)
    example = "Example: corpusmill estimate configs/train/124m.yaml --vocab 50304 --count 8 --zero 1"
    app.command("estimate", epilog=example)(estimate)
    app.add_typer(checkpoint, name="checkpoint")


def show(result: Any) -> None:
    typer.echo(json.dumps(result, ensure_ascii=False))


def print_table(lines: list[list[str]], title: str) -> None:
    """A drawn table on a terminal, Markdown when piped; numbers to the right."""
    from corpusmill.train.commands.tables import drawn, markdown

    if sys.stdout.isatty():
        drawn(lines, title)
    else:
        typer.echo(f"{title}\n\n{markdown(lines)}\n")


EXAMPLES: dict[Callable[..., None], str] = {
    train: " --set output=runs/mine",
    evaluate: " --json",
    generate: " --prompt 'The history of'",
    export: " model/",
    plan: "",
    batch: " --step 100",
    dashboard: " --watch 10",
    lr_find: " --low 1e-5 --high 1",
    search: " --set parallel=2",
}
