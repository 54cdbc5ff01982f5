"""Pieces of texts as OpenAI's objects: whole, or as the chunks of a stream, of completions and of chat completions."""

from __future__ import annotations

import codecs
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from corpusmill.common.hugging_face import continuing_prefix, token_bytes
from corpusmill.train.generate.request import Scored

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corpusmill.train.generate.generate import Piece
    from corpusmill.train.generate.request import Request

REASONS = {"stop": "stop", "length": "length", "context": "length"}


class Tokens:
    """The texts and bytes of single tokens; those of `control` are not shown in a generated text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._prefix = continuing_prefix(json.loads(tokenizer.to_str()))
        added = tokenizer.get_added_tokens_decoder().items()
        self.control = frozenset(number for number, token in added if token.special)
        self.text = lru_cache(maxsize=2**16)(self._text)

    def _text(self, token: int) -> str:
        """As OpenAI writes it: `bytes:\\xe2\\x80` for a part of a character."""
        text = self._decoded(token)
        return (
            text
            if "\ufffd" not in text
            else "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.bytes(token))
        )

    def bytes(self, token: int) -> list[int]:
        text = self._decoded(token)
        if "\ufffd" in text:
            return list(token_bytes(self._tokenizer.id_to_token(token) or "", self._prefix))
        return list(text.encode())

    def _decoded(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _scored(piece: Piece) -> Iterator[Scored]:
    event = piece.event
    token = piece.request.tokens[-1] if event.end == "stop" else event.token  # that ended it, too
    if token is not None:
        yield Scored(token, event.log_probability, event.likeliest)


class Answer(ABC):
    """To one HTTP request, whose texts are numbered by `index`."""

    kind, chunk_kind, prefix = "", "", ""

    def __init__(self, model: str, requests: Sequence[Request], prompts: int, seed: int) -> None:
        self.requests, self._prompts = requests, prompts
        self.index = {request: number for number, request in enumerate(requests)}
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "seed": seed,
        }

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Of all pieces of all texts."""
        own: list[list[Piece]] = [[] for _ in self.requests]
        for piece in pieces:
            own[self.index[piece.request]].append(piece)
        choices = [self._whole(number, found) for number, found in enumerate(own)]
        return {**self._head, "object": self.kind, "choices": choices, "usage": self.usage()}

    def chunk(self, piece: Piece) -> dict[str, Any] | None:
        """None if there is nothing to show yet."""
        choice = self._part(self.index[piece.request], piece)
        return None if choice is None else {**self._head, "object": self.chunk_kind, "choices": [choice]}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk with the numbers of tokens."""
        return {**self._head, "object": self.chunk_kind, "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Tokens that the model read, a prompt of several texts counted once, and those that it generated."""
        each = len(self.requests) // self._prompts
        read = sum(len(request.prompt) for request in self.requests[::each])
        made = self.generated()
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    def generated(self) -> int:
        return sum(len(request.tokens) for request in self.requests)

    @abstractmethod
    def _whole(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A choice of all its pieces."""

    @abstractmethod
    def _part(self, number: int, piece: Piece) -> dict[str, Any] | None:
        """A choice of a chunk, or None."""


class _Characters:
    """Where the tokens of a text begin in it, in characters; one that begins within a character, where that does."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._count = 0

    def next(self, data: bytes) -> int:
        """Of the next token, by its bytes in the text."""
        pending, _ = self._decoder.getstate()
        first = self._decoder.decode(data[:1])
        # A character that was begun and does not go on is shown as one of its own.
        broken = bool(pending) and first.startswith("\ufffd") and pending + data[:1] != "\ufffd".encode()
        begin = self._count + broken
        self._count += len(first) + len(self._decoder.decode(data[1:]))
        return begin


class CompletionAnswer(Answer):
    """`echo`: the prompt of each text, which then comes first, and how many tokens were put before it; `nothing`: no token is
    wanted but those."""

    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(
        self, model: str, requests: Sequence[Request], prompts: int, seed: int, tokens: Tokens, *,
        logprobs: bool = False, echo: Sequence[tuple[str, int]] | None = None, nothing: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, requests, prompts, seed)
        self._tokens, self._logprobs, self._echo, self._nothing = tokens, logprobs, echo, nothing
        self._characters = [_Characters() for _ in requests]
        self._begun: set[int] = set()

    def generated(self) -> int:
        return 0 if self._nothing else super().generated()

    def _whole(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        return self._choice(number, pieces)

    def _part(self, number: int, piece: Piece) -> dict[str, Any] | None:
        waits = not piece.text and piece.end is None and not self._logprobs
        return None if waits and number in self._begun else self._choice(number, [piece])

    def _choice(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        text, scored, of_prompt = "", list[Scored](), 0
        if number not in self._begun:
            self._begun.add(number)
            if self._echo is not None:
                text, before = self._echo[number]
                scored += (self.requests[number].scored or [])[before:]
                of_prompt = len(scored)
        if not self._nothing:
            text += "".join(piece.text for piece in pieces)
            scored += [one for piece in pieces for one in _scored(piece)]
        end = pieces[-1].end if pieces else None
        return {
            "index": number, "text": text, "logprobs": self._figures(number, scored, of_prompt) if self._logprobs else None,
            "finish_reason": None if end is None else "length" if self._nothing else REASONS[end],
        }  # fmt: skip

    def _figures(self, number: int, scored: Sequence[Scored], of_prompt: int) -> dict[str, Any]:
        """The first `of_prompt` ones are of the prompt, which shows control tokens."""
        offsets = []
        for place, one in enumerate(scored):
            shown = place < of_prompt or one.token not in self._tokens.control
            offsets.append(
                self._characters[number].next(bytes(self._tokens.bytes(one.token) if shown else b""))
            )
        return {
            "tokens": [self._tokens.text(one.token) for one in scored],
            "token_logprobs": [one.log_probability for one in scored],
            "top_logprobs": [
                {self._tokens.text(token): value for token, value in one.likeliest} or None for one in scored
            ],
            "text_offset": offsets,
        }


class ChatAnswer(Answer):
    """`strip`: blanks before an answer are left out."""

    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(
        self, model: str, requests: Sequence[Request], seed: int, tokens: Tokens, *, logprobs: bool = False,
        strip: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, requests, 1, seed)
        self._tokens, self._logprobs, self._strip = tokens, logprobs, strip
        self._begun: set[int] = set()  # texts whose role was sent
        self._blank = set(range(len(requests))) if strip else set()  # of which only blanks have come

    def _whole(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        return {
            "index": number, "message": {"role": "assistant", "content": text.lstrip() if self._strip else text},
            "logprobs": self._figures(pieces), "finish_reason": REASONS[pieces[-1].end or "stop"],
        }  # fmt: skip

    def _part(self, number: int, piece: Piece) -> dict[str, Any] | None:
        text = piece.text
        if number in self._blank:
            text = text.lstrip()
            if text:
                self._blank.discard(number)
        delta: dict[str, str] = {}
        if number not in self._begun:
            self._begun.add(number)
            delta = {"role": "assistant", "content": ""}
        elif not text and piece.end is None and not self._logprobs:
            return None
        if text:
            delta["content"] = text
        return {
            "index": number, "delta": delta, "logprobs": self._figures([piece]),
            "finish_reason": None if piece.end is None else REASONS[piece.end],
        }  # fmt: skip

    def _figures(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        scored = [one for piece in pieces for one in _scored(piece)]
        return {
            "content": [
                {
                    **self._figure(one.token, one.log_probability or 0.0),
                    "top_logprobs": [self._figure(token, value) for token, value in one.likeliest],
                }
                for one in scored
            ]
        }

    def _figure(self, token: int, log_probability: float) -> dict[str, Any]:
        return {
            "token": self._tokens.text(token),
            "logprob": log_probability,
            "bytes": self._tokens.bytes(token),
        }
