"""The plan: what every step of a run is made of, decided before the run, and named by one sha256.

A batch has `global_batch` slots (lanes). Each lane belongs to one source: as many lanes as its share of the
tokens asks for, by largest remainder, laid out evenly, so that the mixture is exact in every batch (the
slot-lane order: MosaicML's canonical nodes taken to one lane per slot, with levanter's pure function).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import UserError, nearest
from schemas.training import DataConfig
from train.data.shards import Shards, Source

MANY_EPOCHS = 4  # beyond it, repeated tokens are worth clearly less than new ones (Muennighoff et al. 2023)


@dataclass(frozen=True, eq=False)
class SourcePlan:
    """One source's part: `sequences` holds the number of sequences in each of its blocks."""

    name: str
    weight: float  # share of the tokens asked for, normalised
    lanes: int  # slots of each batch
    tokens: int
    index_xxh3: str
    sequences: npt.NDArray[np.int64]

    @cached_property
    def total(self) -> int:
        return int(self.sequences.sum())


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that `order` needs. Equal plans (by `sha256`) give the same batches on any machine."""

    seed: int
    sequence_length: int
    global_batch: int
    window_blocks: int
    sources: tuple[SourcePlan, ...]

    @cached_property
    def slots(self) -> npt.NDArray[np.int64]:
        """Source of each slot. Each contiguous part of the batch has the mixture, as nearly as it can."""
        lanes = [source.lanes for source in self.sources]
        owner = np.repeat(np.arange(len(lanes)), lanes)
        place = np.concatenate([(np.arange(n) + 0.5) / n for n in lanes])
        return owner[np.lexsort((owner, place))].astype(np.int64)

    @cached_property
    def ranks(self) -> npt.NDArray[np.int64]:
        """Number of each slot among the slots of its source."""
        result = np.empty(self.global_batch, dtype=np.int64)
        for source, plan in enumerate(self.sources):
            result[self.slots == source] = np.arange(plan.lanes)
        return result

    def as_json(self) -> dict[str, Any]:
        """What the hash is taken of. The data are in it by the checksums of their indexes, their place is not."""
        return {
            "v": 1,
            "seed": self.seed,
            "sequence_length": self.sequence_length,
            "global_batch": self.global_batch,
            "window_blocks": self.window_blocks,
            "sources": {
                s.name: {
                    "weight": s.weight, "lanes": s.lanes, "tokens": s.tokens, "sequences": s.total,
                    "blocks": len(s.sequences), "index_xxh3": s.index_xxh3,
                }
                for s in self.sources
            },
        }  # fmt: skip

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def epochs(self, steps: int) -> dict[str, float]:
        """Times that each source is read through in `steps` steps."""
        return {source.name: steps * source.lanes / source.total for source in self.sources}


def make_plan(config: DataConfig, shards: Shards, seed: int) -> Plan:
    """The plan of a config over an opened shard set.

    Raises `UserError`, naming the number to change, for a source that is not there, one too small for a
    single sequence, and a share too small for a lane of its own.
    """
    sources = {name: source for name, source in shards.train.items() if source.index.ntokens}
    weights = _weights(config, sources)
    lanes = largest_remainder(list(weights.values()), config.global_batch)
    planned = []
    for (name, weight), count in zip(weights.items(), lanes, strict=True):
        source, sequences = sources[name], sources[name].sequences(config.sequence_length)
        if not sequences.sum():
            longest = max(block.ntokens for _, block in source.blocks)
            raise UserError(
                f"data.sequence_length: {config.sequence_length} is longer than every block of '{name}' (at most"
                f" {longest} tokens): lower it to {max(longest - 1, 1)}, or leave the source out of data.weights"
            )
        if not count:
            raise UserError(
                f"data.weights.{name}: a share of {weight:.3g} gives it no sequence in a batch of"
                f" {config.global_batch}: raise global_batch to {_enough(weight, weights)} or more, give it a"
                f" larger share, or leave it out of data.weights"
            )
        planned.append(SourcePlan(name, weight, count, source.index.ntokens, source.xxh3, sequences))
    return Plan(seed, config.sequence_length, config.global_batch, config.window_blocks, tuple(planned))


def _weights(config: DataConfig, sources: dict[str, Source]) -> dict[str, float]:
    """Normalised share per source that is read, in the set's order."""
    if not sources:
        raise UserError(f"data.shards: {config.shards}: no source has a train split with tokens")
    for name in config.weights:
        if name not in sources:
            raise UserError(
                f"data.weights.{name}: the shard set has no such source{nearest(name, sources)}"
                f" (it has: {', '.join(sources)})"
            )
    given = config.weights or {name: float(source.index.ntokens) for name, source in sources.items()}
    total = sum(given.values())
    return {name: given[name] / total for name in sources if given.get(name, 0) > 0}


def _enough(weight: float, weights: dict[str, float]) -> int:
    """The smallest batch, up to a power of two, in which every share has a lane."""
    size = 1
    while size < 2**40 and not all(largest_remainder(list(weights.values()), size)):
        size *= 2
    return size


def largest_remainder(weights: list[float], seats: int) -> list[int]:
    """`seats` dealt in proportion to `weights` (which sum to 1): whole parts first, then the largest rests."""
    exact = np.array(weights, dtype=np.float64) * seats
    counts = np.floor(exact + 1e-9).astype(np.int64)  # 0.3 x 10 is 3, whatever binary fractions make of it
    rest = np.argsort(counts - exact, kind="stable")[: max(seats - int(counts.sum()), 0)]
    counts[rest] += 1
    return [int(count) for count in counts]


def difference(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs between two plans' JSON, as `key: old -> new`."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += difference(old, new, f"{prefix}{key}.")
        elif old != new:
            lines.append(f"{prefix}{key}: {_short(old)} -> {_short(new)}")
    return lines


def _short(value: Any) -> str:
    return "absent" if value is None else "there" if isinstance(value, dict) else str(value)
