"""`corpusmill teacher-logits`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.options import Config, Json, Set, print_json


def teacher_logits(
    config: Config,
    out: Annotated[str, typer.Option(help="folder or URL to write to: `distillation.stored` of the run")],
    top: Annotated[
        int | None, typer.Option(min=1, help="likeliest tokens to keep of each label [32]")
    ] = None,
    sampled: Annotated[
        int | None, typer.Option(min=1, help="tokens to draw for each label instead, without bias")
    ] = None,
    sequences: Annotated[
        int | None, typer.Option(min=1, help="how many of the run's to store [all of its steps]")
    ] = None,
    part: Annotated[
        str, typer.Option(metavar="I/N", help="write every N-th file from the I-th on, for N machines")
    ] = "1/1",
    set_: Set = None,
    json_: Json = False,
) -> None:
    """What the teacher of a config thinks of each label of its data, in files that runs learn from without the teacher."""
    from corpusmill.common.config import load
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.distillation import StoreSettings
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.finetune.teacher_logits import store

    if top is not None and sampled is not None:
        raise UserError("--top, --sampled: give one of them")
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UserError(f"--part {part}: must be I/N with I from 1 to N, such as 2/4")
    settings = (
        StoreSettings(kept="sampled", count=sampled)
        if sampled
        else StoreSettings(kept="top", count=top or 32)
    )
    chosen = load(TrainConfig, config, set_)
    result = store(chosen, Folder(out), settings, sequences, (int(found[1]), int(found[2])))
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    about = result.about
    typer.echo(f"{out}: {about.sequences:,} sequences, {settings.kept} {settings.count} of {about.teacher}")
    if not result.files:
        typer.echo("all files were there")
        return
    typer.echo(
        f"{result.files:,} files with {result.labels:,} labels, {result.bytes / 1e6:,.1f} MB:"
        f" {result.bytes / max(result.labels, 1):,.0f} bytes a label; {result.labels / result.seconds:,.0f} labels/s"
    )
    if result.mass is not None:
        typer.echo(f"mean probability of the tokens that are kept: {result.mass:.4f}")
    typer.echo(f"to learn from it: --set distillation.stored={out}")
