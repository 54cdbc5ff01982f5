"""Text of the tokens of one request, piece by piece: whole characters, and nothing that may begin a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from corpusmill.common.escape import harmless

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Text:
    """What may be shown so far; `stopped` once a stop string has come, which is not shown; `tokens` have been added."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), prompt: Sequence[int] = ()) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._stream = DecodeStream(skip_special_tokens=True)
        for token in prompt[-8:]:  # some decoders treat the first token of a text differently
            self._stream.step(tokenizer, token)
        self._held = ""
        self.stopped = False
        self.tokens = 0

    def add(self, token: int) -> str:
        """What can be shown now that this token has come."""
        self.tokens += 1
        return self.add_text(self._stream.step(self._tokenizer, token) or "")

    def add_text(self, piece: str) -> str:
        """The same, of a piece of text."""
        if self.stopped:
            return ""
        text = self._held + piece
        # The one that is complete first, however the text is cut into pieces.
        found = [(place + len(stop), place) for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        held = max((overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What was held back, when no more tokens come. An unfinished character is left out."""
        held, self._held = self._held, ""
        return held


def shown_on(stream: TextIO, text: str) -> str:
    """The text as a stream is to have it: a terminal without the control characters by which a text could steer it."""
    return harmless(text) if stream.isatty() else text


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not the whole of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
