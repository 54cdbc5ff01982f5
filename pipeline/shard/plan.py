"""How many shards each (source, split) has, from totals that do not depend on how partitions are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.pipeline.shard.takedown_log import STAGING
from corpusmill.schemas.shards import ShardFormat

MIB = 1 << 20
MAX_NAME = 100  # bytes of a name in a USTAR header
DEFAULT_BYTES_PER_TOKEN = 4.0
AROUND_TEXT = 2048  # bytes of two headers, their padding and the .json of a document in a text shard

Kind = Literal["tokens", "text"]


class SetPlan(NamedTuple):
    """One (source, split): documents whose hash lies in the k-th of `buckets` equal ranges make one tar."""

    source: str
    split: Literal["train", "validation"]
    buckets: int
    kind: Kind = "tokens"

    @property
    def name(self) -> str:
        return f"{self.source}-{self.split}" + ("-text" if self.kind == "text" else "")

    @property
    def folder(self) -> str:
        return f"{self.source}/{self.split}" + ("-text" if self.kind == "text" else "")


@dataclass(frozen=True)
class Plan:
    """What every task of the stage knows. `key` is the hash of all that the output depends on."""

    sets: tuple[SetPlan, ...]
    seed: int  # of the hash that orders the documents
    block_tokens: int
    key: str

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What is to be written, in a fixed order."""
        return tuple(sorted({one.kind for one in self.sets}, reverse=True))


def plan_sets(
    splits: dict[str, Any],
    stats: dict[str, Any],
    shard_mb: float,
    item_size: int,
    wanted: ShardFormat = ShardFormat.tokens,
) -> tuple[SetPlan, ...]:
    """The sets, sorted, of `split.json` and the tokenizer's `stats.json`. Empty ones are left out.

    Raises `UserError` if a source's name is too long for the names of tar members, or that of a folder in use.
    """
    sets = []
    for source in sorted(splits):
        longest = f"{source}-validation-000000-000000.tokens.npy"
        if len(longest) > MAX_NAME:
            raise UserError(
                f"sources: '{source}': too long for names in a tar; at most"
                f" {MAX_NAME - len(longest) + len(source)} characters are allowed"
            )
        if source == STAGING:
            raise UserError(
                f"sources: '{source}': that folder of the shards is for takedowns; give it another name"
            )
        per_token = stats["sources"].get(source, {}).get("bytes_per_token") or DEFAULT_BYTES_PER_TOKEN
        for split in ("train", "validation"):
            numbers = splits[source][split]
            if not numbers["docs"]:
                continue
            sizes: dict[Kind, float] = {}
            if wanted != ShardFormat.text:
                sizes["tokens"] = (numbers["bytes"] / per_token + numbers["docs"]) * item_size
            if wanted != ShardFormat.tokens:
                sizes["text"] = numbers["bytes"] + numbers["docs"] * AROUND_TEXT
            for kind, size in sizes.items():
                sets.append(SetPlan(source, split, max(1, math.ceil(size / (shard_mb * MIB))), kind))
    return tuple(sets)
