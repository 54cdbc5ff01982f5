"""Log-probabilities of tokens under a model, in any layout and precision: what perplexity, choices, calibration and
comparisons of models are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpusmill.train.batch import Batch, inputs
from corpusmill.train.evaluate.rows import Query, packed
from corpusmill.train.model.losses import IGNORED, own_rows
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.precision.adapt import autocast

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

CHUNK = 1024  # scored positions whose logits exist at once


class Answer(NamedTuple):
    """To a query. `tokens`: the log-probability of each token of the continuation in nats, float32; `greedy`: whether each was
    the likeliest one after those before it."""

    tokens: npt.NDArray[np.float32]
    greedy: bool

    @property
    def sum(self) -> float:
        return float(self.tokens.sum(dtype=np.float64))


class Scorer:
    """Of a model that was built for a layout, in the precision of its config, without dropout. Sums are float64.

    `longest`: positions of the model. All processes call the same methods in the same order; data ranks share the work, and all
    get all results.
    """

    def __init__(
        self, model: ParallelModel, config: TrainConfig, world: World, longest: int | None = None
    ) -> None:
        self.model, self.config, self.world = model, config, world
        self.longest = longest or config.data.sequence_length

    def answers(self, queries: Sequence[Query], rows: int = 16) -> list[Answer]:
        """Log-probabilities of the continuations of all queries, in their order."""
        world = self.world
        sizes = np.array([len(query.continuation) for query in queries])
        ends = np.cumsum(sizes)
        found = torch.zeros(int(sizes.sum()), dtype=torch.float64)
        batches = list(packed(queries, self.longest, rows))
        mine = batches[world.data_rank :: world.data_size]
        for number, losses in enumerate(self.losses([one.batch for one in mine])):
            for query, row, first, last in mine[number].places:
                found[ends[query] - sizes[query] : ends[query]] = losses[row, first:last]
        values = np.split((world.total(found) / world.copies).numpy(), ends[:-1])
        return [Answer(-np.abs(v).astype(np.float32), bool((v >= 0).all())) for v in values]

    def total(self, batches: Iterable[Batch]) -> tuple[float, int]:
        """(sum of losses in nats, scored tokens) of this data rank's batches."""
        batches = list(batches)
        sums = [float(losses.abs().double().sum()) for losses in self.losses(batches)]
        return sum(sums), sum(int((batch["labels"] >= 0).sum()) for batch in batches)

    @torch.no_grad()
    def losses(self, batches: Sequence[Batch]) -> Iterator[Tensor]:
        """The loss of each position of this data rank's batches in nats, float32 [B, T], 0 where the label is `IGNORED`, negative
        where another token is likelier than the label.

        Sharded processes compute together: those with fewer batches than others continue with rows that are not scored.
        """
        self.model.train(False)
        with scored_positions(self.model):
            for number in range(int(self.world.highest(len(batches)))):
                batch = batches[number] if number < len(batches) else unscored(self.longest)
                with autocast(self.config, self.world.device):
                    losses = self.model.losses(inputs(batch, self.world.device)[0])
                if number < len(batches):
                    yield losses.float().cpu()


@contextmanager
def scored_positions(model: ParallelModel) -> Iterator[None]:
    """Within, the model computes logits of the scored positions alone, and the sign of a loss says whether the label is the
    likeliest token."""
    before = [part.score for part in model.parts]
    for part in model.parts:
        part.score = signed_losses
    try:
        yield
    finally:
        for part, score in zip(model.parts, before, strict=True):
            part.score = score


def signed_losses(
    hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None, split: Split = WHOLE,
    summed: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `token_losses`, without gradients. A token that is not the likeliest has a probability of at most 1/2, hence a loss
    of at least ln 2, whose sign is free to say so."""
    flat, wanted = hidden.flatten(0, 1), labels.flatten()
    places = (wanted != IGNORED).nonzero().squeeze(1)
    if torch.is_autocast_enabled(hidden.device.type):
        flat = flat.to(torch.get_autocast_dtype(hidden.device.type))
    small, first = weight.to(flat.dtype), split.rank * len(weight)
    found = []
    with torch.autocast(hidden.device.type, enabled=False):
        for part in torch.split(places, CHUNK):
            logits = (flat[part] @ small.T).float()
            row, here = own_rows(wanted[part], first, len(weight))
            right = logits.gather(1, row[:, None]).squeeze(1) * here
            highest, log_z = logits.amax(-1), logits.logsumexp(-1)
            if split.size > 1:
                most = split.max(log_z)
                log_z = most + split.sum((log_z - most).exp()).log()
                right, highest = split.sum(right), split.max(highest)
            loss = (log_z - right).clamp(min=0.0)
            found.append(torch.where(right >= highest, loss, -loss))
    losses = flat.new_zeros(len(wanted), dtype=torch.float32)
    if found:
        losses[places] = torch.cat(found)
    return losses.view(labels.shape), torch.zeros_like(losses).view(labels.shape)


def unscored(length: int) -> dict[str, Any]:
    """A row in which nothing is scored."""
    row = torch.zeros(1, length, dtype=torch.int64)
    return {"tokens": row, "labels": torch.full_like(row, IGNORED), "documents": row, "positions": row}
