"""How far the next-token distributions of two models are apart: KL(p || q) over the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.scorer import Scorer, States, denominator
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import estimate, linearised
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch

CELLS = 1 << 25  # logits of each model that exist at once
Measure = Callable[[Tensor, Tensor, Split], Tensor]  # of the logits [n, V] of two models: [n]


def between_runs(
    a: tuple[TrainConfig, Folder], b: tuple[TrainConfig, Folder]
) -> dict[str, dict[str, Estimate]]:
    """By source, KL(A || B) (`a_b`) and KL(B || A) (`b_a`) of the newest checkpoints of two runs, in nats a token, over the sample of
    A's validation split that its training is validated on. Raises `UserError` for runs with different tokenizers."""
    data = [open_run_data(config) for config, _ in (a, b)]
    if data[0].set.tokenizer_xxh3 != data[1].set.tokenizer_xxh3:
        raise UserError(f"{a[1]} and {b[1]} have different tokenizers: their next tokens cannot be compared")
    world, scorers = join(a[0]), []
    for config, run in (a, b):
        model = load_model(config, newest_checkpoint(run), data[0].set.vocab_size, world.device)
        scorers.append(Scorer(ParallelModel([model], world), config, world))
    found = {}
    for name, source in data[0].validation.items():
        if not source.index.ntokens:
            continue
        length, tokens = min(config.data.sequence_length for config, _ in (a, b)), a[0].validation.tokens
        rows = list(sample(source, length, tokens, world.data_rank, world.data_size, a[0].data.micro_batch))
        found[name] = {
            "a_b": mean_divergence(scorers[0], scorers[1], rows),
            "b_a": mean_divergence(scorers[1], scorers[0], rows),
        }
    return found


def divergences(p: Scorer, q: Scorer, batches: Sequence[Batch]) -> Iterator[Tensor]:
    """KL(p || q) = sum over the vocabulary of p (log p - log q) at each scored position of this data rank's batches, in nats, float32
    [B, T], 0 where nothing is scored. Collective; both models have the same layout and vocabulary, or `UserError` is raised."""
    return _of_both(p, q, batches, _divergence)


def agreements(p: Scorer, q: Scorer, batches: Sequence[Batch]) -> Iterator[Tensor]:
    """Likewise 1 where both models find the same token the likeliest one, else 0."""
    return _of_both(p, q, batches, _agreement)


def _of_both(p: Scorer, q: Scorer, batches: Sequence[Batch], measure: Measure) -> Iterator[Tensor]:
    rows = [one.model.config.padded(one.model.vocab_size) for one in (p, q)]
    if rows[0] != rows[1]:
        raise UserError(f"the models' vocabularies differ: {rows[0]:,} and {rows[1]:,} rows")
    both = _Both(p.world.size > 1, measure)
    for batch, own in p.rounds(batches):
        q.model.train(False)
        p.forward(batch, both.first)
        found = q.forward(batch, both.second)
        if own:
            yield found
    q.check(p)


def mean_divergence(p: Scorer, q: Scorer, batches: Sequence[Batch]) -> Estimate:
    """KL(p || q) in nats a token over all data ranks' rows, which are the units of its error. Raises `ValueError` without any."""
    found = [float(row.sum(dtype=torch.float64)) for part in divergences(p, q, batches) for row in part]
    counts = [int(count) for batch in batches for count in (batch["labels"] >= 0).sum(1)]
    sums, tokens = gathered(p, found), gathered(p, counts)
    return estimate(linearised(sums[tokens > 0], tokens[tokens > 0]), proportion=False)


def gathered(scorer: Scorer, values: Sequence[float]) -> npt.NDArray[np.float64]:
    """The numbers of all data ranks, one after the other, in every process."""
    world = scorer.world
    sizes = torch.zeros(world.data_size, dtype=torch.float64)
    sizes[world.data_rank] = len(values)
    ends = np.cumsum((world.total(sizes) / world.copies).numpy()).astype(np.int64)
    whole = torch.zeros(int(ends[-1]), dtype=torch.float64)
    end = int(ends[world.data_rank])
    whole[end - len(values) : end] = torch.tensor(values, dtype=torch.float64)
    return (world.total(whole) / world.copies).numpy()


class _Both:
    """The states of the first model until the second one has its own. `sharded`: weights are gathered for a forward pass alone;
    `measure`: what is computed of both."""

    def __init__(self, sharded: bool, measure: Measure) -> None:
        self.sharded, self.measure = sharded, measure
        self._p: States | None = None

    def first(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, *_: Any, softcap: float | None = None
    ) -> tuple[Tensor, Tensor]:
        self._p = States.of(hidden, weight.clone() if self.sharded else weight, labels, softcap)
        return self._p.spread([], labels)

    def second(
        self,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        z_loss: float = 0.0,
        chunk: int | None = None,
        split: Split = WHOLE,
        summed: bool = False,
        softcap: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        p, q = self._p, States.of(hidden, weight, labels, softcap)
        self._p = None
        assert p is not None
        found = []
        step = max(1, CELLS // len(weight))
        for start in range(0, len(q.places), step):
            found.append(self.measure(p.logits(start, start + step), q.logits(start, start + step), split))
        return q.spread(found, labels)


def _divergence(p: Tensor, q: Tensor, split: Split) -> Tensor:
    logs = [_log_softmax(logits, split) for logits in (p, q)]
    return split.sum((logs[0].exp() * (logs[0] - logs[1])).sum(-1)).clamp(min=0.0)


def _agreement(p: Tensor, q: Tensor, split: Split) -> Tensor:
    return (_likeliest(p, split) == _likeliest(q, split)).to(p.dtype)


def _likeliest(logits: Tensor, split: Split) -> Tensor:
    """The numbers of the likeliest tokens, as float64."""
    highest, place = logits.max(-1)
    number = (place + split.rank * logits.shape[1]).double()
    if split.size == 1:
        return number
    return split.max(torch.where(highest == split.max(highest), number, -1.0))


def _log_softmax(logits: Tensor, split: Split) -> Tensor:
    """Of this process's part of the vocabulary."""
    log_z = logits.logsumexp(-1)
    return logits - (denominator(log_z, split) if split.size > 1 else log_z)[:, None]
