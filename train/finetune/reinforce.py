"""Reinforcement from rewards of a model's own answers, as an objective of the trainer (`reinforcement`): GRPO and its kin, RLOO."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from corpusmill.train.finetune.checks import checks_of
from corpusmill.train.finetune.preference import Figures
from corpusmill.train.finetune.rollout import Answered, Sampler, rows_of
from corpusmill.train.model.adapters import adapters_off

if TYPE_CHECKING:
    from corpusmill.schemas.reinforcement import ReinforcementConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Answers, Batch, MicroBatch
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.finetune.preference import Context
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

SMALL = 1e-4  # beside the standard deviation of a group's rewards, as TRL has it


class Rewarded(NamedTuple):
    """Of each answer: `rewards` float64 [n, rules], their weighted `total` [n], and what is reported of it."""

    rewards: Tensor
    total: Tensor
    cut: Tensor
    length: Tensor


class Reinforcement:
    """An objective. `prepared` puts the model's answers in place of a batch; `begin` is of that batch."""

    def __init__(
        self,
        config: TrainConfig,
        model: ParallelModel,
        reference: ParallelModel | None,
        shards: Shards,
        world: World,
    ) -> None:
        assert config.reinforcement is not None
        self.config, self.settings = config, config.reinforcement
        self.model, self.reference, self.world = model, reference, world
        self.sampler = Sampler(config, model, shards)
        self.checks = checks_of(self.settings.rewards)
        rules = [rule.name for rule in self.settings.rewards]
        self.names: tuple[str, ...] = ("answers", "reward", *rules, "equal_groups", "tokens", "cut")
        if reference is not None:
            self.names += ("divergence",)
        # Of the batch that is prepared: rewards [prompts, group], which of them its documents are, and their columns.
        self._rewards, self._order, self._columns = torch.zeros(0, 0), torch.zeros(0), torch.zeros(0, 0)

    def prepared(self, batch: Batch, step: int) -> Batch:
        """The batch of answers to the prompts of this data rank's rows."""
        settings = self.settings
        prompts = self.sampler.prompts(batch)
        answers = self.sampler.answers(prompts, step, settings.group)
        rewarded = self.rewarded(answers)
        made, order = rows_of(
            answers, self.config.data.sequence_length, self.sampler.eos, int(batch["n"][0]) * settings.group
        )
        total = rewarded.total.view(len(prompts), settings.group)
        equal = total.max(1).values == total.min(1).values
        columns = torch.stack(
            (
                torch.ones_like(rewarded.total), rewarded.total, *rewarded.rewards.unbind(1),
                equal.double().repeat_interleave(settings.group), rewarded.length, rewarded.cut,
            ), dim=1,
        )  # fmt: skip
        places = torch.tensor(order, dtype=torch.int64)
        self._rewards, self._order, self._columns = total, places, columns[places]
        return made

    def rewarded(self, answers: Sequence[Answered]) -> Rewarded:
        found = [[check(one.text, one.prompt.reference) for check in self.checks] for one in answers]
        rewards = torch.tensor(found, dtype=torch.float64).view(len(answers), len(self.checks))
        weights = torch.tensor([rule.weight for rule in self.settings.rewards], dtype=torch.float64)
        return Rewarded(
            rewards, rewards @ weights, torch.tensor([one.cut for one in answers], dtype=torch.float64),
            torch.tensor([len(one.tokens) for one in answers], dtype=torch.float64),
        )  # fmt: skip

    def begin(self, parts: Sequence[MicroBatch], context: Context = nullcontext) -> Pass:
        """Before the forward passes of a step: the reference's log-probabilities, advantages, and the sums over all processes."""
        answers = [part.answers for part in parts]
        assert all(one is not None for one in answers)
        known = [one for one in answers if one is not None]
        references: list[Tensor | None] = [None] * len(parts)
        totals = self._rewards
        if self.reference is not None:
            with adapters_off(self.reference.parts if self.reference is self.model else ()):
                references = [self._tokens(self.reference, part, context) for part in parts]
            if self.settings.loss == "rloo":
                totals = totals - self.settings.beta * self._divergences(parts, references, context)
        values = advantages(self.settings, totals).flatten()[self._order]
        sizes = [len(one.lengths) for one in known]
        counted = float(sum(sizes))
        if self.settings.loss == "dapo":
            counted = float(sum(int(one.lengths.sum()) for one in known))
        units = max(self.world.sum(counted)[0], 1.0)
        split = zip(torch.split(values, sizes), torch.split(self._columns, sizes), strict=True)
        return Pass(self, known, references, [*split], units)

    @torch.no_grad()
    def _tokens(self, model: ParallelModel, part: MicroBatch, context: Context) -> Tensor:
        """Log-probabilities of the answers' tokens under a model, float32."""
        training = model.parts[0].training
        model.train(False)
        with context():
            losses = model.losses(part.inputs)
        model.train(training)
        assert part.answers is not None
        return -losses.float().flatten()[part.answers.places]

    def _divergences(
        self, parts: Sequence[MicroBatch], references: Sequence[Tensor | None], context: Context
    ) -> Tensor:
        """log(policy / reference) of each answer, float64 [prompts, group]."""
        found = []
        for part, reference in zip(parts, references, strict=True):
            assert part.answers is not None and reference is not None
            ratio = self._tokens(self.model, part, context) - reference
            found.append(_summed(ratio, part.answers).double().cpu())
        whole = torch.zeros(self._rewards.numel(), dtype=torch.float64)
        whole[self._order] = torch.cat(found)
        return whole.view_as(self._rewards)

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch], context: Context = nullcontext) -> Figures:
        """The rewards of the likeliest answers to the prompts of this data rank's rows and those of the others; the loss is the reward,
        negative."""
        prompts = [prompt for batch in batches for prompt in self.sampler.prompts(batch)]
        found = self.rewarded(self.sampler.answers(prompts, 0, 1, greedy=True))
        sums = [found.total.sum(), *found.rewards.sum(0), found.length.sum(), found.cut.sum()]
        count, reward, *rest = self.world.sum(float(len(prompts)), *(float(value) for value in sums))
        count = max(count, 1.0)
        names = ("reward", *(rule.name for rule in self.settings.rewards), "tokens", "cut")
        named = {name: value / count for name, value in zip(names, (reward, *rest), strict=True)}
        return Figures(-reward / count, named)

    def named(self, sums: Sequence[float]) -> dict[str, float]:
        """Figures by name, means over answers, from the sums of columns of `Pass.rows`."""
        _, _, answers, *rest = sums
        return {name: value / max(answers, 1.0) for name, value in zip(self.names[1:], rest, strict=True)}


def advantages(settings: ReinforcementConfig, rewards: Tensor) -> Tensor:
    """Of rewards [prompts, group], how far each is above its group's mean, or, for RLOO, above the mean of the others."""
    above = rewards - rewards.mean(1, keepdim=True)
    if settings.loss == "rloo":
        return above * (settings.group / (settings.group - 1))
    if settings.scale_rewards:
        return above / (rewards.std(1, keepdim=True) + SMALL)
    return above


def token_losses(
    log_p: Tensor, old: Tensor, reference: Tensor | None, advantage: Tensor, beta: float = 0.0, clip: tuple[float, float] = (0.2, 0.2)
) -> Tensor:  # fmt: skip
    """The loss of each token [N], of log-probabilities under the policy, the policy that sampled (`old`) and the reference: PPO's clipped
    ratio (Schulman et al. 2017) and the estimate k3 of the divergence. With one step for each sample `old` is the policy itself, and nothing
    is clipped."""
    ratio = (log_p - old).exp()
    found = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip[0], 1 + clip[1]) * advantage)
    if reference is not None and beta:
        d = reference - log_p
        found = found + beta * (d.exp() - d - 1)
    return found


class Pass:
    """The objective in one step. Called with the losses [B, T] of a micro-batch and its number, it gives what is differentiated."""

    def __init__(
        self, of: Reinforcement, answers: list[Answers], references: list[Tensor | None], split: list[tuple[Tensor, Tensor]], units: float,
    ) -> None:  # fmt: skip
        self.of, self.answers, self.references, self.split, self.units = of, answers, references, split, units
        self.found: dict[int, Tensor] = {}

    def __call__(self, losses: Tensor, number: int) -> Tensor:
        answers, reference, settings = self.answers[number], self.references[number], self.of.settings
        values, columns = self.split[number]
        log_p = -losses.float().flatten()[answers.places]
        each = values.to(log_p).repeat_interleave(answers.lengths)
        if settings.loss == "rloo":  # the ratio is that of the whole answer
            whole = _summed(log_p - log_p.detach(), answers)
            per_answer = token_losses(whole, torch.zeros_like(whole), None, values.to(log_p))
        else:
            tokens = token_losses(log_p, log_p.detach(), reference, each, settings.beta)
            per_answer = _summed(tokens, answers)
        if settings.loss == "grpo":
            per_answer = per_answer / answers.lengths
        elif settings.loss == "dr_grpo":
            per_answer = per_answer / settings.max_tokens
        units = answers.lengths if settings.loss == "dapo" else torch.ones_like(answers.lengths)
        stats = [columns.to(losses.device)]
        if reference is not None:
            stats.append(_summed((log_p.detach() - reference), answers).double()[:, None])
        found = torch.cat((per_answer.detach().double()[:, None], units.double()[:, None], *stats), dim=1)
        rows = torch.zeros(len(losses), found.shape[1], dtype=torch.float64, device=losses.device)
        self.found[number] = rows.index_add_(0, answers.rows.to(losses.device), found)
        # Without an answer, still a gradient of zeros: other processes wait for it.
        return per_answer.sum() + 0.0 * losses.sum()

    def rows(self) -> list[Tensor]:
        """Of each row of each micro-batch, float64 [B, 2 + k]: its value, the units that it is of, and the sums of `names`."""
        return [self.found[number] for number in sorted(self.found)]


def _summed(values: Tensor, answers: Answers) -> Tensor:
    """Of the answers' tokens, the sum of each answer's."""
    number = torch.arange(len(answers.lengths), device=values.device).repeat_interleave(answers.lengths)
    return torch.zeros(len(answers.lengths), dtype=values.dtype, device=values.device).index_add(
        0, number, values
    )
