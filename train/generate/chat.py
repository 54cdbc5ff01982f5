"""Conversations: the prompt that a chat template makes of messages, what ends an answer, and what is left out when the context
is full.

The template is `chat_template.jinja` beside the run's tokenizer: Jinja with the names that `transformers` gives templates, in
Jinja's sandbox. A model without one was not trained on conversations; its prompt is a dialogue as plain text (`PLAIN`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.train.data.conversations.template import ChatTemplate

if TYPE_CHECKING:
    from corpusmill.train.generate.generate import Opened

Message = dict[str, str]  # role (system, user or assistant) and content
PLAIN = (
    "{% for message in messages %}"
    "{{ {'user': 'User: ', 'assistant': 'Assistant: '}.get(message.role, '') }}{{ message.content }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOP = ("\n\nUser:", "\nUser:")
_ANSWER = "corpusmill answer"  # stands for an answer when a template is asked what it writes behind one


class Chat:
    """How a model reads conversations. An answer ends at a token of `ends`, or before a text of `stop`; `plain`: there is no
    template; `blank`: answers begin with a blank, which is none of theirs."""

    def __init__(self, opened: Opened, template: str | None = None) -> None:
        self.plain = self.blank = template is None
        self._opened = opened
        tokenizer = opened.tokenizer
        eos = tokenizer.id_to_token(opened.runner.eos_id) or ""
        self._template = ChatTemplate(PLAIN if template is None else template, eos)
        self._controls = {
            token.content: number
            for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self.ends: frozenset[int] = frozenset()
        self.stop: tuple[str, ...] = PLAIN_STOP
        if template is not None:
            self.ends, self.stop = self._ends()

    def _ends(self) -> tuple[frozenset[int], tuple[str, ...]]:
        """What the template writes behind an answer: a control token, or a text."""
        turn = [{"role": "user", "content": "."}, {"role": "assistant", "content": _ANSWER}]
        whole = self._template.render(turn, False)
        self.blank = whole.startswith(f"{self._template.render(turn[:1], True)} {_ANSWER}")
        behind = whole.rpartition(_ANSWER)[2].strip()
        for control, number in self._controls.items():
            if behind.startswith(control):
                return frozenset([number]), ()
        return frozenset(), (behind,) if behind else ()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation up to where the answer begins. Raises `UserError` for a message that contains a control
        token, which would end its turn, and for what the template refuses."""
        for number, message in enumerate(messages):
            for control in self._controls:
                if control in message["content"]:
                    raise UserError(
                        f"messages.{number}.content: contains the control token {control}; leave it out"
                    )
        ids = self._opened.tokenizer.encode(
            self._template.render(messages, True), add_special_tokens=False
        ).ids
        start = self._opened.runner.eos_id  # as before each document of the training
        return ids if ids[:1] == [start] else [start, *ids]

    def fitted(self, messages: Sequence[Message], most: int) -> tuple[list[int], int]:
        """The prompt of at most `most` tokens, and how many messages it leaves out: the oldest turns, each from a user's message
        up to the next one; never a leading system message or the last turn. Raises `UserError` if those alone are longer."""
        first = 1 if messages and messages[0]["role"] == "system" else 0
        turns = [n for n, message in enumerate(messages) if n >= first and message["role"] == "user"]
        for start in [first, *[n for n in turns if n > first]]:
            ids = self.prompt([*messages[:first], *messages[start:]])
            if len(ids) <= most:
                return ids, start - first
        raise UserError(
            f"the last message takes {len(ids)} tokens with what the template adds, and there are {most}; shorten it, or"
            " set a longer --context"
        )


def open_chat(opened: Opened, run: Folder) -> Chat:
    """By the template in a run's folder, if it has one. Raises `UserError` for a template that is not one."""
    try:
        source = (run / TEMPLATE).read()
    except FileNotFoundError:
        return Chat(opened)
    try:
        return Chat(opened, source.decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{run / TEMPLATE}: is not UTF-8") from None
