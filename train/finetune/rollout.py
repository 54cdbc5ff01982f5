"""The answers that a model gives to the prompts of a batch, sampled from its present weights, and the batch that they make.

Prompts come from rows of conversations: what is before the last answer of each document, which is the reference. Answers are sampled at
temperature 1 without filters, from the distribution whose gradient is taken. A sample depends on the weights, the seed, the step, the
prompt's place in the data and its number in the group: a resumed run has the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import WorkError
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.shards import Target
from corpusmill.train.data.conversations.rows import packed_whole
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.model.adapters import merge, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import key
from corpusmill.train.model.losses import IGNORED

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.model import ParallelModel


class Prompt(NamedTuple):
    """`ids`: tokens up to where the answer begins; `reference`: the answer in the data; `source`: an index; `number`: of its place in the
    data."""

    ids: list[int]
    reference: str
    source: int
    number: int


class Answered(NamedTuple):
    """An answer to `prompt`: its tokens, with the one that ended it unless it was `cut`, and its text."""

    prompt: Prompt
    tokens: list[int]
    text: str
    cut: bool


class Sampler:
    """Generates with a model's weights as they are when it is called; adapters are merged into a copy."""

    def __init__(self, config: TrainConfig, model: ParallelModel, shards: Shards) -> None:
        from tokenizers import Tokenizer

        assert config.reinforcement is not None
        self.config, self.settings, self.model = config, config.reinforcement, model
        self.vocab_size, self.eos = shards.set.vocab_size, shards.set.eos_id
        self.length = config.data.sequence_length
        self.tokenizer = Tokenizer.from_str(shards.tokenizer().decode())
        self._template = (shards.folder / TEMPLATE).read().decode()
        self.ends = self._opened().ends_of_chat | {self.eos}

    def _opened(self) -> _Model:
        part, config = self.model.parts[0], self.config
        with torch.device("meta"):
            model = with_adapters(Decoder(config.model, self.vocab_size), config.adapter)
        model.load_state_dict(
            part.state_dict(), assign=True
        )  # the same memory, until it is laid out to generate
        copy = merge(model)
        runner = Runner(copy, self.vocab_size, self.eos, self.length, config.precision, sole=True)
        chat = Chat(Opened(runner, self.tokenizer, 0), self._template)
        return _Model(runner, chat.ends)

    def prompts(self, batch: Batch) -> list[Prompt]:
        """Of the documents in a batch's rows that have an answer and leave a place for another one. Raises `WorkError` for an answer that
        no control token ends."""
        found = []
        columns = [batch[name].tolist() for name in ("tokens", "labels", "documents")]
        rows = range(len(columns[0]))  # those of validation have no source and no number
        columns += [batch[name].tolist() if name in batch else list(rows) for name in ("source_id", "n")]
        for tokens, labels, documents, source, number in zip(*columns, strict=True):
            starts = [at for at in range(len(tokens)) if not at or documents[at] != documents[at - 1]]
            for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
                places = [at for at in range(start, end) if labels[at] != IGNORED]
                if not places:
                    continue
                last = places[-1]
                first = (
                    next((at for at in range(last, start - 1, -1) if labels[at] == IGNORED), start - 1) + 1
                )
                answer = labels[first : last + 1]
                if answer[-1] not in self.ends:
                    raise WorkError(
                        "reinforcement: an answer of the data ends without a token that says so: read it with a template whose answers end"
                        " with a control token (data.conversations.template)"
                    )
                ids = tokens[start : first + 1]
                if len(ids) < self.length:
                    found.append(Prompt(ids, self.text(answer[:-1]), source, number * self.length + start))
        return found

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def answers(
        self, prompts: Sequence[Prompt], step: int, count: int, greedy: bool = False
    ) -> list[Answered]:
        """`count` answers to each prompt, one behind the other. Raises `WorkError` if the model gives no text."""
        engine = Engine(self._opened().runner, self.settings.rows, slide=False)
        requests = []
        for prompt in prompts:
            sampling = Sampling(
                max_tokens=min(self.settings.max_tokens, self.length - len(prompt.ids) + 1),
                temperature=0.0 if greedy else 1.0, top_k=0, top_p=1.0, seed=key("rollout", self.config.seed, step),
            )  # fmt: skip
            for member in range(count):
                requests.append(
                    Request(prompt.ids, sampling, prompt.number * count + member, ends=frozenset(self.ends))
                )
        for request in requests:
            engine.submit(request)
        for event in engine.run():
            if event.end == "failed":
                raise WorkError(f"reinforcement: no answer could be generated: {event.request.failure}")
        found = []
        for number, request in enumerate(requests):
            cut = request.tokens[-1] not in self.ends
            text = self.text(request.tokens if cut else request.tokens[:-1])
            found.append(Answered(prompts[number // count], request.tokens, text, cut))
        return found


class _Model(NamedTuple):
    runner: Runner
    ends_of_chat: frozenset[int]


def rows_of(
    answers: Sequence[Answered], length: int, eos: int, first: int
) -> tuple[dict[str, Tensor], list[int]]:
    """The batch of some answers, each a document with its prompt, in rows of their source; and which answer each of its documents is, in
    their order. At least one row. `first`: the number of the first row."""
    rows: list[list[int]] = []
    by_source: dict[int, list[int]] = defaultdict(list)
    for number, answer in enumerate(answers):
        by_source[answer.prompt.source].append(number)
    for numbers in by_source.values():
        sizes = [len(answers[n].prompt.ids) + len(answers[n].tokens) - 1 for n in numbers]
        rows += [[numbers[at] for at in row] for row in packed_whole(sizes, length)]
    count = max(len(rows), 1)
    tokens, labels = np.full((count, length), eos), np.full((count, length), IGNORED)
    documents, positions = np.zeros((2, count, length), dtype=np.int32)
    source, order = np.zeros(count, dtype=np.int64), list[int]()
    for row, numbers in enumerate(rows):
        at = 0
        source[row] = answers[numbers[0]].prompt.source
        for document, number in enumerate(numbers):
            ids, own = answers[number].prompt.ids, answers[number].tokens
            begin, end = at + len(ids) - 1, at + len(ids) - 1 + len(own)
            tokens[row, at:end], labels[row, begin:end] = [*ids, *own[:-1]], own
            documents[row, at:], positions[row, at:] = document, np.arange(length - at)
            order.append(number)
            at = end
        documents[row, at:], positions[row, at:] = len(numbers), np.arange(length - at)
    targets = np.where(labels == IGNORED, Target.context, Target.answer).astype(np.uint8)
    columns = {
        "tokens": tokens, "labels": labels, "targets": targets, "documents": documents, "positions": positions, "source_id": source,
        "n": first + np.arange(count),
    }  # fmt: skip
    return {name: torch.from_numpy(value) for name, value in columns.items()}, order
