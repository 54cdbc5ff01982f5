"""A corpus with every hard case for shards, and the stages up to `shard` in one call."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.shard.read import read_index, read_set
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.split.stage import Split
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.shards import ShardIndex
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


_KEPT = (
    tempfile.TemporaryDirectory()
)  # split and tokenizer of each corpus, made once: neither looks at partitions


def _before(made: Recipe, docs: pa.Table) -> Path:
    """The folder with the stages before `shard`; not to be written to."""
    ids = b"".join(doc_id.as_py() for doc_id in docs["doc_id"].combine_chunks())
    folder = Path(_KEPT.name) / hash_json([checksum(ids), *docs["text"].to_pylist()])
    if not folder.exists():
        published = partitions(Folder(folder / "redact"), docs, 1)
        for stage in (Split, Tokenizer):
            stage(made).run(context(Folder(folder), made, stage.name, published))
    return folder


def prepared(
    tmp: Path, docs: pa.Table, parts: int = 3, shuffle: int | None = None, **params: Any
) -> tuple[Recipe, Context]:
    made = recipe(
        ["web", "long-texts", "rare", "lone"], split={"validation_share": 0.1}, tokenizer={"vocab_size": 350},
        shard={**PARAMS, **params},
    )  # fmt: skip
    published = partitions(Folder(tmp / "redact"), docs, parts, shuffle)
    before = _before(made, docs)
    for stage in (Split, Tokenizer):
        shutil.copytree(before / stage.name, tmp / stage.name, dirs_exist_ok=True)
    return made, context(Folder(tmp), made, "shard", published, Here(reverse=bool(shuffle)))


def build(tmp: Path, docs: pa.Table, *args: Any, **params: Any) -> Folder:
    made, here = prepared(tmp, docs, *args, **params)
    Shards(made).run(here)
    return Folder(tmp / "shards")


def indexes(shards: Folder) -> list[tuple[Folder, ShardIndex]]:
    files = [shards / entry.index for entry in read_set(shards).sets]
    return [(file.parent, read_index(file)) for file in files]


def rewritten(shards: Path, path: str, change: Any) -> None:
    """Change the JSON of a list, and the sums above it, so that only what it says can be wrong."""
    data = json.loads((shards / path).read_bytes())
    change(data)
    (shards / path).write_text(json.dumps(data))
    if path != "index.json":
        xxh3 = checksum((shards / path).read_bytes())
        rewritten(
            shards,
            "index.json",
            lambda top: next(e for e in [*top["sets"], *top["texts"]] if e["index"] == path).update(
                index_xxh3=xxh3
            ),
        )


def tables(
    eos_id: int, lead_bytes: npt.NDArray[np.int32], inside: npt.NDArray[np.bool_] | None = None
) -> Bpe:
    """A tokenizer with nothing but what cutting blocks asks for: every token is one byte."""
    size = len(lead_bytes)
    known: dict[str, Any] = {
        **dict.fromkeys(Bpe._fields), "eos_id": eos_id, "vocab_size": size, "lead_bytes": lead_bytes,
        "byte_lengths": np.ones(size, np.int32), "inside": np.zeros(size, bool) if inside is None else inside,
    }  # fmt: skip
    return cast(Any, Bpe)(**known)
