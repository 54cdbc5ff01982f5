"""A corpus with every hard case for shards, and the stages up to `shard` in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.shard.read import read_index, read_set
from pipeline.shard.stage import Shards
from pipeline.split.stage import Split
from pipeline.stage import Context
from pipeline.tokenizer.stage import Tokenizer
from schemas.recipe import Recipe
from schemas.shards import ShardIndex
from schemas.storage import Folder
from tests.pipeline.corpus import Here, context, documents, partitions, recipe, words

PARAMS = {"block_tokens": 256, "shard_mb": 0.006}


def corpus() -> pa.Table:
    web = documents(
        [words(30 + i % 90, i) for i in range(240)], "web", {i: f"c{i % 7}" for i in range(0, 240, 9)}
    )
    long = documents(
        [words(900, 1000 + i, "日本語 é👩🏽‍🚀 abc") for i in range(5)] + ["", "x", "<|endoftext|>"],
        "long-texts",
    )
    # Characters that no merge knows are three tokens each, so that blocks end inside of some.
    rare = documents(
        ["".join(chr(0x4E00 + (i * 7919 + j * 104729) % 20000) for j in range(400)) for i in range(4)], "rare"
    )
    return pa.concat_tables([web, long, rare, documents(["one"], "lone")])


def prepared(
    tmp: Path, docs: pa.Table, parts: int = 3, shuffle: int | None = None, **params: Any
) -> tuple[Recipe, Context]:
    made = recipe(
        ["web", "long-texts", "rare", "lone"], split={"validation_share": 0.1}, tokenizer={"vocab_size": 350},
        shard={**PARAMS, **params},
    )  # fmt: skip
    published = partitions(Folder(tmp / "redact"), docs, parts, shuffle)
    for stage in (Split, Tokenizer):
        stage(made).run(context(Folder(tmp), made, stage.name, published))
    return made, context(Folder(tmp), made, "shard", published, Here(reverse=bool(shuffle)))


def build(tmp: Path, docs: pa.Table, *args: Any, **params: Any) -> Folder:
    made, here = prepared(tmp, docs, *args, **params)
    Shards(made).run(here)
    return Folder(tmp / "shards")


def indexes(shards: Folder) -> list[tuple[Folder, ShardIndex]]:
    files = [shards / entry.index for entry in read_set(shards).sets]
    return [(file.parent, read_index(file)) for file in files]
