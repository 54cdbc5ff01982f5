"""`corpusmill plan | batch`: what a run reads, before it and step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.train.commands.options import Config, Json, Set, print_json, print_table


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
        print_json(result)
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
    from corpusmill.train.guard.journal import of_run

    result = describe_batch(of_run(load(TrainConfig, config, set_)), step, rank, world, text)
    if json_:
        print_json(result)
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
