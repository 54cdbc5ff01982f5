"""`corpusmill chat`: a conversation in a terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from corpusmill.common.errors import UserError, WorkError
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import Texts, check
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.text import shown_on

if TYPE_CHECKING:
    from corpusmill.schemas.generation import Sampling
    from corpusmill.train.generate.chat import Chat, Message
    from corpusmill.train.generate.generate import Opened

HELP = "/reset forgets the conversation, /system TEXT sets the system message, /seed N the seed, /quit ends; so does Ctrl-D"


class Conversation:
    """The messages so far, and answers by `sampling`. The n-th answer depends on the seed, the messages and n alone."""

    def __init__(self, opened: Opened, chat: Chat, sampling: Sampling, system: str = "") -> None:
        self.opened, self.chat, self.sampling, self.system = opened, chat, sampling, system
        self.messages: list[Message] = []
        self.left_out = 0  # messages that the last answer was given without
        self._engine = Engine(opened.runner, 1, slide=False, draft=opened.draft)
        self._request: Request | None = None

    def reset(self) -> None:
        self.messages.clear()

    def interrupt(self) -> None:
        """End the answer that is being given; what has come of it stays in the conversation. May be called by a signal's handler."""
        if self._request is not None:
            self._request.cancelled = True

    def answer(self, text: str) -> Iterator[str]:
        """Pieces of the answer to a message, in whole characters. Raises `UserError` for a message that does not fit, which is
        not added, and `WorkError` if the model gives no text."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        asked = [*self.messages, {"role": "user", "content": text}]
        # Room for an answer, but not at the cost of all that was said.
        context = self.opened.runner.context
        room = min(self.sampling.max_tokens, context // 4)
        prompt, self.left_out = self.chat.fitted([*head, *asked], context - max(room, 1))
        sampling = self.sampling.model_copy(update={"stop": [*self.sampling.stop, *self.chat.stop]})
        ends = self.chat.ends | self.opened.ends(self.sampling.stop)
        request = Request(prompt, sampling, len(self.messages) // 2, ends=ends)
        texts = Texts(self.opened.tokenizer)
        texts.begin(request)
        self._engine.submit(request)
        self._request = request
        answer = ""
        try:
            for event in self._engine.run():
                piece = texts.piece(event)
                if piece is not None:
                    check(piece)
                shown = piece.text if piece is not None else ""
                if self.chat.blank and not answer:
                    shown = shown.lstrip()
                answer += shown
                if shown:
                    yield shown
        finally:
            request.cancelled = True  # of an answer that nobody takes to its end
            self._request = None
            self.messages = [*asked, {"role": "assistant", "content": answer}]


def talk(conversation: Conversation, read: TextIO, write: TextIO) -> None:
    """Read messages and commands, a line each, and write answers as they come, until the input ends."""
    terminal = read.isatty()
    while True:
        line = _line(read, write, terminal)
        if line is None or line.split()[:1] == ["/quit"]:
            return
        if line.startswith("/"):
            write.write(f"{_command(conversation, line)}\n")
        elif line.strip():
            _answer(conversation, line, write)
        write.flush()


def _line(read: TextIO, write: TextIO, terminal: bool) -> str | None:
    """The next line without its end; None at the end of the input."""
    while True:
        try:
            if terminal:
                return input("> ")
            line = read.readline()
        except EOFError:
            write.write("\n")
            return None
        except KeyboardInterrupt:
            if not terminal:
                raise
            write.write("\n(Ctrl-D or /quit ends)\n")
            continue
        # Bytes that are no UTF-8 come as surrogates, which no tokenizer takes.
        return (
            line.rstrip("\r\n").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if line
            else None
        )


def _command(conversation: Conversation, line: str) -> str:
    """Do what a line that begins with a slash wants; what to say."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    if name == "/reset":
        conversation.reset()
        return "(the conversation is forgotten)"
    if name == "/system":
        conversation.system = rest
        return "(the system message is set)" if rest else "(there is no system message)"
    if name == "/seed" and rest.isdecimal() and len(rest) < 20 and int(rest) < 2**63:
        conversation.sampling = conversation.sampling.model_copy(update={"seed": int(rest)})
        return f"(seed {int(rest)})"
    if name == "/seed":
        return "(/seed: give a whole number from 0 on)"
    return f"({HELP})"


def _answer(conversation: Conversation, text: str, write: TextIO) -> None:
    with interrupting(conversation):
        try:
            for piece in conversation.answer(text):
                write.write(shown_on(write, piece))
                write.flush()
        except (UserError, WorkError) as error:
            write.write(shown_on(write, f"({error})"))
    write.write("\n")
    if conversation.left_out:
        print(f"({conversation.left_out} earlier messages were left out)", file=sys.stderr)


@contextmanager
def interrupting(conversation: Conversation) -> Iterator[None]:
    """Ctrl-C ends an answer between two of its tokens, not the program in the midst of something."""

    def handle(_: int, __: FrameType | None) -> None:
        conversation.interrupt()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
