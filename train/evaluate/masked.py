"""Scores of a masked language model: each token is hidden once and predicted from both of its sides.

Of a split, a seventh of the words is hidden at a time, near the 15 % of training, until each has been: the sums are no code length, as a
token is predicted from later ones too, and compare masked models alone. Of a query, one token at a time (pseudo-log-likelihood, Salazar
et al. 2020), with the later tokens of its word, which would betray it (Kauf & Ivanova 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from corpusmill.train.data.masking import Masking
from corpusmill.train.data.rewriting import Vocabulary, rewriting
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import CPU_ROW, Answer, Scorer, signed_losses
from corpusmill.train.model.losses import IGNORED

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

PASSES = 7  # each hides 1 / 7 of the words


class Item(NamedTuple):
    """A token to predict: of which query, its place in the continuation and in the text; `text`: int64 [n], hidden tokens as their
    complements (~token)."""

    query: int
    place: int
    at: int
    text: npt.NDArray[np.int64]


def scorer_of(
    model: ParallelModel,
    config: TrainConfig,
    world: World,
    vocabulary: Vocabulary,
    longest: int | None = None,
) -> Scorer:
    """What scores with this model, by its kind."""
    found = None if config.model.causal else rewriting(config.data, vocabulary, config.seed)
    if isinstance(found, Masking):
        return MaskedScorer(model, config, world, found, longest)
    return Scorer(model, config, world, longest)


class MaskedScorer(Scorer):
    """A `Scorer` of a model that sees both sides. Special tokens are never hidden: an end of text has no loss."""

    def __init__(
        self,
        model: ParallelModel,
        config: TrainConfig,
        world: World,
        masking: Masking,
        longest: int | None = None,
    ) -> None:
        super().__init__(model, config, world, longest)
        self.masking = masking

    def losses(self, batches: Sequence[Batch]) -> Iterator[Tensor]:
        """As of `Scorer`: of each token when it is hidden."""
        for batch, own in self.rounds(batches):
            total = torch.zeros(batch["labels"].shape)
            for part in self._parts(batch):
                total += self.forward(part, signed_losses)
            if own:
                yield total

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The rows with a seventh of their words hidden, each time others."""
        labels, tokens = batch["labels"].numpy(), batch["tokens"].numpy()
        # A label that is not scored is the next token all the same.
        following = np.concatenate((tokens[:, 1:], tokens[:, -1:]), axis=1)
        text = np.where(labels == IGNORED, following, labels)
        parts = self.masking.parts(text, batch["documents"].numpy(), PASSES)
        for number in range(PASSES):
            hidden = parts == number
            yield {
                **batch,
                "tokens": torch.from_numpy(np.where(hidden, self.masking.mask, text)),
                "labels": torch.from_numpy(np.where(hidden, labels, IGNORED)),
            }

    def answers(self, queries: Sequence[Query], rows: int = 16) -> list[Answer]:
        """As of `Scorer`: pseudo-log-likelihoods of the continuations behind their contexts."""
        items = [row for number, query in enumerate(queries) for row in self._items(number, query)]
        items.sort(key=lambda item: len(item.text))
        sizes = np.array([len(query.continuation) for query in queries])
        ends = np.cumsum(sizes)
        found = torch.zeros(int(sizes.sum()), dtype=torch.float64)
        batches = list(_batches(items, rows * CPU_ROW))
        mine = batches[self.world.data_rank :: self.world.data_size]
        own = [self._hidden(part) for part in mine]
        for number, (batch, here) in enumerate(self.rounds(own)):
            losses = self.forward(batch, signed_losses)
            for row, item in enumerate(mine[number] if here else ()):
                found[ends[item.query] - sizes[item.query] + item.place] = losses[row, item.at]
        values = np.split((self.world.total(found) / self.world.copies).numpy(), ends[:-1])
        return [Answer(-np.abs(v).astype(np.float32), bool((v >= 0).all())) for v in values]

    def _items(self, number: int, query: Query) -> Iterator[Item]:
        """Of each token of the continuation. The end of text that stands for no context is left out: a text begins with its first
        token."""
        context = list(query.context)
        if context and not self.masking.words.ordinary[context[0]]:
            context = context[1:]
        count = len(query.continuation)
        if count > self.longest:
            raise ValueError(f"a continuation of {count} tokens, the model has {self.longest} positions")
        text = np.array([*context, *query.continuation], dtype=np.int64)[-self.longest :]
        starts = self.masking.words.starts(text[None], np.zeros((1, len(text)), dtype=np.int64))[0]
        word = np.cumsum(starts)
        for place in range(count):
            at = len(text) - count + place
            later = (np.arange(len(text)) >= at) & (word == word[at])
            yield Item(number, place, at, np.where(later, ~text, text))

    def _hidden(self, items: Sequence[Item]) -> Batch:
        """A row for each item; what fills a row up is another document."""
        width = max(len(item.text) for item in items)
        tokens = np.full((len(items), width), self.masking.mask, dtype=np.int64)
        labels, documents = np.full_like(tokens, IGNORED), np.ones_like(tokens)
        for row, item in enumerate(items):
            text, size = item.text, len(item.text)
            tokens[row, :size] = np.where(text < 0, self.masking.mask, text)
            labels[row, item.at], documents[row, :size] = ~text[item.at], 0
        positions = np.broadcast_to(np.arange(width), tokens.shape).copy()
        made = {"tokens": tokens, "labels": labels, "documents": documents, "positions": positions}
        return {name: torch.from_numpy(values) for name, values in made.items()}


def _batches(items: Sequence[Item], most: int) -> Iterator[list[Item]]:
    """Consecutive items whose rows have at most `most` positions together, or one item."""
    part: list[Item] = []
    for item in items:
        if part and (len(part) + 1) * len(item.text) > most:
            yield part
            part = []
        part.append(item)
    if part:
        yield part
