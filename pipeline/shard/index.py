"""The indexes of what was written: one for each (source, split) and kind, then the one of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.publish import publish_bytes
from pipeline.shard.plan import Plan
from schemas.manifest import PublishedFile, Strict
from schemas.shards import (
    INDEX,
    Shard,
    ShardIndex,
    ShardSet,
    ShardSetEntry,
    TextIndex,
    TextSetEntry,
    TextShard,
)
from schemas.storage import Folder

if TYPE_CHECKING:
    from pipeline.bpe.load import Bpe


def publish_indexes(
    folder: Folder,
    plan: Plan,
    bpe: Bpe,
    tokenizer: PublishedFile,
    shards: Sequence[Sequence[Shard | TextShard]],
) -> list[PublishedFile]:
    """Publish `index.json` of every set (`shards[i]` are those of `plan.sets[i]`), and last the folder's own."""
    files: list[PublishedFile] = []
    sets: list[ShardSetEntry] = []
    texts: list[TextSetEntry] = []
    dtype = "uint16" if bpe.vocab_size <= 2**16 else "uint32"
    for target, mine in zip(plan.sets, shards, strict=True):
        totals = {name: sum(getattr(shard, name) for shard in mine) for name in ("ndocs", "text_bytes")}
        shared = {"source": target.source, "split": target.split, **totals}
        path = f"{target.folder}/{INDEX}"
        if target.kind == "text":
            index = TextIndex.model_validate({"name": target.name, **shared, "shardlist": mine})
            files.append(publish_bytes(folder, path, written(index), rows=index.ndocs))
            texts.append(TextSetEntry.model_validate({**shared, "index": path, "index_xxh3": files[-1].xxh3}))
        else:
            token_index = ShardIndex.model_validate(
                {
                    "name": target.name, **shared, "dtype": dtype, "vocab_size": bpe.vocab_size, "eos_id": bpe.eos_id,
                    "tokenizer": f"../../{tokenizer.path}", "tokenizer_xxh3": tokenizer.xxh3,
                    "block_tokens": plan.block_tokens, "ntokens": _tokens(mine), "shardlist": mine,
                }
            )  # fmt: skip
            files.append(publish_bytes(folder, path, written(token_index), rows=token_index.ndocs))
            sets.append(
                ShardSetEntry.model_validate(
                    {**shared, "index": path, "index_xxh3": files[-1].xxh3, "ntokens": token_index.ntokens}
                )
            )
    top = ShardSet.model_validate(
        {
            "tokenizer": tokenizer.path, "tokenizer_xxh3": tokenizer.xxh3, "vocab_size": bpe.vocab_size,
            "eos_id": bpe.eos_id, "dtype": dtype, "sets": sets, "texts": texts,
        }
    )  # fmt: skip
    files.append(publish_bytes(folder, INDEX, written(top)))
    return files


def _tokens(shards: Sequence[Shard | TextShard]) -> int:
    return sum(shard.ntokens for shard in shards if isinstance(shard, Shard))


def counted(plan: Plan, shards: Sequence[Sequence[Shard | TextShard]]) -> dict[str, int]:
    """The stage's counters."""
    counters: dict[str, int] = {}

    def add(name: str, number: int) -> None:
        counters[name] = counters.get(name, 0) + number

    if plan.kinds != ("text",):
        counters = dict.fromkeys(("shards", "blocks", "tokens", "documents"), 0)
    for target, mine in zip(plan.sets, shards, strict=True):
        ndocs = sum(shard.ndocs for shard in mine)
        if target.kind == "text":
            add("text_shards", len(mine))
            add("text_documents", ndocs)
            continue
        add("shards", len(mine))
        add("blocks", sum(shard.nsamples for shard in mine))
        add("tokens", _tokens(mine))
        add("documents", ndocs)
        add(f"source/{target.source}/{target.split}_tokens", _tokens(mine))
        add(f"source/{target.source}/{target.split}_documents", ndocs)
    return counters


def written(model: Strict) -> bytes:
    """A model as the files hold it."""
    return (model.model_dump_json(indent=1) + "\n").encode()
