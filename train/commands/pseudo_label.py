"""`corpusmill pseudo-label`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.generation import (
    Adapter,
    Context,
    Seed,
    Temperature,
    Tokens,
    TopK,
    TopP,
    messages_of,
    with_adapter,
)
from corpusmill.train.commands.options import Json, Run, Set, print_json


def pseudo_label(
    run: Run,
    prompts: Annotated[
        str,
        typer.Argument(
            metavar="PROMPTS", help="JSONL with a `prompt` or `messages` a line, without the answer"
        ),
    ],
    out: Annotated[str, typer.Option(help="JSONL to write: conversations for `corpusmill finetune`")],
    removed: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSONL to write what is not kept to, with the reason")
    ] = None,
    answers: Annotated[
        int, typer.Option(help="answers that are sampled for each prompt; one is kept at most")
    ] = 1,
    least: Annotated[
        float | None, typer.Option(help="mean log-probability of an answer's tokens, such as -0.5")
    ] = None,
    agree: Annotated[
        float | None, typer.Option(help="share of the answers that have to be the same, such as 0.5")
    ] = None,
    style: Annotated[
        str | None, typer.Option(metavar="GUIDE", help="style guide whose rules an answer keeps")
    ] = None,
    system: Annotated[str | None, typer.Option(help="system message")] = None,
    batch: Annotated[int, typer.Option(min=1, help="texts at a time")] = 16,
    max_tokens: Tokens = 100,
    temperature: Temperature = 0.7,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    adapter: Adapter = None,
    context: Context = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Answers of a model to prompts as conversations to tune on: those that are likely, agreed on, or keep a style guide."""
    from corpusmill.common.config import validate
    from corpusmill.common.jsonl import read_jsonl
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.pseudo_labels import PseudoLabelSettings
    from corpusmill.train.evaluate.progress import reported
    from corpusmill.train.finetune.pseudo_label import pseudo_labels, summary
    from corpusmill.train.generate.chat import open_chat
    from corpusmill.train.generate.generate import checked, open_model
    from corpusmill.train.run_folder import open_run

    given = {"answers": answers, "least": least, "agree": agree, "style": style}
    settings = validate(PseudoLabelSettings, given, "pseudo-label")
    sampling = checked(max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    asked = messages_of(list(read_jsonl(prompts)), system)
    if not asked:
        raise UserError(f"{prompts}: has no line")
    config, folder = open_run(run, set_)
    opened = with_adapter(open_model(config, folder, context), adapter)
    chat = open_chat(opened, folder)
    with reported("prompts", len(asked)):
        found = list(pseudo_labels(opened, chat, asked, sampling, settings, batch))
    lines = [
        (json.dumps(one.line(config.name, opened.step), ensure_ascii=False) + "\n").encode() for one in found
    ]
    Folder(out).write(
        b"".join(line for line, one in zip(lines, found, strict=True) if not one.answer.problem)
    )
    if removed is not None:
        Folder(removed).write(
            b"".join(line for line, one in zip(lines, found, strict=True) if one.answer.problem)
        )
    result = summary(found, opened, config.name, settings)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    typer.echo(
        f"{out}: {result.kept:,} of {result.prompts:,} prompts, answered by {result.model} at step {result.step:,}"
    )
    for reason, count in result.removed.items():
        typer.echo(f"not kept: {count:,} {reason}")
    if result.log_probability is not None:
        typer.echo(f"mean log-probability of a token of kept answers: {result.log_probability:.3f}")
