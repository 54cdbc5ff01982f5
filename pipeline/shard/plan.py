"""How many shards each (source, split) has, from totals that do not depend on how partitions are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from schemas.errors import UserError

MIB = 1 << 20
MAX_NAME = 100  # bytes of a name in a USTAR header
DEFAULT_BYTES_PER_TOKEN = 4.0


class SetPlan(NamedTuple):
    """One (source, split): documents whose hash lies in the k-th of `buckets` equal ranges make one tar."""

    source: str
    split: Literal["train", "validation"]
    buckets: int

    @property
    def name(self) -> str:
        return f"{self.source}-{self.split}"

    @property
    def folder(self) -> str:
        return f"{self.source}/{self.split}"


@dataclass(frozen=True)
class Plan:
    """What every task of the stage knows. `key` is the hash of all that the output depends on."""

    sets: tuple[SetPlan, ...]
    seed: int  # of the hash that orders the documents
    block_tokens: int
    key: str


def plan_sets(
    splits: dict[str, Any], stats: dict[str, Any], shard_mb: float, item_size: int
) -> tuple[SetPlan, ...]:
    """The sets, sorted, of `split.json` and the tokenizer's `stats.json`. Empty ones are left out.

    Raises `UserError` if a source's name is too long for the names of tar members.
    """
    sets = []
    for source in sorted(splits):
        longest = f"{source}-000000-000000.tokens.npy"
        if len(longest) > MAX_NAME:
            raise UserError(
                f"sources: '{source}': too long for names in a tar; at most"
                f" {MAX_NAME - len(longest) + len(source)} characters are allowed"
            )
        per_token = stats["sources"].get(source, {}).get("bytes_per_token") or DEFAULT_BYTES_PER_TOKEN
        for split in ("train", "validation"):
            numbers = splits[source][split]
            if numbers["docs"]:
                tokens = numbers["bytes"] / per_token + numbers["docs"]
                buckets = max(1, math.ceil(tokens * item_size / (shard_mb * MIB)))
                sets.append(SetPlan(source, split, buckets))
    return tuple(sets)
