"""The indexes of what was written: one for each (source, split) and kind, then the one of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from corpusmill.common.blocks import vocabulary
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.shard.plan import Plan
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import (
    INDEX,
    Index,
    SetEntry,
    Shard,
    ShardIndex,
    ShardSet,
    ShardSetEntry,
    TextIndex,
    TextShard,
    set_entry,
)

if TYPE_CHECKING:
    from corpusmill.pipeline.bpe.load import Bpe


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
