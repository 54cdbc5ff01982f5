"""`corpusmill cross-validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.train.commands.options import Config, Json, Set, print_json, print_table


def cross_validate(
    config: Config,
    folds: Annotated[
        int, typer.Option(min=2, max=255, help="runs, each without a part of the documents")
    ] = 5,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="ledger of the pipeline's run, for clusters [`ledger` beside the shards]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the folds")] = 0,
    tokens: Annotated[
        int, typer.Option(min=1, help="of a source whose held-out documents are scored, at most")
    ] = 1_000_000,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Train without each fold of the documents in turn, by duplicate cluster, and score it."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.evaluate.resampling import shown
    from corpusmill.train.log.sinks import log_line
    from corpusmill.train.tools.tune.cross_validation import cross_validate as work

    result = work(load(TrainConfig, config, set_), folds, ledger, seed, tokens, log_line)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    lines = [["fold", "documents", *result.sources, "all"]]
    for one in result.folds:
        own = [f"{one.sources[name].value:.3f}" for name in result.sources]
        lines.append([str(one.index), f"{one.documents:,}", *own, f"{one.bits_per_byte.value:.3f}"])
    means = [shown(found) for found in (*result.sources.values(), result.bits_per_byte)]
    lines.append(["mean", "", *means])
    print_table(
        lines, f"{result.name}: bits per byte of what each of {result.of} runs held out, 95 % intervals"
    )
    for name, missing in result.without.items():
        typer.echo(
            f"{name}: no mean: fold {', '.join(map(str, missing))} held out no document of it that was scored; use fewer folds, or more"
            " --tokens"
        )
