"""`corpusmill finetune`: a run on conversations, from a model that is there; and the conversations as it reads them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.options import Config, Json, Set, print_json

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig


def finetune(
    config: Config,
    epochs: Annotated[
        float | None,
        typer.Option(min=0.001, help="times that the conversations are read, in place of schedule.steps"),
    ] = None,
    preview: Annotated[
        int | None,
        typer.Option(min=1, help="show the first N documents instead, with what is trained on in brackets"),
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Train a model further on conversations: its answers alone are labels."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig

    chosen = load(TrainConfig, config, set_)
    if chosen.data.conversations is None:
        raise UserError(
            f"{config}: data.conversations: is not set: set it to {{}} and data.shards to files of conversations; `corpusmill train`"
            " trains on everything"
        )
    if chosen.init_from is None:
        raise UserError(
            f"{config}: init_from: is not set: name the folder of a run or of an exported model to start from; `corpusmill train`"
            " starts from nothing"
        )
    if preview is not None:
        show(chosen, preview, json_)
        return
    if epochs is not None:
        if chosen.schedule.tokens is not None:
            raise UserError(f"--epochs: {config} has schedule.tokens: leave one of them out")
        chosen = load(TrainConfig, config, [*(set_ or []), f"schedule.steps={steps_of(chosen, epochs)}"])
    from corpusmill.train.trainer import train

    result = train(chosen)
    if json_ and result:
        print_json(result)


def steps_of(config: TrainConfig, epochs: float) -> int:
    """Steps in which the rows of all sources are read so often together."""
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.data.planning import make_plan
    from corpusmill.train.log.sinks import log_line

    plan = make_plan(config.data, open_run_data(config, log_line), config.seed)
    rows = sum(source.sequences.total for source in plan.sources)
    return max(1, math.ceil(rows * epochs / config.data.global_batch))


def show(config: TrainConfig, count: int, json_: bool) -> None:
    """Documents of the first source, token by token as training reads them."""
    from rich.console import Console
    from rich.text import Text

    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.data.preview import previewed
    from corpusmill.train.log.sinks import log_line

    documents = previewed(open_run_data(config, log_line), count)
    if json_:
        print_json([document._asdict() for document in documents])
        return
    console = Console(highlight=False)
    for document in documents:
        console.print(Text(f"{document.source} {document.doc_id}", style="dim"))
        text = Text()
        for part, target in document.parts:
            if target == "context":
                text.append(part)
            else:
                text.append(f"[{part}]", style="bold green" if target == "answer" else "bold red")
        console.print(text)
