"""The sets of a shard folder: how many shards each (source, split) has, planned from totals that do not depend on how partitions
are cut; and in the end their indexes, one for each (source, split) and kind, then the one of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from corpusmill.common.blocks import vocabulary
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.takedown_log import STAGING
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import (
    INDEX,
    Index,
    SetEntry,
    Shard,
    ShardFormat,
    ShardIndex,
    ShardSet,
    ShardSetEntry,
    TextIndex,
    TextShard,
    set_entry,
)

if TYPE_CHECKING:
    from corpusmill.pipeline.bpe.load import Bpe

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


def indexes_of(
    plan: Plan, bpe: Bpe, tokenizer: PublishedFile, shards: Sequence[Sequence[Shard | TextShard]]
) -> list[Index]:
    """The index of each set: `shards[i]` are those of `plan.sets[i]`."""
    of_tokens = {
        **vocabulary(bpe.vocab_size, bpe.eos_id), "tokenizer": f"../../{tokenizer.path}", "tokenizer_xxh3": tokenizer.xxh3,
        "block_tokens": plan.block_tokens,
    }  # fmt: skip
    found: list[Index] = []
    for target, mine in zip(plan.sets, shards, strict=True):
        model: type[Index] = TextIndex if target.kind == "text" else ShardIndex
        fields = {"name": target.name, "source": target.source, "split": target.split, "shardlist": mine}
        fields |= model.totals(mine) | ({} if model is TextIndex else of_tokens)
        found.append(model.model_validate(fields))
    return found


def publish_index(folder: Folder, path: str, index: Index) -> tuple[PublishedFile, SetEntry]:
    """Publish the index of a (source, split); its line in the set."""
    file = publish_bytes(folder, path, index.to_json(), rows=index.ndocs)
    return file, set_entry(index, path, file.xxh3)


def publish_indexes(
    folder: Folder, plan: Plan, bpe: Bpe, tokenizer: PublishedFile, indexes: Sequence[Index]
) -> list[PublishedFile]:
    """Publish `index.json` of every set (`indexes[i]` is that of `plan.sets[i]`), and last the folder's own."""
    made = [
        publish_index(folder, f"{target.folder}/{INDEX}", index)
        for target, index in zip(plan.sets, indexes, strict=True)
    ]
    about = {
        "tokenizer": tokenizer.path, "tokenizer_xxh3": tokenizer.xxh3, **vocabulary(bpe.vocab_size, bpe.eos_id)
    }  # fmt: skip
    top = ShardSet.model_validate(about | by_kind(entry for _, entry in made))
    return [*(file for file, _ in made), publish_bytes(folder, INDEX, top.to_json())]


def by_kind(entries: Iterable[SetEntry]) -> dict[str, list[SetEntry]]:
    """The lines of a set, as `ShardSet` has them."""
    sets: dict[str, list[SetEntry]] = {"sets": [], "texts": []}
    for entry in entries:
        sets["sets" if isinstance(entry, ShardSetEntry) else "texts"].append(entry)
    return sets


def counted(indexes: Sequence[Index]) -> dict[str, int]:
    """The stage's counters."""
    counters: dict[str, int] = {}

    def add(name: str, number: int) -> None:
        counters[name] = counters.get(name, 0) + number

    if not indexes or any(isinstance(index, ShardIndex) for index in indexes):
        counters = dict.fromkeys(("shards", "blocks", "tokens", "documents"), 0)
    for index in indexes:
        if isinstance(index, TextIndex):
            add("text_shards", len(index.shardlist))
            add("text_documents", index.ndocs)
            continue
        add("shards", len(index.shardlist))
        add("blocks", sum(shard.nsamples for shard in index.shardlist))
        add("tokens", index.ntokens)
        add("documents", index.ndocs)
        add(f"source/{index.source}/{index.split}_tokens", index.ntokens)
        add(f"source/{index.source}/{index.split}_documents", index.ndocs)
    return counters
