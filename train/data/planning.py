"""From a config and a shard set to a plan: shares of the tokens, slots of a batch, stages. Errors name the number to change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError, nearest
from corpusmill.schemas.data import DataConfig, Mixture
from corpusmill.train.data.curriculum import Curriculum, draws_until, with_difficulties
from corpusmill.train.data.lanes import lanes_of
from corpusmill.train.data.plan import Plan, SourcePlan, StageSpec, merged
from corpusmill.train.data.sequences import Sequences, runs
from corpusmill.train.data.shards import Shards, Source

MANY_EPOCHS = 4  # beyond it, repeated tokens are worth clearly less than new ones (Muennighoff et al. 2023)
MOST_LANES, MOST_BATCHES = (
    1024,
    16,
)  # over which the mixture becomes exact, unless data.lanes says otherwise: the larger one
NEAR = 1e-3  # of its share, to which a source's part comes that no such number makes exact
NEVER = 2**40  # steps
WAVES = 4  # rounds of windows over all lanes that an epoch has at least, if the source is large enough for it


class Shape(NamedTuple):
    """What a plan needs to know of a source: `counts[i]` blocks in a row hold `sequences[i]` sequences of full length."""

    tokens: int
    longest: int  # tokens of its longest block
    index_xxh3: str
    counts: npt.NDArray[np.int64]
    sequences: npt.NDArray[np.int64]
    difficulty: npt.NDArray[np.float64] | None = None  # of each sequence, under a curriculum


def make_plan(config: DataConfig, shards: Shards, seed: int, steps: int | None = None) -> Plan:
    """The plan of a config over an opened shard set; see `plan_of`."""
    if config.curriculum and not any(source.difficulty is not None for source in shards.train.values()):
        shards = with_difficulties(config, shards)
    shapes = {
        name: shape_of(source, config.sequence_length)
        for name, source in shards.train.items()
        if source.index.ntokens
    }
    if not shapes:
        raise UserError(f"data.shards: {config.shards}: no source has a train split with tokens")
    return plan_of(config, shapes, seed, steps, shards.replayed)


def shape_of(source: Source, length: int) -> Shape:
    """The shape of an opened source for sequences of `length` tokens. Raises `UserError` if it is packed in rows of another length."""
    rows = source.index.row_tokens
    if rows not in (None, length):
        raise UserError(
            f"data.sequence_length: '{source.name}' is packed in rows of {rows} tokens: set it to {rows}, is {length}"
        )
    tokens = [block.ntokens for _, block in source.blocks]
    return Shape(
        source.index.ntokens, max(tokens), source.xxh3, *runs(source.sequences(length)), source.difficulty
    )


def plan_of(
    config: DataConfig, shapes: dict[str, Shape], seed: int, steps: int | None = None,
    replayed: Mapping[str, float] | None = None,
) -> Plan:  # fmt: skip
    """The plan of a config over sources of these shapes; with `steps`, caps on repeats are checked up to there. `replayed`: see
    `mixtures_of`.

    Raises `UserError`, naming the number to change, for a source that is not there, one too small for a
    single sequence, a share too small for a slot of its own, and a source repeated beyond `max_epochs`.
    """
    mixtures = mixtures_of(config, {name: shape.tokens for name, shape in shapes.items()}, replayed)
    names = [name for name in shapes if any(name in mixture for mixture in mixtures)]
    slotted: list[tuple[int, int, int, dict[str, int]]] = []
    for first in _changes(config):
        number = sum(stage.from_step <= first for stage in config.stages)
        length, batch = config.length_at(first), config.batch_at(first)
        sequences = batch * length // config.sequence_length
        key = f"data.stages[{number - 1}]" if number else "data"
        every = config.lanes or exact_over(list(mixtures[number].values()), sequences)
        counts = slots(mixtures[number], every, key)
        slotted.append((first, length, sequences, counts))
    # The lanes of the first stage that reads a source decide, so that later stages do not change its chunks.
    lanes = {
        name: next(
            lanes_of(counts[name], sum(counts.values()), sequences)
            for *_, sequences, counts in slotted
            if name in counts
        )
        for name in names
    }
    draws = {
        name: draws_until(
            [
                (first, sequences, counts.get(name, 0), sum(counts.values()))
                for first, _, sequences, counts in slotted
            ],
            config.curriculum.over if config.curriculum else 0,
        )
        for name in names
    }
    sources = tuple(_source(config, name, shapes[name], lanes[name], seed, draws[name]) for name in names)
    stages = merged(
        StageSpec(first, length, sequences, tuple(counts.get(name, 0) for name in names))
        for first, length, sequences, counts in slotted
    )
    plan = Plan(
        seed, config.sequence_length, config.window_blocks, config.packing, config.cross_documents, sources, stages,
        tuple(sorted(config.skip.items())),
    )  # fmt: skip
    if steps:
        _check_caps(plan, config, steps)
    return plan


def mixtures_of(
    config: DataConfig, tokens: dict[str, int], replayed: Mapping[str, float] | None = None
) -> list[dict[str, float]]:
    """The shares that the config asks for, at first and in each of its stages; `replayed`: those of an earlier run's sources, beside
    which the config's own have the rest."""
    again = replayed or {}
    own = {name: count for name, count in tokens.items() if name not in again}
    later = [shares(stage, own, f"data.stages[{i}]") for i, stage in enumerate(config.stages)]
    rest = 1 - sum(again.values())
    return [
        {**{name: share * rest for name, share in one.items()}, **again}
        for one in (shares(config, own, "data"), *later)
    ]


def _changes(config: DataConfig) -> list[int]:
    """First steps of stages with one mixture, length and batch."""
    ends = [last + 1 for last in (*config.sequence_ramp, *config.batch_ramp)]
    return sorted({1, *ends, *(stage.from_step for stage in config.stages)})


def _source(
    config: DataConfig, name: str, shape: Shape, lanes: int, seed: int, draws: int
) -> SourcePlan:  # fmt: skip
    total = int((shape.counts * shape.sequences).sum())
    if not total:
        raise UserError(
            f"data.sequence_length: {config.sequence_length} is longer than every block of '{name}' (at most"
            f" {shape.longest} tokens): lower it to {max(shape.longest - 1, 1)}, write shards with longer blocks"
            f" (shard.block_tokens={1 << config.sequence_length.bit_length()} or more), or leave the source out of data.weights"
        )
    if config.curriculum and shape.difficulty is not None:
        ordered = Curriculum(
            name, seed, 1, shape.counts, shape.sequences, shape.difficulty, draws, config.curriculum
        )
        return SourcePlan(name, shape.tokens, int(shape.counts.sum()), shape.index_xxh3, ordered)
    size = chunk_size(total, int(shape.sequences.max()), lanes, config.window_blocks)
    sequences = Sequences(name, seed, size, shape.counts, shape.sequences)
    return SourcePlan(name, shape.tokens, int(shape.counts.sum()), shape.index_xxh3, sequences)


def chunk_size(total: int, block: int, lanes: int, window: int) -> int:
    """Sequences that a lane reads in a row: a block's, or fewer where a source is small for its number of lanes, so that an
    epoch has at least `WAVES` rounds of windows, and epochs overlap in a quarter of their length at most."""
    return max(1, min(block, total // (WAVES * window * lanes)))


def epochs(plan: Plan, steps: int) -> dict[str, float]:
    """Times that each source is read in `steps` steps, skipped data included."""
    pairs = zip(plan.sources, plan.drawn(steps), strict=True)
    return {source.name: int(n) / source.sequences.total for source, n in pairs}


def last_step(plan: Plan, source: int, times: float, steps: int) -> int:
    """The last step, at most `steps`, by whose end a source is read at most `times` times."""
    limit = times * plan.sources[source].sequences.total
    low, high = 0, steps
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if plan.drawn(middle)[source] <= limit else (low, middle - 1)
    return low


def caps_reached(plan: Plan, config: DataConfig) -> int | None:
    """The last step by whose end no source is read more often than `max_epochs` allows; None if there is no such step."""
    found = []
    for number, source in enumerate(plan.sources):
        times, high = cap(config, source.name), 1
        while high < NEVER and plan.drawn(high)[number] <= times * source.sequences.total:
            high *= 2
        if high < NEVER:
            found.append(last_step(plan, number, times, high))
    return min(found, default=None)


def cap(config: DataConfig, name: str) -> float:
    """Times that a source may be read."""
    caps = config.max_epochs
    return math.inf if caps is None else caps.get(name, math.inf) if isinstance(caps, dict) else caps


def _check_caps(plan: Plan, config: DataConfig, steps: int) -> None:
    names = [source.name for source in plan.sources]
    if isinstance(config.max_epochs, dict):
        for name in config.max_epochs:
            if name not in names:
                raise UserError(
                    f"data.max_epochs.{name}: not a source that is read (those are: {', '.join(names)})"
                )
    for number, (name, times) in enumerate(epochs(plan, steps).items()):
        most = cap(config, name)
        if times > most:
            raise UserError(
                f"data.max_epochs: '{name}' would be read {times:.2f} times in {steps} steps, allowed are {most:g}:"
                f" multiply its share by {math.floor(1000 * most / times) / 1000:g}, set schedule.steps to"
                f" {last_step(plan, number, most, steps)}, or raise max_epochs to {math.ceil(100 * times) / 100:g}"
            )


def shares(mixture: Mixture, tokens: dict[str, int], key: str) -> dict[str, float]:
    """Normalised share of each source that the mixture reads, in the order of `tokens` (source -> tokens there).

    `key` names the mixture in messages, as `data` or `data.stages[1]`. Raises `UserError` for a source that is not there.
    """
    for way in ("weights", "repeats"):
        for name in getattr(mixture, way) or {}:
            if name not in tokens:
                raise UserError(
                    f"{key}.{way}.{name}: the shard set has no such source with tokens to train on"
                    f"{nearest(name, tokens)} (it has: {', '.join(tokens)})"
                )
    if mixture.weights:
        given = {name: mixture.weights.get(name, 0.0) for name in tokens}
    elif mixture.repeats:
        given = {name: count * mixture.repeats.get(name, 0.0) for name, count in tokens.items()}
    else:
        power = 1 / (mixture.temperature or 1.0)
        given = {name: float(count) ** power for name, count in tokens.items()}
    total = sum(given.values())
    return {name: weight / total for name, weight in given.items() if weight > 0}


def exact_over(wanted: list[float], batch: int) -> int:
    """Sequences over which the shares `wanted` (which sum to 1) are exact: the fewest whole batches of which each source has
    a whole number of sequences; if there are none within bounds, those that come nearest, to `NEAR` at best."""
    shares = np.array(wanted)
    best, least = batch, np.inf
    for batches in range(1, max(MOST_LANES // batch, MOST_BATCHES) + 1):
        counts = np.array(largest_remainder(wanted, batch * batches))
        error = float(np.abs(counts / (batch * batches) / shares - 1).max())
        if error < 1e-9:
            return batch * batches
        if error < least and least > NEAR:
            best, least = batch * batches, error
    return best


def slots(wanted: dict[str, float], lanes: int, key: str) -> dict[str, int]:
    """Slots of each source among `lanes`, by largest remainder. Raises `UserError` for a share that gets none."""
    counts = largest_remainder(list(wanted.values()), lanes)
    for (name, share), count in zip(wanted.items(), counts, strict=True):
        if not count:
            enough = _enough(list(wanted.values()), lanes)
            raise UserError(
                f"{key}: '{name}' has a share of {share:.3g}, which is no sequence in {lanes}: set data.lanes to {enough}"
                f" (the mixture is then exact over {enough // lanes} batches), raise data.global_batch to as much, give"
                f" the source a larger share, or leave it out of {key}.weights"
            )
    return dict(zip(wanted, counts, strict=True))


def _enough(wanted: list[float], lanes: int) -> int:
    """The smallest multiple of `lanes`, by doubling, in which every share has a slot."""
    size = lanes
    while size < 2**50 and not all(largest_remainder(wanted, size)):
        size *= 2
    return size


def largest_remainder(weights: list[float], seats: int) -> list[int]:
    """`seats` apportioned to `weights` (which sum to 1): whole parts first, then the largest remainders."""
    exact = np.array(weights, dtype=np.float64) * seats
    counts = np.floor(exact + 1e-9).astype(np.int64)  # 0.3 x 10 is 3, despite binary rounding
    rest = np.argsort(counts - exact, kind="stable")[: max(seats - int(counts.sum()), 0)]
    counts[rest] += 1
    return [int(count) for count in counts]
