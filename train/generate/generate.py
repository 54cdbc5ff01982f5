"""Texts that continue prompts, by the newest checkpoint of a run: one, piece by piece, or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.common.task_progress import advance
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.low_bits import Bits
from corpusmill.train.generate.request import End, Event, Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.speculate import Draft, PromptLookup, SmallModel
from corpusmill.train.generate.text import Text
from corpusmill.train.parallel.mesh import join
from corpusmill.train.run_folder import TOKENIZER, open_run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corpusmill.train.generate.constrain import Constraint


class Opened(NamedTuple):
    """A checkpoint ready to generate, and its tokenizer. `adapter`: number of that which texts are generated with; 0: none."""

    runner: Runner
    tokenizer: Tokenizer
    step: int
    draft: Draft | None = None
    adapter: int = 0

    def ends(self, stop: Sequence[str]) -> frozenset[int]:
        """The control tokens among texts before which a text is to end: they are never a part of it."""
        found = {self.tokenizer.token_to_id(text) for text in stop} - {None}
        control = self.tokenizer.get_added_tokens_decoder() if found else {}
        return frozenset(token for token in found if token in control and control[token].special)

    def cut(self, prompt: Sequence[int]) -> int:
        """How many of the first tokens of a prompt the context does not hold."""
        return max(len(prompt) - self.runner.context, 0)

    def prompt(self, text: str) -> list[int]:
        """Token ids. A document starts with the end-of-text token, as in training. Names of control tokens become those tokens,
        which a training text cannot write: so the format of a tuned model is written by hand."""
        return [self.runner.eos_id, *self.tokenizer.encode(text, add_special_tokens=False).ids]


class Piece(NamedTuple):
    """Text of a request that can be shown, and why it ended, if it has; `event`: what it is of."""

    request: Request
    text: str
    end: End | None
    event: Event


class Texts:
    """Pieces of text of an engine's events."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[Request, Text] = {}

    def begin(self, request: Request) -> None:
        self._texts[request] = Text(self._tokenizer, request.sampling.stop, request.prompt)

    def forget(self, request: Request) -> None:
        self._texts.pop(request, None)

    def piece(self, event: Event) -> Piece | None:
        """None after a stop string, with which a request is cancelled."""
        request, text = event.request, self._texts.get(event.request)
        if text is None:
            return None
        if event.token is None:
            self.forget(request)
            return Piece(request, text.end(), event.end, event)
        shown = text.add(event.token)
        if text.stopped:
            request.cancelled = True
            del request.tokens[text.tokens :]  # others that came in the same step
            self.forget(request)
        return Piece(request, shown, "stop" if text.stopped else None, event)


def open_model(
    config: TrainConfig, run: Folder, context: int | None = None, weights: Bits | None = None
) -> Opened:
    """The newest checkpoint; `context` defaults to the length of the training's sequences, `weights` to those of its precision. Raises
    `UserError` without a valid checkpoint."""
    from tokenizers import Tokenizer

    kept = run_vocabulary(config, run)
    found = newest_checkpoint(run)
    model = load_model(config, found, kept.vocab_size, join(config).device)
    longest = context or config.data.sequence_length
    runner = Runner(
        model, kept.vocab_size, kept.eos_id, longest, config.precision, sole=True, weights=weights
    )
    tokenizer = Tokenizer.from_str((run / TOKENIZER).read().decode("utf-8"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Opened(runner, tokenizer, found.step)


def open_draft(name: str, target: Opened) -> Draft:
    """`prompt`, or the run of a smaller model. Raises `UserError` if that has another tokenizer."""
    if name == "prompt":
        return PromptLookup()
    found = open_model(*open_run(name), target.runner.virtual + target.runner.context)
    if found.tokenizer.to_str() != target.tokenizer.to_str():
        raise UserError(f"--draft {name}: has another tokenizer than the model; train it on the same shards")
    return SmallModel(found.runner)


def generate(
    config: TrainConfig, run: Folder, prompt: str = "", sampling: Sampling = Sampling()
) -> Iterator[str]:
    """Pieces of text that continue `prompt`, until end-of-text, a stop string or `max_tokens`; equal arguments, equal text.

    Raises `UserError` for a run without a valid checkpoint, and `WorkError` if the model gives no text.
    """
    opened = open_model(config, run)
    for piece in pieces(opened, [prompt], sampling, rows=1):
        check(piece)
        if piece.text:
            yield piece.text


def pieces(
    opened: Opened,
    prompts: Iterable[str | list[int]],
    sampling: Sampling,
    rows: int = 16,
    constraint: Constraint | None = None,
    *,
    slide: bool = True,
    ends: frozenset[int] = frozenset(),
    likeliest: int | None = None,
) -> Iterator[Piece]:
    """Pieces of the texts that continue many prompts, as they come, `rows` at a time. A prompt of token ids is read as it is. `ends`:
    tokens that end a text as the end of a document does. `likeliest`: as of `Request`; 0: events have log-probabilities.

    What outgrows the context goes on with the end of it (`slide`: of a text its second half, of a prompt as many tokens as there are
    positions); without, a text ends with the context, and one of a longer prompt fails.
    """
    engine = Engine(opened.runner, rows, slide=slide, draft=opened.draft)
    texts = Texts(opened.tokenizer)
    left, ends = enumerate(prompts), ends | opened.ends(sampling.stop)
    while True:
        while len(engine.waiting) + len(engine.active) < 2 * rows:
            number, prompt = next(left, (0, None))
            if prompt is None:
                break
            tokens = opened.prompt(prompt) if isinstance(prompt, str) else prompt
            allowed = constraint.start() if constraint else None
            request = Request(tokens, sampling, number, allowed, ends, likeliest, adapter=opened.adapter)
            try:
                engine.submit(request)
            except ValueError as error:
                request.fail(UserError(str(error)))
                yield Piece(request, "", "failed", Event(request, None, "failed"))
                continue
            texts.begin(request)
        if not engine.busy:
            return
        for event in engine.step():
            piece = texts.piece(event)
            if piece is not None:
                yield piece


def check(piece: Piece) -> None:
    """Raise what a text has failed with, if it has: `WorkError`, or `UserError` where what was asked for is the reason."""
    failure = piece.request.failure
    if piece.end == "failed" and failure is not None:
        raise type(failure)(f"the text could not be generated: {failure}")


def texts(
    opened: Opened, prompts: Sequence[str | list[int]], sampling: Sampling, rows: int = 16
) -> list[str]:
    """The texts that continue the prompts, in their order; each advances the task of this thread by 1. Equal prompts have texts of
    their own: the place of a prompt is part of its seed. Raises `WorkError` if the model gives no text."""
    found: list[list[str]] = [[] for _ in prompts]
    for piece in pieces(opened, prompts, sampling, rows):
        check(piece)
        found[piece.request.number].append(piece.text)
        if piece.end is not None:
            advance(1)
    return ["".join(parts) for parts in found]


def checked(**values: object) -> Sampling:
    """The sampling of a command's options. Raises `UserError` naming the option that is out of range."""
    from pydantic import ValidationError

    try:
        return Sampling.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise UserError(f"--{name.replace('_', '-')}: {first['msg']}, is {values[name]}") from None
