"""Conversations: the prompt that a chat template makes of messages, what ends an answer, and what is left out when the context
is full.

The template is `chat_template.jinja` beside the run's tokenizer: Jinja with the names that `transformers` gives templates, in
Jinja's sandbox. A model without one was not trained on conversations; its prompt is a dialogue as plain text (`PLAIN`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.common.yaml import printable

if TYPE_CHECKING:
    from jinja2 import Template

    from corpusmill.train.generate.generate import Opened

Message = dict[str, str]  # role (system, user or assistant) and content
TEMPLATE = "chat_template.jinja"
PLAIN = (
    "{% for message in messages %}"
    "{{ {'user': 'User: ', 'assistant': 'Assistant: '}.get(message.role, '') }}{{ message.content }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOP = ("\n\nUser:", "\nUser:")
LETTERS = 300  # of a message of a template
_ANSWER = "corpusmill answer"  # stands for an answer when a template is asked what it writes behind one


class Chat:
    """How a model reads conversations. An answer ends at a token of `ends`, or before a text of `stop`; `plain`: there is no
    template, and answers begin with a blank."""

    def __init__(self, opened: Opened, template: str | None = None) -> None:
        self.plain = template is None
        self._opened = opened
        self._template = _compile(PLAIN if template is None else template)
        tokenizer = opened.tokenizer
        self._controls = {
            token.content: number
            for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._eos = tokenizer.id_to_token(opened.runner.eos_id) or ""
        self.ends: frozenset[int] = frozenset()
        self.stop: tuple[str, ...] = PLAIN_STOP
        if template is not None:
            self.ends, self.stop = self._ends()

    def _ends(self) -> tuple[frozenset[int], tuple[str, ...]]:
        """What the template writes behind an answer: a control token, or a text."""
        turn = [{"role": "user", "content": "."}, {"role": "assistant", "content": _ANSWER}]
        behind = self._render(turn, False).rpartition(_ANSWER)[2].strip()
        for control, number in self._controls.items():
            if behind.startswith(control):
                return frozenset([number]), ()
        return frozenset(), (behind,) if behind else ()

    def _render(self, messages: Sequence[Message], answer: bool) -> str:
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=answer, bos_token="", eos_token=self._eos,
                tools=None, documents=None,
            )  # fmt: skip
        except Exception as error:  # of the template's own code
            raise UserError(
                f"{TEMPLATE}: {type(error).__name__}: {printable(str(error)[:LETTERS])}"
            ) from None

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation up to where the answer begins. Raises `UserError` for a message that contains a control
        token, which would end its turn, and for what the template refuses."""
        for number, message in enumerate(messages):
            for control in self._controls:
                if control in message["content"]:
                    raise UserError(
                        f"messages.{number}.content: contains the control token {control}; leave it out"
                    )
        ids = self._opened.tokenizer.encode(self._render(messages, True), add_special_tokens=False).ids
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


def _compile(source: str) -> Template:
    """Raises `UserError` naming the line of a mistake."""
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`: marks answers for training, and changes nothing here."""

        tags = {"generation"}  # noqa: RUF012 (as the library has it)

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    jinja.filters["tojson"] = to_json
    jinja.globals["raise_exception"] = refuse
    jinja.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return jinja.from_string(source)
    except TemplateSyntaxError as error:
        raise UserError(f"{TEMPLATE}: line {error.lineno}: {error.message}") from None
