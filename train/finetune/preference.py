"""Preferences as an objective of the trainer: from the losses of tokens, which every layout has, to a value for each row.

The answers of a pair lie one behind the other in one row, so that a micro-batch has both, and documents that attention does not cross
keep them apart. Only labels count, which are tokens of the answers: a prompt is read, and never scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from corpusmill.common.errors import WorkError
from corpusmill.schemas.shards import Target
from corpusmill.train.batch import Answers, Batch, MicroBatch, answers_of, copying, inputs
from corpusmill.train.finetune.losses import Sums, pair_losses, single_losses
from corpusmill.train.model.adapters import adapters_off
from corpusmill.train.model.losses import IGNORED

if TYPE_CHECKING:
    from corpusmill.schemas.preference import PreferenceConfig
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

Context = Callable[[], AbstractContextManager[Any]]
# What is reported beside the loss: whether the chosen answer has the higher reward, by how much, the log-probabilities of both in nats,
# and, of kto, the rewards of wanted and unwanted answers as shares of all.
PAIRS = ("accuracy", "margin", "chosen_logprob", "rejected_logprob")
REWARDS = ("accuracy", "margin", "chosen_reward", "rejected_reward")
SINGLES = ("wanted_reward", "unwanted_reward", "wanted")


class Counts(NamedTuple):
    """Of a whole batch: pairs, or answers, and the tokens of chosen answers."""

    units: float
    tokens: float


class Preference:
    """An objective, with the reference that it has: another model, or this one with its adapters switched off."""

    def __init__(
        self, config: PreferenceConfig, model: ParallelModel, reference: ParallelModel | None, world: World
    ) -> None:
        self.config, self.model, self.reference, self.world = config, model, reference, world
        self.names: tuple[str, ...] = {"kto": SINGLES, "reward": REWARDS}.get(config.loss, PAIRS)
        self.read = last_values if config.loss == "reward" else answer_sums

    def prepared(self, batch: Batch, step: int) -> Batch:
        """A batch as it is."""
        return batch

    def begin(
        self, parts: Sequence[MicroBatch], context: Context = nullcontext, counts: Counts | None = None
    ) -> Pass:
        """Before the forward passes of a step: what they need of the reference, and of all processes. `context`: of a forward pass;
        `counts`: of more than these micro-batches, if they are a part."""
        answers = [self._checked(part.answers) for part in parts]
        counts = counts or self._counts(answers)
        with adapters_off(self.reference.parts if self.reference is self.model else ()):
            references = [self._sums(self.reference, part, context) for part in parts]
        z = torch.zeros((), device=self.world.device)
        if self.config.loss == "kto":
            z = self._divergence(parts, references, context)
        return Pass(self, answers, references, counts, z)

    def _counts(self, answers: Sequence[Answers]) -> Counts:
        """Of all processes."""
        if self.config.loss == "kto":
            return Counts(
                *self.world.sum(sum(int((one.kinds != Target.unrelated).sum()) for one in answers), 0.0)
            )
        pairs = sum(len(one.kinds) // 2 for one in answers)
        return Counts(*self.world.sum(pairs, sum(float(one.lengths[::2].sum()) for one in answers)))

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch], context: Context = nullcontext) -> Figures:
        """Of this data rank's rows and those of the others. `context`: of a forward pass."""
        total, device = torch.zeros(2 + len(self.names), dtype=torch.float64), self.world.device
        rounds = int(self.world.highest(len(batches)))
        parts = []
        for batch in [*batches, *[nothing(self.model)] * (rounds - len(batches))]:
            with copying(device) as sent:
                rows, answers = inputs(batch, device, sent=sent)[0], answers_of(batch, sent)
            parts.append(MicroBatch(rows, torch.zeros(0), torch.zeros(0), answers))
        counts = self._counts([self._checked(part.answers) for part in parts])
        training = self.model.parts[0].training
        self.model.train(False)
        for part in parts:
            of_step = self.begin([part], context, counts)
            with context():
                of_step(self.model.losses(part.inputs), 0)
            total += of_step.rows()[0].sum(0).cpu()
        self.model.train(training)
        return self.figures(self.world.sum(*total.tolist()))

    def named(self, sums: Sequence[float]) -> dict[str, float]:
        """Figures by name, from the sums of columns of `Pass.rows`."""
        return self.figures(sums).named

    def figures(self, sums: Sequence[float]) -> Figures:
        """From the sums of columns of `Pass.rows`."""
        return Figures.of(sums, self.names)

    def _checked(self, answers: Answers | None) -> Answers:
        """Raises `WorkError` for rows that hold no pairs where the loss is of pairs."""
        if answers is None:
            raise WorkError(
                "objective: the data has no answers: set data.conversations and give lines with chosen and rejected"
            )
        kinds = answers.kinds
        if self.config.loss == "kto":
            return answers
        if len(kinds) % 2 or (kinds[::2] != Target.answer).any() or (kinds[1::2] != Target.rejected).any():
            raise WorkError(
                f"objective.loss: {self.config.loss} is of pairs, and the data has other lines too: give lines with chosen and rejected"
                " alone, or set it to kto"
            )
        return answers

    @torch.no_grad()
    def _sums(self, model: ParallelModel | None, part: MicroBatch, context: Context) -> Tensor | None:
        """Summed log-probabilities of a micro-batch's answers under a model."""
        if model is None:
            return None
        assert part.answers is not None
        training = model.parts[0].training
        model.train(False)
        with context():
            losses = model.losses(part.inputs)
        model.train(training)
        return answer_sums(losses, part.answers)

    def _divergence(
        self, parts: Sequence[MicroBatch], references: Sequence[Tensor | None], context: Context
    ) -> Tensor:
        """KTO's z: the mean over answers to other prompts of log(policy / reference), at least 0."""
        found = torch.zeros(2, dtype=torch.float64)
        for part, reference in zip(parts, references, strict=True):
            assert part.answers is not None and reference is not None
            other = part.answers.kinds == Target.unrelated
            policy = self._sums(self.model, part, context)
            assert policy is not None
            ratio = (policy - reference).cpu().double()
            found += torch.stack((ratio[other].sum(), other.sum().double()))
        total, count = self.world.sum(*found.tolist())
        return torch.tensor(max(total / max(count, 1.0), 0.0), device=self.world.device)


class Pass:
    """The objective in one step. Called with the losses [B, T] of a micro-batch and its number, it gives what is differentiated: the sum
    of the values of its answers."""

    def __init__(
        self,
        of: Preference,
        answers: list[Answers],
        references: list[Tensor | None],
        counts: Counts,
        z: Tensor,
    ) -> None:
        self.of, self.answers, self.references, self.counts, self.z = of, answers, references, counts, z
        self.found: dict[int, Tensor] = {}

    @property
    def units(self) -> float:
        """Pairs, or answers, of the whole batch."""
        return self.counts.units

    def __call__(self, losses: Tensor, number: int) -> Tensor:
        answers = self.answers[number]
        policy, reference = self.of.read(losses, answers), self.references[number]
        reference = torch.zeros_like(policy) if reference is None else reference.to(policy.device)
        sums = Sums(policy, reference, answers.lengths.to(policy.device))
        values, stats, rows = (
            self._singles(sums, answers) if self.of.config.loss == "kto" else self._pairs(sums, answers)
        )
        columns = torch.stack((values.detach().double(), torch.ones_like(values).double(), *stats), dim=1)
        per_row = torch.zeros(len(losses), columns.shape[1], dtype=torch.float64, device=losses.device)
        self.found[number] = per_row.index_add_(0, rows.to(losses.device), columns)
        return values.sum()

    def _pairs(self, sums: Sums, answers: Answers) -> tuple[Tensor, list[Tensor], Tensor]:
        """(value, statistics, row) of each pair."""
        config = self.of.config
        chosen, rejected = Sums(*(x[::2] for x in sums)), Sums(*(x[1::2] for x in sums))
        values = pair_losses(config, chosen, rejected, self.counts.units / max(self.counts.tokens, 1.0))
        if config.needs_reference:
            margin = config.beta * (chosen.ratio - rejected.ratio)
        elif config.loss == "reward":
            margin = chosen.policy - rejected.policy
        else:
            margin = config.beta * (chosen.mean - rejected.mean)
        stats = [(margin > 0), margin, chosen.policy, rejected.policy]
        return values, [x.detach().double() for x in stats], answers.rows[::2]

    def _singles(self, sums: Sums, answers: Answers) -> tuple[Tensor, list[Tensor], Tensor]:
        """The same of each answer to its own prompt."""
        own = (answers.kinds != Target.unrelated).nonzero().squeeze(1)
        at = own.to(sums.policy.device)
        rejected = (answers.kinds[own] == Target.rejected).to(at.device)
        mine = Sums(*(x[at] for x in sums))
        values = single_losses(self.of.config, mine, rejected, self.z)
        reward = (self.of.config.beta * mine.ratio).detach().double()
        stats = [reward.where(~rejected, 0.0), reward.where(rejected, 0.0), (~rejected).double()]
        return values, stats, answers.rows[own]

    def rows(self) -> list[Tensor]:
        """Of each row of each micro-batch, float64 [B, 2 + k]: its value, how many answers or pairs it is of, and the sums of `names`."""
        return [self.found[number] for number in sorted(self.found)]


def answer_sums(losses: Tensor, answers: Answers) -> Tensor:
    """Summed log-probabilities of answers, float32 [n], from the losses [B, T] of their rows."""
    if not len(answers.lengths):
        return torch.zeros(0, device=losses.device)
    mine = losses.float().flatten().index_select(0, answers.places.to(losses.device))
    found: Tensor = torch.segment_reduce(mine, "sum", lengths=answers.lengths.to(losses.device))
    return -found


def last_values(values: Tensor, answers: Answers) -> Tensor:
    """Of the values [B, T] of rows, those where the last token of each answer is predicted, float32 [n]: what a reward model says behind
    the answer's text. By lengths, not by an id, for the end of text may also be a padding token."""
    places = answers.places[answers.lengths.cumsum(0) - 1]
    return values.float().flatten().index_select(0, places.to(values.device))


def nothing(model: ParallelModel) -> Batch:
    """A row without an answer: for processes that have fewer rows than others."""
    row = torch.zeros(1, 2 * model.world.tensor, dtype=torch.int64)
    return {
        "tokens": row, "labels": torch.full_like(row, IGNORED), "documents": row, "positions": row,
        "targets": torch.zeros_like(row, dtype=torch.uint8),
    }  # fmt: skip


class Figures(NamedTuple):
    """Means over answers or pairs: the loss, and by name what is reported beside it."""

    loss: float
    named: dict[str, float]

    @classmethod
    def of(cls, sums: Sequence[float], names: Sequence[str]) -> Figures:
        """From the sums of columns of `Pass.rows`. KTO's rewards are means over the answers of their kind."""
        loss, count, *stats = sums
        named = {name: value / max(count, 1.0) for name, value in zip(names, stats, strict=True)}
        if "wanted" in named:
            share = named.pop("wanted")
            named = {
                "wanted_reward": named["wanted_reward"] / share if share else 0.0,
                "unwanted_reward": named["unwanted_reward"] / (1 - share) if share < 1 else 0.0,
            }
            named["margin"] = named["wanted_reward"] - named["unwanted_reward"]
        return cls(loss / max(count, 1.0), named)
