"""`corpusmill generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.common.jsonl import read_jsonl
from corpusmill.train.commands.options import Json, Run, Set, print_json

if TYPE_CHECKING:
    from corpusmill.schemas.generation import Sampling
    from corpusmill.train.generate.chat import Chat
    from corpusmill.train.generate.constrain import Constraint
    from corpusmill.train.generate.generate import Opened


Tokens = Annotated[int, typer.Option("--max-tokens", help="maximum number of tokens")]
Temperature = Annotated[float, typer.Option("--temperature", help="0: always the most probable token")]
TopK = Annotated[int, typer.Option("--top-k", help="sample from the k most probable tokens; 0: from all")]
TopP = Annotated[
    float,
    typer.Option("--top-p", help="sample from the most probable tokens with this total probability"),
]
MinP = Annotated[float, typer.Option("--min-p", help="least share of the highest probability")]
TypicalP = Annotated[
    float,
    typer.Option("--typical-p", help="sample from the most typical tokens with this total probability"),
]
Repetition = Annotated[float, typer.Option("--repetition-penalty", help="1: none")]
Presence = Annotated[float, typer.Option("--presence-penalty", help="-2 to 2")]
Frequency = Annotated[float, typer.Option("--frequency-penalty", help="-2 to 2")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="end before this text (repeatable)")]
Seed = Annotated[int, typer.Option("--seed", help="equal seeds give equal texts")]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft", metavar="RUN|prompt",
        help="propose tokens by a smaller run, or by what followed the same words before (prompt); faster, of the same distribution",
    ),
]  # fmt: skip
Context = Annotated[
    int | None,
    typer.Option("--context", min=2, help="positions that the model looks back on [training's]"),
]


Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter", metavar="FOLDER", help="a run that trained an adapter on this model, or an adapter in PEFT's format"
    ),
]  # fmt: skip


Weights = Annotated[
    Literal["int8", "int4"] | None,
    typer.Option(
        help="on a CPU: products with weights in so few bits, rounded as `compress` does; less memory, faster with few texts at a time"
    ),
]  # fmt: skip


ContextEnd = Annotated[
    Literal["slide", "stop"],
    typer.Option(
        help="at the end of the context: go on with the second half of it, and read the end of a longer prompt; or end the text, and"
        " refuse a longer prompt"
    ),
]  # fmt: skip


def generate(
    run: Run,
    prompt: Annotated[str, typer.Option(help="text to continue")] = "",
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="continue the `prompt` of each line of this JSONL file; one JSON line for each",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="of --prompts: texts at a time")] = 16,
    max_tokens: Tokens = 100,
    temperature: Temperature = 0.8,
    top_k: TopK = 50,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    repetition_penalty: Repetition = 1.0,
    presence_penalty: Presence = 0.0,
    frequency_penalty: Frequency = 0.0,
    stop: Stop = None,
    regex: Annotated[
        str | None, typer.Option(metavar="REGEX", help="the text matches it (needs corpusmill[constrain])")
    ] = None,
    json_schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the text is JSON that follows the schema in this file"),
    ] = None,
    seed: Seed = 0,
    draft: Draft = None,
    context: Context = None,
    context_end: ContextEnd = "slide",
    adapter: Adapter = None,
    weights: Weights = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="a prompt is a user's message, read by the run's chat template; a line may have `messages` instead",
        ),
    ] = False,
    system: Annotated[str | None, typer.Option(help="of --chat: the system message")] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Sample text from the newest checkpoint, of one prompt or of many."""
    from corpusmill.train.generate.chat import open_chat
    from corpusmill.train.generate.generate import checked, open_draft, open_model
    from corpusmill.train.log.sinks import log_line
    from corpusmill.train.run_folder import open_run

    sampling = checked(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty, stop=stop or [], seed=seed,
    )  # fmt: skip
    if prompt and prompts:
        raise UserError("--prompt and --prompts: give one of them")
    if regex is not None and json_schema is not None:
        raise UserError("--regex and --json-schema: give one of them")
    schema = read_schema(json_schema) if json_schema else None
    if system is not None and not chat:
        raise UserError("--system: is of --chat, which reads prompts as a user's messages")
    wanted = () if chat else ("prompt",)
    rows = list(read_jsonl(prompts, *wanted, option="--prompts")) if prompts else [{"prompt": prompt}]
    config, folder = open_run(run, set_)
    opened = with_adapter(open_model(config, folder, context, weights), adapter)
    if draft:
        opened = opened._replace(draft=open_draft(draft, opened))
    talk = open_chat(opened, folder) if chat else None
    constraint = _constraint(opened, regex, schema, talk.ends if talk else ())
    if talk:
        sampling = sampling.model_copy(update={"stop": [*sampling.stop, *talk.stop][:16]})
    if prompts or talk:
        asked = None if talk is None else conversations(talk, rows, system)
        failed = cut = 0
        slide = context_end == "slide"
        for line in continued(opened, rows, sampling, batch, constraint, slide=slide, asked=asked, chat=talk):
            if prompts or json_:
                print_line(line)
            else:
                typer.echo(line["text"])
            failed += "error" in line
            cut += "prompt_cut" in line
        if cut:
            log_line(
                f"{quantity(cut, 'prompt')} {'was' if cut == 1 else 'were'} cut to the context of {opened.runner.context} tokens:"
                " see `prompt_cut` in the lines"
            )
        if failed:
            raise WorkError(f"{quantity(failed, 'text')} could not be generated: see `error` in the lines")
        return
    _one(opened, prompt, sampling, json_, constraint, context_end == "slide")


def with_adapter(opened: Opened, folder: str | None) -> Opened:
    """An opened model that generates with the adapter in a folder; without one, as it is."""
    if folder is None:
        return opened
    from corpusmill.train.finetune.beside import add_adapters

    add_adapters(opened, [folder])
    return opened._replace(adapter=1)


def _constraint(
    opened: Opened, regex: str | None, schema: dict[str, Any] | None, ends: Collection[int] = ()
) -> Constraint | None:
    if regex is None and schema is None:
        return None
    from corpusmill.train.generate.constrain import Constraints

    made = Constraints(opened.tokenizer, opened.runner.vocab_size, [opened.runner.eos_id, *ends])
    try:
        return made.regex(regex) if regex is not None else made.json_schema(schema or {})
    except UserError as error:
        raise UserError(f"{'--json-schema' if regex is None else '--regex'}: {error}") from None


def _one(
    opened: Opened, prompt: str, sampling: Sampling, json_: bool, constraint: Constraint | None, slide: bool
) -> None:
    from corpusmill.train.generate.generate import check, pieces
    from corpusmill.train.generate.text import shown_on
    from corpusmill.train.log.sinks import log_line

    tokens, context = opened.prompt(prompt), opened.runner.context
    found = pieces(opened, [tokens], sampling, rows=1, constraint=constraint, slide=slide)
    cut = opened.cut(tokens) if slide else 0
    if cut:
        log_line(
            f"the prompt has {len(tokens)} tokens, and the context {context}: the first {cut} are not read"
            " (--context-end stop: refuse)"
        )
    if json_:
        texts = list(found)
        check(texts[-1])
        left_out = {"prompt_cut": cut} if cut else {}
        print_json(
            {"prompt": prompt, "text": "".join(p.text for p in texts), "end": texts[-1].end, **left_out}
        )
        return
    first = next(found)
    check(first)
    sys.stdout.write(prompt)
    for piece in chain([first], found):
        sys.stdout.write(shown_on(sys.stdout, piece.text))
        sys.stdout.flush()
    sys.stdout.write("\n")
    check(piece)


def read_schema(file: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises `UserError` if it holds none."""
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(f"--json-schema {file}: {error.strerror}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"--json-schema {file}: is not a JSON object")
    return found


def conversations(chat: Chat, rows: Sequence[dict[str, Any]], system: str | None) -> list[list[int]]:
    """The prompt of each row: its `messages`, or its `prompt` as a user's message, behind the system message. Raises `UserError` naming
    the row that has neither."""
    return [chat.prompt(messages) for messages in messages_of(rows, system)]


def messages_of(rows: Sequence[dict[str, Any]], system: str | None) -> list[list[dict[str, str]]]:
    """The messages of each row, likewise."""
    first = [] if system is None else [{"role": "system", "content": system}]
    found = []
    for number, row in enumerate(rows, 1):
        messages = row.get("messages")
        if messages is None and isinstance(row.get("prompt"), str):
            messages = [{"role": "user", "content": row["prompt"]}]
        if not isinstance(messages, list) or not all(
            isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
            for one in messages
        ):
            raise UserError(
                f"--prompts: line {number} has neither a text `prompt` nor `messages`, a list of role and content"
            )
        own = [] if messages and messages[0]["role"] == "system" else first
        found.append([*own, *messages])
    return found


def continued(
    opened: Opened,
    rows: Sequence[dict[str, Any]],
    sampling: Sampling,
    batch: int,
    constraint: Constraint | None = None,
    *,
    slide: bool = True,
    asked: Sequence[list[int]] | None = None,
    chat: Chat | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows, in their order, each with its `text`, `end` and number of `tokens`; with the end "failed", also the `error`; and
    how many tokens of a prompt were not read (`prompt_cut`), if any. `asked`: the prompt of each by a `chat`, which is answered."""
    from corpusmill.train.generate.generate import pieces

    ends, strip = (chat.ends, chat.blank) if chat else (frozenset[int](), False)
    texts: dict[int, list[str]] = {}
    done: dict[int, dict[str, Any]] = {}
    shown = 0
    prompts = asked or [row["prompt"] for row in rows]
    for piece in pieces(opened, prompts, sampling, batch, constraint, slide=slide, ends=ends):
        number = piece.request.number
        texts.setdefault(number, []).append(piece.text)
        if piece.end:
            text = "".join(texts.pop(number))
            text = text.removeprefix(" ") if strip else text
            done[number] = {
                **rows[number],
                "text": text,
                "end": piece.end,
                "tokens": len(piece.request.tokens),
            }
            if piece.request.failure is not None:
                done[number]["error"] = str(piece.request.failure)
            elif cut := opened.cut(piece.request.prompt):
                done[number]["prompt_cut"] = cut
        while shown in done:
            yield done.pop(shown)
            shown += 1


def print_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
