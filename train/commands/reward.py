"""`corpusmill reward`."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.options import Json, Run, Set, print_json


def reward(
    run: Run,
    answers: Annotated[
        str,
        typer.Argument(
            metavar="ANSWERS", help="JSONL of conversations, or of prompts with one or two answers"
        ),
    ],
    out: Annotated[str, typer.Option(help="JSONL to write: the lines with their `reward`")],
    removed: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="JSONL to write the numbers of refused lines to, with the reason"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="answers at a time")] = 16,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Score answers with a reward model, a run with `objective: {loss: reward}`."""
    import orjson

    from corpusmill.common.storage import Folder
    from corpusmill.train.evaluate.progress import reported
    from corpusmill.train.finetune.reward import rewards
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    try:
        lines = Folder(answers).read().splitlines()
    except FileNotFoundError:
        raise UserError(f"{answers}: no such file") from None
    if not any(line.strip() for line in lines):
        raise UserError(f"{answers}: has no line")
    with reported("answers", len(lines)):
        found = rewards(config, folder, lines, batch)
    Folder(out).write(b"".join(found.lines))
    if removed is not None:
        bad = [orjson.dumps({"line": number + 1, "reason": reason}) + b"\n" for number, reason in found.bad]
        Folder(removed).write(b"".join(bad))
    result = found.summary
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    typer.echo(
        f"{out}: {result.scored:,} of {result.lines:,} lines, scored by {result.name} at step {result.step:,}"
    )
    for number, reason in found.bad[:5]:
        typer.echo(f"not scored: line {number + 1}: {reason}")
    if len(found.bad) > 5:
        typer.echo(f"not scored: {len(found.bad) - 5:,} more lines")
    if result.accuracy is not None:
        typer.echo(
            f"{result.pairs:,} pairs: the chosen answer has the higher reward in {result.accuracy:.1%}, by {result.margin:.3f} on"
            " average"
        )
