"""`corpusmill plan | batch | estimate`: what a run reads, in all and in one step; what it needs and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from corpusmill.train.commands.options import Config, Json, Run, Set, print_json, print_table, setting


def plan(
    config: Config,
    world: Annotated[int, typer.Option(min=1, help="number of data-parallel processes")] = 1,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The mixture before the run: tokens, epochs, steps, bytes, requests and their cost."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.inspect import describe_plan

    result = describe_plan(load(TrainConfig, config, set_), world)
    if json_:
        print_json(result)
        return
    lines = [["source", "asked", "a batch", "given", "tokens there", "trained on", "epochs", "blocks", "MB"]]
    for name, row in result["sources"].items():
        lines.append(
            [
                name, _shares(row["asked"]), ", ".join(_range(*each) for each in row["in_a_batch"]),
                _shares(row["given"]), f"{row['tokens_available']:,}",
                f"{row['tokens_trained']:,}", f"{row['epochs']:.2f}", f"{row['blocks']:,}", f"{row['bytes'] / 1e6:,.1f}",
            ]
        )  # fmt: skip
    print_table(lines, f"{result['name']}: {result['steps']:,} steps, plan {result['plan'][:16]}")
    for stage in result["stages"]:
        typer.echo(
            f"from step {stage['from_step']:,}: {stage['global_batch']:,} sequences of {stage['sequence_length']:,} tokens,"
            f" the mixture exact in every {stage['lanes']:,}"
        )
    for name, row in result["sources"].items():
        if "curriculum" in row:
            draws, part = row["curriculum"]["draws"], row["curriculum"]["part_at_end"]
            typer.echo(f"{name}: easy sequences first in {draws:,} draws; at the end {part:.0%} may be drawn")
    typer.echo(f"{result['tokens']:,} tokens in {result['steps']:,} steps")
    if result["tokens_skipped"]:
        typer.echo(f"skipped: {result['tokens_skipped']:,} tokens")
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


def _shares(values: list[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def batch(
    run: Run,
    step: Annotated[int, typer.Option(min=1, help="the optimizer step, counted from 1")],
    rank: Annotated[int | None, typer.Option(help="only the part of this data-parallel process")] = None,
    world: Annotated[int, typer.Option(min=1, help="number of data-parallel processes, for --rank")] = 1,
    text: Annotated[bool, typer.Option("--text", help="print the text of each sequence, decoded")] = False,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The documents in the batch of any step, past or future."""
    from corpusmill.train.data.inspect import describe_batch
    from corpusmill.train.guard.journal import of_run
    from corpusmill.train.run_folder import open_run

    result = describe_batch(of_run(open_run(run, set_)[0]), step, rank, world, text)
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


def estimate(
    config: Config,
    gpu: Annotated[str, typer.Option(help="the GPU's name; a wrong one lists those known")] = "H200",
    count: Annotated[int, typer.Option(min=1, help="GPUs; dp = count / (cp x tp x pp)")] = 1,
    mfu: Annotated[float, typer.Option(help="share of the peak FLOP/s that the model gets")] = 0.4,
    price: Annotated[float | None, typer.Option(help="USD per GPU hour")] = None,
    carbon: Annotated[float | None, typer.Option(help="kg CO2e per kWh")] = None,
    pue: Annotated[float, typer.Option(min=1.0, help="power usage effectiveness of the data centre")] = 1.1,
    headroom: Annotated[
        float, typer.Option(min=0, max=0.9, help="share of the GPU's memory that is left free")
    ] = 0.08,
    tp: Annotated[
        int | None,
        typer.Option(
            min=1, help="tensor parallel processes; default, also of the next options: the config's"
        ),
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="pipeline stages")] = None,
    ep: Annotated[
        int | None, typer.Option(min=1, help="data-parallel processes that share the experts")
    ] = None,
    cp: Annotated[int | None, typer.Option(min=1, help="processes that share each sequence")] = None,
    ring: Annotated[
        bool | None, typer.Option("--ring/--gather", help="how these exchange keys and values")
    ] = None,
    zero: Annotated[int | None, typer.Option(min=0, max=3, help="ZeRO stage")] = None,
    replicate: Annotated[
        int | None, typer.Option(min=1, help="groups that each shard within themselves")
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved", "zero_bubble"] | None,
        typer.Option(help="schedule of the pipeline"),
    ] = None,
    chunks: Annotated[int | None, typer.Option(min=1, help="pieces of the model in a process")] = None,
    checkpointing: Annotated[
        Literal["none", "selective", "full", "budget"] | None,
        typer.Option(help="activations recomputed in the backward pass; default: the config's"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="share of activations kept, with --checkpointing budget"),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, fp16, fp8; default: the config's")
    ] = None,
    network: Annotated[
        float | None, typer.Option(min=0.1, help="GB/s that a GPU sends to other nodes; default: by GPU")
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(min=1, help="size of the vocabulary, if there are no shards yet")
    ] = None,
    set_: Annotated[list[str] | None, setting("model.dim=4096")] = None,
    json_: Json = False,
) -> None:
    """Memory of each GPU, FLOPs, time, cost and energy of a run; the smallest layout that fits, and the fastest ones."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.tools.estimate.layout import Layout
    from corpusmill.train.tools.estimate.report import Terms, tables
    from corpusmill.train.tools.estimate.report import estimate as work

    loaded = load(TrainConfig, config, set_)
    given: dict[str, Any] = {
        "tp": tp, "pp": pp, "ep": ep, "cp": cp, "ring": ring, "zero": zero, "replicate": replicate, "schedule": schedule, "chunks": chunks
    }  # fmt: skip
    layout = replace(Layout.of(loaded.parallel), **{k: v for k, v in given.items() if v is not None})
    terms = Terms(
        gpu, count, mfu, price, carbon, pue, headroom, vocab, precision, checkpointing, budget, network
    )
    asked = any(value is not None for value in given.values())
    result = work(loaded, layout, terms, asked)
    if json_:
        print_json(result)
        return
    for title, lines in tables(result):
        print_table(lines, title)
