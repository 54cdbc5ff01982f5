"""`corpusmill estimate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from corpusmill.train.commands.options import Config, Json, print_json, print_table


def estimate(
    config: Config,
    gpu: Annotated[str, typer.Option(help="the GPU's name; a wrong one lists those known")] = "H200",
    count: Annotated[int, typer.Option(min=1, help="GPUs; dp = count / (tp x pp)")] = 1,
    mfu: Annotated[float, typer.Option(help="share of the peak FLOP/s that the model gets")] = 0.4,
    price: Annotated[float | None, typer.Option(help="USD a GPU hour")] = None,
    carbon: Annotated[float | None, typer.Option(help="kg CO2e a kWh")] = None,
    pue: Annotated[float, typer.Option(min=1.0, help="power usage effectiveness of the data centre")] = 1.1,
    headroom: Annotated[
        float, typer.Option(min=0, max=0.9, help="share of the GPU's memory that is left free")
    ] = 0.08,
    tp: Annotated[
        int | None,
        typer.Option(min=1, help="tensor parallel processes; this and the next: default the config's"),
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="pipeline stages")] = None,
    ep: Annotated[
        int | None, typer.Option(min=1, help="processes that share the experts, of those of dp")
    ] = None,
    zero: Annotated[int | None, typer.Option(min=0, max=3, help="ZeRO stage")] = None,
    replicate: Annotated[
        int | None, typer.Option(min=1, help="groups that each shard within themselves")
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved", "zero_bubble"] | None, typer.Option(help="of the pipeline")
    ] = None,
    chunks: Annotated[int | None, typer.Option(min=1, help="pieces of the model in a process")] = None,
    checkpointing: Annotated[
        Literal["none", "selective", "full", "budget"] | None,
        typer.Option(help="activations computed again in backward; default: the config's"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="share of activations kept, with --checkpointing budget"),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, fp16, fp8; default: the config's")
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(min=1, help="vocabulary, where the shards are not there yet")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override, such as model.dim=4096")
    ] = None,
    json_: Json = False,
) -> None:
    """Memory of each GPU, FLOPs, time, cost and energy of a run; the smallest layout that fits."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.tools.estimate.layout import Layout
    from corpusmill.train.tools.estimate.report import Terms, tables
    from corpusmill.train.tools.estimate.report import estimate as work

    loaded = load(TrainConfig, config, set_)
    given: dict[str, Any] = {
        "tp": tp, "pp": pp, "ep": ep, "zero": zero, "replicate": replicate, "schedule": schedule, "chunks": chunks
    }  # fmt: skip
    layout = replace(Layout.of(loaded.parallel), **{k: v for k, v in given.items() if v is not None})
    terms = Terms(gpu, count, mfu, price, carbon, pue, headroom, vocab, precision, checkpointing, budget)
    result = work(loaded, layout, terms)
    if json_:
        print_json(result)
        return
    for title, lines in tables(result):
        print_table(lines, title)
