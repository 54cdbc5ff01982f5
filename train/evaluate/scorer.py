"""Log-probabilities of tokens under a model, in any layout and precision: what perplexity, choices, calibration and
comparisons of models are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import Diverged
from corpusmill.train.batch import Batch, inputs
from corpusmill.train.evaluate.rows import ROW, Query, packed
from corpusmill.train.model.adapters import virtual_tokens
from corpusmill.train.model.blockwise import capped
from corpusmill.train.model.losses import IGNORED, own_rows
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.precision.adapt import autocast

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

Score = Callable[..., tuple[Tensor, Tensor]]  # as `token_losses`
CHUNK = 1024  # scored positions whose logits exist at once
# Of a row on a CPU, where short rows cost least: attention is computed under the mask of a whole row, and what 16 of them hold between two
# products stays in its caches.
CPU_ROW = 64


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
    get all results. What has been computed of all batches is refused (`Diverged`) if any of it is not finite: of NaN, the first choice
    would be the likeliest one.
    """

    def __init__(
        self, model: ParallelModel, config: TrainConfig, world: World, longest: int | None = None
    ) -> None:
        self.model, self.config, self.world = model, config, world
        self.longest = longest or config.data.sequence_length
        self._finite = True  # whether this process has found nothing else since `check`

    def answers(self, queries: Sequence[Query], rows: int = 16) -> list[Answer]:
        """Log-probabilities of the continuations of all queries, in their order."""
        world = self.world
        if virtual := virtual_tokens(self.model.parts[0]):
            queries = [_behind(query, virtual, self.longest) for query in queries]
        sizes = np.array([len(query.continuation) for query in queries])
        ends = np.cumsum(sizes)
        found = torch.zeros(int(sizes.sum()), dtype=torch.float64)
        row = ROW if self.world.device.type == "cuda" else CPU_ROW
        batches = list(packed(queries, self.longest, rows, row))
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

    def losses(self, batches: Sequence[Batch]) -> Iterator[Tensor]:
        """The loss of each position of this data rank's batches in nats, float32 [B, T], 0 where the label is `IGNORED`, negative
        where another token is likelier than the label."""
        for batch, own in self.rounds(batches):
            found = self.forward(batch, signed_losses)
            if own:
                yield found

    def surprises_of_likeliest(self, batches: Sequence[Batch]) -> Iterator[Tensor]:
        """-log(probability of the likeliest token) of each position, likewise, negative where it is not the label: what the
        calibration of next tokens is computed from."""
        for batch, own in self.rounds(batches):
            found = self.forward(batch, likeliest)
            if own:
                yield found

    def rounds(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, bool]]:
        """This data rank's batches. Sharded processes compute together: those with fewer than others continue with rows that are
        not scored (False)."""
        self.model.train(False)
        for number in range(int(self.world.highest(len(batches)))):
            own = number < len(batches)
            yield batches[number] if own else unscored(self.longest), own
        self.check()

    def check(self, *others: Scorer) -> None:
        """Raises `Diverged` if any process has found a value that is not finite since the last call. `others`: whose models it may be of
        as well."""
        bad, self._finite = self.world.highest(float(not self._finite)), True
        if not bad:
            return
        for one in (self, *others):
            for name, parameter in one.model.named_parameters():
                if not local(parameter).isfinite().all():
                    raise Diverged(
                        f"{one.config.name}: log-probabilities are not finite numbers, as the model's {name} is not: the training"
                        " diverged, score an earlier checkpoint"
                    )
        raise Diverged(
            f"{self.config.name}: log-probabilities are not finite numbers in precision {self.config.precision}: score the model in"
            " fp32, or an earlier checkpoint"
        )

    @torch.no_grad()
    def forward(self, batch: Batch, score: Score) -> Tensor:
        """What `score` computes of each position in place of the loss, float32 [B, T] on the CPU."""
        width = batch["tokens"].shape[1]
        with scored_by(self.model, score), autocast(self.config, self.world.device):
            rows = inputs(divisible(batch, self.world.tensor), self.world.device)[0]
            found = self.model.losses(rows)
        values = found[:, :width].float().cpu()
        self._finite = self._finite and bool(values.isfinite().all())
        return values


@contextmanager
def scored_by(model: ParallelModel, score: Score) -> Iterator[None]:
    """Within, the model computes `score` instead of losses."""
    before = [part.score for part in model.parts]
    for part in model.parts:
        part.score = score
    try:
        yield
    finally:
        for part, one in zip(model.parts, before, strict=True):
            part.score = one


def _behind(query: Query, virtual: int, longest: int) -> Query:
    """A query behind the places of virtual tokens, whatever ids they have; the beginning of its context lost, if there are more than
    `longest` positions, in place of those."""
    if virtual + len(query.continuation) > longest:
        raise ValueError(
            f"a continuation of {len(query.continuation)} tokens, the model has {longest}, {virtual} of them for virtual ones"
        )
    over = virtual + len(query.context) + len(query.continuation) - 1 - longest
    return Query(
        [*[0] * virtual, *query.context[min(max(over, 0), len(query.context) - 1) :]], query.continuation
    )


class States(NamedTuple):
    """Of the scored positions, which have these `places` in the flattened rows, before the head `weight`: all in the type in which
    products are computed."""

    places: Tensor
    hidden: Tensor
    weight: Tensor
    softcap: float | None = None  # of logits

    @classmethod
    def of(cls, hidden: Tensor, weight: Tensor, labels: Tensor, softcap: float | None = None) -> States:
        flat = hidden.flatten(0, 1)
        if torch.is_autocast_enabled(hidden.device.type):
            flat = flat.to(torch.get_autocast_dtype(hidden.device.type))
        places = (labels.flatten() != IGNORED).nonzero().squeeze(1)
        return cls(places, flat[places], weight.to(flat.dtype), softcap)

    def logits(self, first: int, last: int) -> Tensor:
        """Of some positions, float32 [n, V]."""
        with torch.autocast(self.hidden.device.type, enabled=False):
            return capped((self.hidden[first:last] @ self.weight.T).float(), self.softcap)

    def spread(self, found: list[Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
        """What was found of the positions in order, as [B, T] with 0 elsewhere; and zeros, for the z-loss."""
        values = torch.zeros(labels.numel(), dtype=torch.float32, device=labels.device)
        if found:
            values[self.places] = torch.cat(found)
        return values.view(labels.shape), torch.zeros_like(values).view(labels.shape)


def of_positions(value: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Score:
    """A function like `token_losses`, without gradients and with the logits of scored positions alone: `value` of the logarithm of
    the softmax's denominator, the label's logit and the highest one, float32 [n] each."""

    def score(
        hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None, split: Split = WHOLE,
        summed: bool = False, softcap: float | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        states, flat = States.of(hidden, weight, labels, softcap), labels.flatten()
        found = []
        for first in range(0, len(states.places), CHUNK):
            wanted = flat[states.places[first : first + CHUNK]]
            logits = states.logits(first, first + CHUNK)
            row, here = own_rows(wanted, split.rank * len(weight), len(weight))
            right = logits.gather(1, row[:, None]).squeeze(1) * here
            highest, log_z = logits.amax(-1), logits.logsumexp(-1)
            if split.size > 1:
                log_z = denominator(log_z, split)
                right, highest = split.sum(right), split.max(highest)
            found.append(value(log_z, right, highest))
        return states.spread(found, labels)

    return score


def denominator(log_z: Tensor, split: Split) -> Tensor:
    """The logarithm of the softmax's denominator, from those of the processes' parts of the vocabulary."""
    most = split.max(log_z)
    return most + split.sum((log_z - most).exp()).log()


def _signed(log_z: Tensor, right: Tensor, highest: Tensor) -> Tensor:
    # A token that is not the likeliest has a probability of at most 1/2, hence a loss of at least ln 2, whose sign is free.
    loss = (log_z - right).clamp(min=0.0)
    return torch.where(right >= highest, loss, -loss)


def _likeliest(log_z: Tensor, right: Tensor, highest: Tensor) -> Tensor:
    # Not 0, which has no sign, where the probability is 1.
    surprise = (log_z - highest).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(right >= highest, surprise, -surprise)


signed_losses = of_positions(_signed)
likeliest = of_positions(_likeliest)


def divisible(batch: Batch, parts: int) -> Batch:
    """The rows with so many positions, by some at their ends that are not scored, that `parts` divides them: tensor parallelism cuts
    rows into parts of equal length."""
    extra = -batch["tokens"].shape[1] % parts
    if not extra:
        return batch
    ends = {"tokens": 0, "labels": IGNORED, "positions": 0}
    found = dict(batch)
    for name in ("tokens", "labels", "positions", "documents"):
        last = batch[name][:, -1:].expand(-1, extra)  # the document that the row ends with
        end = torch.full_like(last, ends[name]) if name in ends else last
        found[name] = torch.cat([batch[name], end], dim=1)
    return found


def unscored(length: int) -> dict[str, Any]:
    """A row in which nothing is scored."""
    row = torch.zeros(1, length, dtype=torch.int64)
    return {"tokens": row, "labels": torch.full_like(row, IGNORED), "documents": row, "positions": row}
