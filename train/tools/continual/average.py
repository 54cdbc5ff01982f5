"""`corpusmill average`: the mean of the weights of several checkpoints as a model of its own, beside the mean of their predictions.

Of one run's latest checkpoints (LAWA, Kaddour 2022, Sanyal et al. 2023), the moving average that a run keeps (`optimizer.ema`),
or of runs that were fine-tuned from the same weights (model
soups, Wortsman et al. 2022), which a greedy soup takes in the order of their losses, each if it lowers the loss of the average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import vocabulary
from corpusmill.schemas.continual import PHASE
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.phases import AVERAGE, Averaged, Member, SourceAverage
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.rewriting import Vocabulary
from corpusmill.train.evaluate.documents import paired_bits
from corpusmill.train.evaluate.masked import scorer_of
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import checkpoint_at, interval, load_model
from corpusmill.train.evaluate.statistics import compared, linearised, mean_of
from corpusmill.train.guard.journal import JOURNAL
from corpusmill.train.model.adapters import merge, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim.average import KEY
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import CONFIG, DATA, PLAN, TOKENIZER, dumped, run_data, write_json
from corpusmill.train.tools.continual.phases import earlier_phase, open_earlier
from corpusmill.train.tools.start import FREE

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.evaluation import Estimate
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.shards import Shards, Source
    from corpusmill.train.evaluate.documents import TokenLosses
    from corpusmill.train.parallel.mesh import World

    Bits = dict[str, npt.NDArray[np.float64]]  # of each document, by source


class Run(NamedTuple):
    config: TrainConfig
    folder: Folder


class Ensemble:
    """Models that predict together: the mean of their probabilities (`corpusmill.train.evaluate.documents.TokenLosses`)."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.scorers, self.config = list(scorers), scorers[0].config

    def losses(self, batches: Sequence[Batch]) -> Iterator[Tensor]:
        """-log of the mean probability of each label in nats, float32 [B, T], 0 where the label is ignored."""
        for parts in zip(*(scorer.losses(batches) for scorer in self.scorers), strict=True):
            each = torch.stack([part.abs().double() for part in parts])
            yield (math.log(len(parts)) - (-each).logsumexp(0)).clamp_min(0.0).float()


def average(
    runs: Sequence[Run], out: Folder, last: int = 5, greedy: bool = False, ema: bool = False
) -> Averaged:
    """Write the mean of the `last` checkpoints of one run, or of the newest one of each of several, to `out`; or, with `ema`, the moving
    average in the newest checkpoint of one run, whose only member are the weights there. Returns what its `average.json` holds.
    `out` becomes a run's folder without an optimizer's state, which `evaluate`, `generate`, `export` and
    `init_from` take. Adapters are merged first. All members are in memory at once, in float32.

    Raises `UserError` for fewer than two checkpoints, for models or tokenizers that differ, or if `out` holds a run.
    """
    if (out / CONFIG).exists():
        raise UserError(f"{out}: holds a run already; name another folder")
    config = runs[0].config
    same_model(runs)
    world, shards = join(config), open_run_data(config)
    found = [(runs[0], checkpoint_at(runs[0].folder, None))] if ema else members(runs, last)
    models = [
        load_model(run.config, one, shards.set.vocab_size, world.device, masked=True) for run, one in found
    ]
    judge = Judge(config, shards, world)
    bits = [judge.bits(judge.scorer(model)) for model in models]
    means = [judge.mean(one) for one in bits]
    rank = sorted(range(len(models)), key=lambda number: _value(means[number]))
    kept = greedily(models, rank, judge, _value(means[rank[0]])) if greedy else list(range(len(models)))
    state = mean_weights([models[number] for number in kept])
    if ema:
        state = moving_average(config, found[0][1], shards.set.vocab_size)
    whole = Decoder(config.model, shards.set.vocab_size).to(world.device).eval()
    whole.load_state_dict(state)
    one, together = (
        judge.bits(judge.scorer(whole)),
        judge.bits(Ensemble([judge.scorer(models[number]) for number in kept])),
    )
    result = Averaged(
        greedy=greedy,
        members=[
            Member(
                run=run.folder.url, step=at.step, weights_xxh3=at.weights_xxh3, kept=number in kept, bits_per_byte=means[number]
            )
            for number, (run, at) in enumerate(found)
        ],
        best=rank[0],
        sources={
            name: SourceAverage(
                members=[interval(each[name], size) for each in bits], average=interval(one[name], size),
                ensemble=interval(together[name], size), average_less_best=_less(one[name], bits[rank[0]][name], size),
                ensemble_less_best=_less(together[name], bits[rank[0]][name], size),
            )
            for name, size in judge.sizes.items()
        },
        average=judge.mean(one), ensemble=judge.mean(together),
    )  # fmt: skip
    if world.first:
        write_about(runs, out, shards)
        (out / AVERAGE).write(result.to_json())
    pieces = {
        name: checkpoint.Piece(tuple(value.shape), (0,) * value.ndim, value.cpu())
        for name, value in state.items()
    }
    checkpoint.save(out, max(at.step for _, at in found), pieces, dict(found[-1][1].state))
    return result


def same_model(runs: Sequence[Run]) -> None:
    """Raise `UserError` unless the models are of one shape and number tokens alike."""
    first, folder = runs[0]
    wanted, tokens = first.model.model_dump(exclude=set(FREE)), vocabulary((folder / TOKENIZER).read())
    for config, other in runs[1:]:
        theirs = config.model.model_dump(exclude=set(FREE))
        keys = [f"model.{key}" for key, value in wanted.items() if theirs[key] != value]
        if keys:
            raise UserError(
                f"{other}: is another model than {folder}, by {', '.join(keys)}: name runs of one model"
            )
        if vocabulary((other / TOKENIZER).read()) != tokens:
            raise UserError(f"{other}: has another tokenizer than {folder}: name runs that share it")


def members(runs: Sequence[Run], last: int) -> list[tuple[Run, checkpoint.Checkpoint]]:
    """The checkpoints to average, those of one run in the order of their steps."""
    if len(runs) > 1:
        return [(run, checkpoint_at(run.folder, None)) for run in runs]
    there = list(checkpoint.steps(runs[0].folder))
    if len(there) < 2:
        raise UserError(
            f"{runs[0].folder}: has {len(there)} checkpoints, and an average needs 2: set checkpoint.keep_last or keep_every for"
            " more, or name several runs"
        )
    return [(runs[0], checkpoint_at(runs[0].folder, step)) for step in there[-last:]]


@torch.no_grad()
def mean_weights(models: Sequence[Decoder]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64."""
    states = [model.state_dict() for model in models]
    return {
        name: (sum(state[name].double() for state in states) / len(states)).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in states[0].items()
    }


@torch.no_grad()
def moving_average(config: TrainConfig, found: checkpoint.Checkpoint, vocab_size: int) -> dict[str, Tensor]:
    """The averaged weights in a checkpoint, those of an adapter merged. Raises `UserError` if there are none."""
    kept = checkpoint.read_tensors(found, checkpoint.OPTIMIZER, KEY)
    if not kept:
        raise UserError(
            f"{found.folder}: has no moving average: train with optimizer.ema, or leave --ema out"
        )
    model = with_adapters(Decoder(config.model, vocab_size, config.seed), config.adapter, config.seed)
    checkpoint.restore(found, model)
    weights = dict(model.named_parameters())
    for name, value in kept.items():
        weights[name.removeprefix(f"{KEY}/")].copy_(value)
    return dict(merge(model).state_dict())


def greedily(models: Sequence[Decoder], rank: Sequence[int], judge: Judge, lowest: float) -> list[int]:
    """The numbers of the members of a greedy soup, in order. `rank`: from the lowest loss up; `lowest`: of the first one."""
    kept, trial = [rank[0]], Decoder(models[0].config, models[0].vocab_size).to(judge.world.device).eval()
    for number in rank[1:]:
        trial.load_state_dict(mean_weights([models[one] for one in [*kept, number]]))
        loss = _value(judge.mean(judge.bits(judge.scorer(trial))))
        if loss < lowest:
            kept, lowest = [*kept, number], loss
    return sorted(kept)


class Judge:
    """Bits per byte of models on the validation splits of one shard set. Raises `UserError` if no source has one."""

    def __init__(self, config: TrainConfig, shards: Shards, world: World) -> None:
        self.config, self.world = config, world
        self.sources: dict[str, Source] = {
            name: source for name, source in shards.validation.items() if source.index.ntokens
        }
        if not self.sources:
            raise UserError(
                f"{config.data.shards}: no source has a validation split; set split.validation_share in the recipe"
            )
        self.sizes: Bits = {}
        self.vocabulary = Vocabulary.of(shards)

    def scorer(self, model: Decoder) -> Scorer:
        return scorer_of(ParallelModel([model], self.world), self.config, self.world, self.vocabulary)

    def bits(self, scorer: TokenLosses) -> Bits:
        found = {}
        for name, source in self.sources.items():
            (found[name],), self.sizes[name] = paired_bits([scorer], source)
        return found

    def mean(self, bits: Bits) -> Estimate | None:
        """Over sources, each counting as much as any other."""
        return mean_of([interval(each, self.sizes[name]) for name, each in bits.items()])


def write_about(runs: Sequence[Run], out: Folder, shards: Shards) -> None:
    """What a run's folder has beside checkpoints. What accounts for the data of a single run goes with its average."""
    config, folder = runs[0]
    left = config.model_copy(update={"name": f"{config.name}-average", "output": out.url, "adapter": None})
    write_json(out / CONFIG, dumped(left))
    kept = shards.set
    write_json(out / DATA, run_data(left.data, out, kept.vocab_size, kept.eos_id).model_dump())
    for name in (PLAN, TOKENIZER, TEMPLATE, *([JOURNAL] if len(runs) == 1 else [])):
        if (folder / name).exists():
            (out / name).write((folder / name).read())
    earlier = earlier_phase(folder)
    if len(runs) == 1 and earlier is not None:
        place = open_earlier(folder, config, earlier)[1]
        phase = {
            "kind": "corpusmill-phase-v1",
            "earlier": earlier.model_copy(update={"run": place.url}).model_dump(),
        }
        write_json(out / PHASE, phase)


def _less(
    ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64]
) -> Estimate | None:
    return compared(linearised(ours, sizes), linearised(theirs, sizes)).estimate if sizes.sum() else None


def _value(found: Estimate | None) -> float:
    return math.inf if found is None else found.value
