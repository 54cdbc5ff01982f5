"""`corpusmill branch`: a decay, with the same or another mixture, from a checkpoint of a run at a constant rate."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.train.commands.options import Json, Run, print_json, setting


def branch(
    run: Run,
    from_: Annotated[int, typer.Option("--from", metavar="STEP", min=1, help="the checkpoint of the trunk")],
    decay: Annotated[
        str,
        typer.Option(
            metavar="SHARE|STEPS", help="length of the decay: a share of the tokens so far, or steps"
        ),
    ] = "10%",
    shape: Annotated[str, typer.Option(help="of the decay: linear, or sqrt (1 - sqrt)")] = "linear",
    mixture: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=W,...|FILE", help="weights of the sources from the next step on [the trunk's]"
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="folder or URL of the branch [beside the trunk, named by step and decay]"),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="of the branch, of which the last ones decay [those of the decay]"),
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="write train.yaml alone, for `corpusmill train` or torchrun")
    ] = False,
    set_: Annotated[list[str] | None, setting("schedule.floor=0.1")] = None,
    json_: Json = False,
) -> None:
    """Continue a checkpoint of a run at a constant rate as a run of its own, whose rate decays to 0; several branches of one trunk compare
    mixtures or lengths at a tenth of the cost.

    All of the trunk's state is taken over, its place in the data too. The branch is an ordinary run: the same command, or `corpusmill
    train` on its train.yaml, continues where it stopped.
    """
    from corpusmill.common.errors import UserError
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.continual import branch as work

    if shape not in ("linear", "sqrt"):
        raise UserError(f"--shape: must be linear or sqrt, is '{shape}'")
    weights = None if mixture is None else work.parse_mixture(mixture)
    kind: work.Shape = "sqrt" if shape == "sqrt" else "linear"
    config = work.prepare(open_run(run), from_, decay, kind, weights, output, steps, set_ or ())
    file = f"{config.output_url}/{work.CONFIG_YAML}"
    if prepare:
        if json_:
            print_json({"config": file, "output": config.output_url, "steps": config.schedule.steps})
        else:
            typer.echo(
                f"{file}: steps {from_ + 1:,} to {config.schedule.steps:,}; to train it: corpusmill train {file}"
            )
        return
    from corpusmill.train.trainer import train

    result = train(config)
    if json_ and result:
        print_json(result)
