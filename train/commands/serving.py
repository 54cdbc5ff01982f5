"""`corpusmill serve` and `corpusmill chat`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.generation import (
    Adapter,
    Context,
    Draft,
    Frequency,
    MinP,
    Presence,
    Repetition,
    Seed,
    Stop,
    Temperature,
    Tokens,
    TopK,
    TopP,
    TypicalP,
    Weights,
    with_adapter,
)
from corpusmill.train.commands.options import Run, Set


def serve(
    run: Run,
    host: Annotated[
        str, typer.Option(help="address to listen on; others than loopback open the server to other machines")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="another name in the Host header that is answered (repeatable)"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8000,
    batch: Annotated[int, typer.Option(min=1, help="texts at a time")] = 16,
    queue: Annotated[int, typer.Option(min=0, help="texts that may wait; more are refused (429)")] = 64,
    name: Annotated[str | None, typer.Option(help="of the model, for clients [the run's]")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="an adapter that clients name as their model: a run that trained it on this model, or PEFT's files (repeatable)",
        ),
    ] = None,
    weights: Weights = None,
    draft: Draft = None,
    context: Context = None,
    set_: Set = None,
) -> None:
    """Serve the newest checkpoint by OpenAI's completions and chat endpoints, and a page to try it.

    Prints the address on standard output when it is ready. Ctrl-C or SIGTERM ends it.
    """
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError:
        raise UserError("serve: needs Starlette and Uvicorn: pip install 'corpusmill[serve]'") from None
    del starlette, uvicorn
    from corpusmill.schemas.conversations import TEMPLATE
    from corpusmill.train.generate.chat import open_chat
    from corpusmill.train.generate.constrain import Constraints
    from corpusmill.train.generate.generate import open_draft, open_model
    from corpusmill.train.generate.serve.app import Served
    from corpusmill.train.generate.serve.server import allowed_hosts, is_loopback, listen, place
    from corpusmill.train.generate.serve.server import serve as work
    from corpusmill.train.generate.serve.worker import Worker
    from corpusmill.train.log.sinks import log_line
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    with listen(host, port) as listener:  # before a model is loaded in vain
        if not is_loopback(listener):
            log_line(
                f"warning: --host {host}: every machine that can reach this port can use the model; there is no password"
            )
        opened, served_name = open_model(config, folder, context, weights), name or config.name
        adapters = named(adapter or [], served_name)
        if adapters:
            from corpusmill.train.finetune.beside import add_adapters

            add_adapters(opened, list(adapters.values()))
        if draft:
            opened = opened._replace(draft=open_draft(draft, opened))
        chat = open_chat(opened, folder)
        if chat.plain:
            log_line(
                f"no {TEMPLATE} beside the tokenizer: chats are a dialogue of User: and Assistant: lines"
            )
        constraints: Constraints | str
        try:
            ends = [opened.runner.eos_id, *chat.ends]
            constraints = Constraints(opened.tokenizer, opened.runner.vocab_size, ends)
        except UserError as error:
            constraints = str(error)
            log_line(f"no response_format: {error}")
        served = Served(
            opened, chat, Worker(opened, batch, queue), served_name, adapters=list(adapters),
            hosts=allowed_hosts(host, listener, allow_host or ()), constraints=constraints,
        )  # fmt: skip
        beside = f" and {', '.join(adapters)}" if adapters else ""
        log_line(
            f"serving {served.name}{beside} at step {opened.step:,}, {batch} texts at a time; Ctrl-C ends it"
        )
        work(served, listener, lambda: print(place(listener), flush=True))


def named(given: list[str], model: str) -> dict[str, str]:
    """Folders of adapters by name. Raises `UserError` for a text without both, and for a name that is taken."""
    found: dict[str, str] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise UserError(f"--adapter {text}: must be NAME=FOLDER")
        if name in found or name == model:
            raise UserError(f"--adapter {text}: the name {name} is taken: choose another one")
        found[name] = folder
    return found


def chat(
    run: Run,
    system: Annotated[str, typer.Option(help="system message")] = "",
    max_tokens: Tokens = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = 50,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    repetition_penalty: Repetition = 1.0,
    presence_penalty: Presence = 0.0,
    frequency_penalty: Frequency = 0.0,
    stop: Stop = None,
    seed: Seed = 0,
    draft: Draft = None,
    adapter: Adapter = None,
    weights: Weights = None,
    context: Context = None,
    set_: Set = None,
) -> None:
    """Talk to the newest checkpoint in the terminal.

    When the context is full, the oldest turns are left out. Ctrl-C ends an answer, Ctrl-D the conversation.
    """
    from corpusmill.schemas.conversations import TEMPLATE
    from corpusmill.train.generate.chat import open_chat
    from corpusmill.train.generate.generate import checked, open_draft, open_model
    from corpusmill.train.generate.terminal import HELP, Conversation, talk
    from corpusmill.train.log.sinks import log_line
    from corpusmill.train.run_folder import open_run

    sampling = checked(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty, stop=stop or [], seed=seed,
    )  # fmt: skip
    config, folder = open_run(run, set_)
    opened = with_adapter(open_model(config, folder, context, weights), adapter)
    if draft:
        opened = opened._replace(draft=open_draft(draft, opened))
    made = open_chat(opened, folder)
    if made.plain:
        log_line(
            f"no {TEMPLATE} beside the tokenizer: the model continues a dialogue of User: and Assistant: lines"
        )
    log_line(f"{config.name} at step {opened.step:,}. {HELP}")
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]
    if sys.stdin.isatty():
        import readline  # noqa: F401 (lines can be edited)
    talk(Conversation(opened, made, sampling, system), sys.stdin, sys.stdout)
