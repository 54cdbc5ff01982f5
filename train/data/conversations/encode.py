"""Conversations to token ids, and which of them are labels.

Each part that is a label, and what lies between, is encoded alone: a generated answer begins behind a prompt that was encoded without
it, and no token of the training may lie on the border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import library
from corpusmill.schemas.conversation_lines import Answer, Line, Message, Wrong
from corpusmill.schemas.conversations import ConversationConfig
from corpusmill.schemas.shards import Target
from corpusmill.train.data.conversations.template import ChatTemplate, Unmarked
from corpusmill.train.data.texts.encoder import Encoder

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]


class Document(NamedTuple):
    """`tokens` with an end-of-document token, `targets` of each; `chars` and `bytes` (UTF-8) of the text of wanted answers."""

    tokens: Ints
    targets: Kinds
    chars: int
    bytes: int


class Encoded(NamedTuple):
    """The documents of a line: one, a chosen and a rejected one, or the parts of a long text. `shortened`: turns were left out."""

    documents: list[Document]
    shortened: bool = False


class Part(NamedTuple):
    """A text that is encoded alone. `controls`: names of control tokens in it are those tokens."""

    text: str
    target: Target
    controls: bool


class ConversationEncoder:
    """Lines to documents of at most `length` tokens, a preference's two together."""

    def __init__(
        self, data: bytes, plain: Encoder, template: ChatTemplate, config: ConversationConfig, length: int,
        unrelated: bool = False, virtual: int = 0,
    ) -> None:  # fmt: skip
        """`data`: the tokenizer.json of `plain`; `unrelated`: feedback is followed by an answer to another prompt, as KTO compares it;
        `virtual`: places for virtual tokens before each document (`corpusmill.train.model.virtual`)."""
        self.plain, self.template, self.config, self.length = plain, template, config, length
        self.unrelated, self.virtual = unrelated, virtual
        self._controlled = library(data, "tokenizer.json")
        self._controlled.encode_special_tokens = False

    @cached_property
    def controls(self) -> dict[str, int]:
        """Control tokens by name."""
        return controls_of(self.plain)

    def encode(self, lines: Sequence[Line]) -> list[Encoded | Wrong]:
        """Of each line its documents, or why it has none."""
        lines = self._with_unrelated(lines) if self.unrelated else lines
        parts: list[list[list[Part]] | Wrong] = []
        for line in lines:
            try:
                parts.append(self._parts(line, line.messages))
            except Wrong as wrong:
                parts.append(wrong)
        made = [one for one in parts if not isinstance(one, Wrong)]
        ids = iter(self._ids([part for one in made for document in one for part in document]))
        found: list[Encoded | Wrong] = []
        for line, one in zip(lines, parts, strict=True):
            if isinstance(one, Wrong):
                found.append(one)
                continue
            documents = [self._document(each, [next(ids) for _ in each]) for each in one]
            try:
                found.append(self._fitted(line, documents))
            except Wrong as wrong:
                found.append(wrong)
        return found

    def _with_unrelated(self, lines: Sequence[Line]) -> list[Line]:
        """Feedback with the answer of the next line behind its own."""
        places = [at for at, line in enumerate(lines) if line.format == "feedback"]
        found = list(lines)
        for at, other in zip(places, [*places[1:], *places[:1]], strict=True):
            if other != at:
                answer = lines[other].answers[0]._replace(kind=Target.unrelated)
                found[at] = found[at]._replace(answers=[*found[at].answers, answer])
        return found

    def _parts(self, line: Line, before: Sequence[Message]) -> list[list[Part]]:
        """The parts of each document of a line, of whose messages `before` its answers may be some of the last."""
        if line.format == "text":
            if not line.text:
                raise Wrong("an empty text")
            return [[Part(line.text, Target.answer, False)]]
        found = []
        for answer in line.answers:
            if answer.messages:
                found.append(self._turns(line, before, answer))
            else:
                parts = [Part(line.text, Target.context, False), Part(answer.text, answer.kind, False)]
                found.append([part for part in parts if part.text])
            if not any(part.target != Target.context for part in found[-1]):
                raise Wrong("no answer with a text: no token would be a label")
        return found

    def _turns(self, line: Line, before: Sequence[Message], answer: Answer) -> list[Part]:
        """Of a conversation."""
        system = self.config.system
        if system is not None and not (before and before[0]["role"] == "system"):
            before = [{"role": "system", "content": system}, *before]
        whole = [*before, *answer.messages]
        for number, message in enumerate(whole):
            for control in self.controls:
                if control in message["content"]:
                    raise Wrong(f"messages.{number}.content: has the control token {control}")
        try:
            pieces = self.template.pieces(whole, self.controls)
        except Unmarked as error:
            raise Wrong(str(error)) from None
        except UserError as error:
            raise Wrong(f"refused by the template: {error}") from None
        # Of feedback and preferences the last answer counts; of a conversation all, or the last.
        alone = self.config.train_on == "last" or line.format in ("preference", "feedback")
        first = len(before) if alone else 0
        found = []
        for piece in pieces:
            labelled = piece.answer is not None and piece.answer >= first
            if piece.text:
                found.append(Part(piece.text, answer.kind if labelled else Target.context, True))
        return found

    def _ids(self, parts: Sequence[Part]) -> list[list[int]]:
        """Token ids of each part."""
        found: list[list[int]] = [[] for _ in parts]
        for controls, tokenizer in ((False, self.plain.tokenizer), (True, self._controlled)):
            mine = [at for at, part in enumerate(parts) if part.controls == controls]
            texts = [parts[at].text for at in mine]
            for at, one in zip(
                mine, tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True
            ):
                found[at] = one.ids
        return found

    def _document(self, parts: Sequence[Part], ids: Sequence[list[int]]) -> Document:
        """With the end of the document behind it: a label where no template says what ends an answer."""
        end = Target.context if parts[0].controls else parts[-1].target
        sizes = [len(one) for one in ids]
        # The last of them, at the first position behind the virtual ones, is the end of text that a document follows.
        places, eos = [self.plain.eos_id] * self.virtual, [self.plain.eos_id]
        tokens = np.fromiter((token for one in [places, *ids, eos] for token in one), dtype=np.int64)
        kinds = [Target.context, *(part.target for part in parts), end]
        targets = np.repeat(np.array(kinds, dtype=np.uint8), [self.virtual, *sizes, 1])
        texts = [self._written(part) for part in parts if part.target == Target.answer]
        return Document(tokens, targets, sum(map(len, texts)), sum(len(text.encode()) for text in texts))

    def _written(self, part: Part) -> str:
        """The text of a part without its control tokens."""
        text = part.text
        for control in self.controls if part.controls else ():
            text = text.replace(control, "")
        return text

    def _fitted(self, line: Line, made: list[Document]) -> Encoded:
        """Documents that fit into a row: of a long text its parts, of a long conversation the newest turns."""
        size = sum(len(one.tokens) for one in made)
        if size <= self.length:
            return Encoded(made)
        if line.format == "text":
            return Encoded(list(self._cut(line.text, made[0])))
        for before in fewer(line.messages):
            parts = self._parts(line, before)
            ids = iter(self._ids([part for each in parts for part in each]))
            made = [self._document(each, [next(ids) for _ in each]) for each in parts]
            size = sum(len(one.tokens) for one in made)
            if size <= self.length:
                return Encoded(made, shortened=True)
        raise Wrong(f"its last turn has {size} tokens, more than a row of {self.length}")

    def _cut(self, text: str, whole: Document) -> Iterator[Document]:
        """Parts of a long text, each with an end behind it, which is a label behind the last one alone."""
        text, step, virtual = self.plain.plain(text), self.length - 1 - self.virtual, self.virtual
        before, whole = whole.tokens[:virtual], whole._replace(tokens=whole.tokens[virtual:])
        places = list(range(step, len(whole.tokens) - 1, step))
        edges = [0, *(end for end, _ in self.plain.cuts(text, places)), len(text)]
        for number, start in enumerate([0, *places]):
            last = number == len(places)
            tokens = whole.tokens[start : None if last else start + step]
            tokens = tokens if last else np.append(tokens, self.plain.eos_id)
            tokens = np.concatenate([before, tokens])
            targets = np.full(len(tokens), Target.answer, dtype=np.uint8)
            targets[:virtual] = Target.context
            if not last:
                targets[-1] = Target.context
            own = text[edges[number] : edges[number + 1]]
            yield Document(tokens, targets, len(own), len(own.encode()))


def fewer(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Without the oldest turns, one more of them each time; a leading system message stays, and so does the last turn."""
    first = 1 if messages and messages[0]["role"] == "system" else 0
    turns = [at for at, one in enumerate(messages) if at > first and one["role"] == "user"]
    for start in turns:
        yield [*messages[:first], *messages[start:]]


def controls_of(encoder: Encoder) -> dict[str, int]:
    """A tokenizer's control tokens by name."""
    added = encoder.tokenizer.get_added_tokens_decoder()
    return {token.content: number for number, token in added.items() if token.special}
