"""Chat templates: Jinja with the names that `transformers` gives them, in Jinja's sandbox; and which parts of what they write are
answers.

A template that marks answers with `{% generation %}`, as `transformers` has it, says so itself. Nearly none does: then the turn is
what the template adds to the turns before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.yaml import printable
from corpusmill.schemas.conversations import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template

Message = Mapping[str, str]  # role and content
LETTERS = 300  # of a template's own message
# Around an answer that a template marks: noncharacters, which no text has (Unicode 23.7).
OPEN, CLOSE = "\ufdd0", "\ufdd1"
SHIPPED = {
    # A dialogue as plain text, for a tokenizer without tokens for turns: an answer ends with the end of a document.
    "plain": """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}Assistant:
{%- generation %}{{ ' ' ~ message.content ~ eos_token }}{% endgeneration %}{{ '\\n\\n' }}
{%- else %}{{ {'user': 'User: '}.get(message.role, '') ~ message.content ~ '\\n\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}Assistant:{% endif %}""",
    # OpenAI's format of 2023, that of many published models.
    "chatml": """\
{%- for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content ~ '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message.content ~ '<|im_end|>' }}
{%- endif %}{{ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
}
CONTROLS = {"chatml": ("<|im_start|>", "<|im_end|>")}  # tokens that a shipped template needs


class Unmarked(Exception):
    """Why the answers in a rendered conversation cannot be found."""


class Piece(NamedTuple):
    """A part of a rendered conversation; `answer`: the number of the message that it is (a part of) the answer of, or None."""

    text: str
    answer: int | None


class ChatTemplate:
    """A template. `marks`: it marks answers itself."""

    def __init__(self, source: str, eos_token: str, where: str = TEMPLATE) -> None:
        """Raises `UserError` naming `where` and the line of a mistake."""
        self.source, self.where, self._eos = source, where, eos_token
        self._template, self.marks = _compile(source, where)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """Raises `UserError` with what the template refuses."""
        return self._marked(messages, add_generation_prompt).replace(OPEN, "").replace(CLOSE, "")

    def _marked(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=[dict(one) for one in messages], add_generation_prompt=add_generation_prompt, bos_token="",
                eos_token=self._eos, tools=None, documents=None,
            )  # fmt: skip
        except Exception as error:  # of the template's own code
            raise UserError(
                f"{self.where}: {type(error).__name__}: {printable(str(error)[:LETTERS])}"
            ) from None

    def pieces(self, messages: Sequence[Message], controls: Iterable[str] = ()) -> list[Piece]:
        """The whole conversation, in parts. `controls`: names of control tokens; white space that follows one behind an answer is not
        part of it. Raises `Unmarked` if answers cannot be found, `UserError` as `render` does."""
        answers = [number for number, one in enumerate(messages) if one["role"] == "assistant"]
        if any(mark in one["content"] for one in messages for mark in (OPEN, CLOSE)):
            raise Unmarked("a message has the code point U+FDD0 or U+FDD1, which is no character")
        if self.marks:
            return _between_marks(self._marked(messages, False), answers)
        return self._by_turns(messages, answers, tuple(controls))

    def _by_turns(
        self, messages: Sequence[Message], answers: list[int], controls: tuple[str, ...]
    ) -> list[Piece]:
        """An answer is what the template adds to the prompt of the turns before it."""
        whole, done = self.render(messages, False), 0
        found: list[Piece] = []
        for number in answers:
            prompt = self.render(messages[:number], True)
            through = commonprefix([whole, self.render(messages[: number + 1], False)])  # noqa: RUF071 (of texts)
            content = messages[number]["content"].strip()
            if not whole.startswith(prompt) or not through.startswith(prompt):
                raise Unmarked(
                    f"message {number}: what the template writes before the answer is not what it writes for the turns before it:"
                    " it changes earlier messages; mark answers in the template with {% generation %}"
                )
            if content not in through[len(prompt) :]:
                raise Unmarked(f"message {number}: the template does not write the answer as it is")
            answer = _ended(through[len(prompt) :], controls)
            found += [Piece(whole[done : len(prompt)], None), Piece(answer, number)]
            done = len(prompt) + len(answer)
        return [*found, Piece(whole[done:], None)]


def _ended(answer: str, controls: tuple[str, ...]) -> str:
    """An answer without the white space that follows its control token: nobody generates it."""
    stripped = answer.rstrip()
    return stripped if controls and stripped.endswith(controls) else answer


def _between_marks(marked: str, answers: list[int]) -> list[Piece]:
    found: list[Piece] = []
    parts = marked.split(OPEN)
    if len(parts) - 1 != len(answers):
        raise Unmarked(f"the template marks {len(parts) - 1} answers of {len(answers)}")
    found.append(Piece(parts[0], None))
    for number, part in zip(answers, parts[1:], strict=True):
        answer, mark, rest = part.partition(CLOSE)
        if not mark or CLOSE in rest:
            raise Unmarked("the template's marks are not in pairs")
        found += [Piece(answer, number), Piece(rest, None)]
    return found


def _compile(source: str, where: str) -> tuple[Template, bool]:
    """The template, and whether it marks answers."""
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    marks = False

    class Generation(Extension):
        """`{% generation %}`: what is within is an answer."""

        tags = {"generation"}  # noqa: RUF012 (as the library has it)

        def parse(self, parser: Parser) -> nodes.Node:
            nonlocal marks
            marks = True
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

        def mark(self, caller: Callable[[], str]) -> str:
            return f"{OPEN}{caller()}{CLOSE}"

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
        return jinja.from_string(source), marks
    except TemplateSyntaxError as error:
        raise UserError(f"{where}: line {error.lineno}: {error.message}") from None
