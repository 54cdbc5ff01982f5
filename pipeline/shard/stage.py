"""`shard`: every kept document in WebDataset tars, as tokens or as text, and the indexes that find them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.copies import made_copies
from corpusmill.pipeline.engine.planning.constants import TOKEN_BYTES, Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.pipeline.shard.plan import Plan
from corpusmill.schemas.augment import AugmentedSource
from corpusmill.schemas.manifest import Marker, PublishedFile, StageManifest, hash_json
from corpusmill.schemas.shards import INDEX, ShardParams

if TYPE_CHECKING:
    from corpusmill.pipeline.shard.write import Tokenizer

TOKENIZER = "tokenizer.json"
DONE, KEY = "scratch/done.json", "scratch/key.json"


class Done(Marker):
    """The last marker: everything is published."""

    counters: dict[str, int]


class Shards(GlobalStage):
    """Publishes `<source>/<split>/<source>-<split>-<number>.tar`, `.tar.idx` and `index.json` (text shards:
    `<source>/<split>-text/<source>-<split>-text-<number>.tar`), a copy of `tokenizer.json` so that the folder is
    complete in itself, and last `index.json` (`ShardSet`)."""

    name = "shard"
    version = "2"

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counters = manifest.counters
        shown = {
            "shards": ("tar", "tars"),
            "documents": ("document", "documents"),
            "tokens": ("token", "tokens"),
            "text_documents": ("document as text", "documents as text"),
        }
        return ", ".join(quantity(counters[name], *noun) for name, noun in shown.items() if name in counters)

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Documents to slices, one for each shard that a partition has documents of, then slices to shards."""
        from corpusmill.pipeline.shard.slices import expected

        return expected(self.params, TOKEN_BYTES * self.recipe.tokenizer.size, flow, known)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.bpe.load import load_bpe
        from corpusmill.pipeline.shard.write import Tokenizer

        folder, source = context.folder, context.previous["tokenizer"] / TOKENIZER
        data = source.read()
        copies, partitions = made_copies(context.previous.get("augment"))
        context = replace(context, partitions=[*context.partitions, *partitions])
        eos_token = json.loads((context.previous["tokenizer"] / "stats.json").read())["eos_token"]
        bpe = load_bpe(data, eos_token, str(source))
        plan = self._plan(context, copies, checksum(data), bpe.dtype.itemsize)
        tokenizer = Tokenizer(folder / TOKENIZER, eos_token, source)
        done = once(Done, folder / DONE, plan.key, folder, lambda: _make(context, plan, tokenizer, data))
        for part in (*plan.kinds, "parts", "shards"):
            (folder / "scratch" / part).delete()
        return done.files, done.counters

    def _plan(
        self, context: Context, copies: dict[str, AugmentedSource], tokenizer: str, item_size: int
    ) -> Plan:
        from corpusmill.pipeline.engine.document_hash import SUMMARY, VALIDATION, purpose_seed
        from corpusmill.pipeline.engine.takedown_log import read_log
        from corpusmill.pipeline.shard.plan import plan_sets

        params: ShardParams = self.params
        splits = json.loads((context.previous["split"] / SUMMARY).read())["sources"]
        stats = json.loads((context.previous["tokenizer"] / "stats.json").read())
        for name, copied in copies.items():
            splits[name] = {"train": copied.train.model_dump(), "validation": copied.validation.model_dump()}
            if (rate := stats["sources"].get(copied.of)) is not None:
                stats["sources"][name] = rate
        sets = plan_sets(splits, stats, params.shard_mb, item_size, params.format)
        validation = checksum((context.previous["split"] / VALIDATION).read())
        inputs = {part.name: part.xxh3 for part in context.partitions}
        key = hash_json(
            [
                self.version,
                self.key_params(),
                stats["eos_token"],
                tokenizer,
                validation,
                inputs,
                sets,
                [doc_id.hex() for doc_id in read_log(context.folder).taken],  # documents that are left out
            ]
        )
        return Plan(sets, purpose_seed(self.recipe.seed, "shard"), params.block_tokens, key)


def _make(context: Context, plan: Plan, tokenizer: Tokenizer, data: bytes) -> Done:
    """Publish everything; `data`: the bytes of the tokenizer's file."""
    from corpusmill.pipeline.bpe.encode import how
    from corpusmill.pipeline.engine.takedown_log import publish_log, taken_of
    from corpusmill.pipeline.shard.plan import counted, indexes_of, publish_indexes
    from corpusmill.pipeline.shard.write import Route, Write, gather

    folder = context.folder
    _clear(folder, plan.key)
    files = [publish_bytes(folder, TOKENIZER, data)]
    bpe = tokenizer.load()
    if plan.kinds != ("text",):
        context.log(f"shard: {how(bpe)}")

    sizes = [part.text_bytes for part in context.partitions]
    route = Route(plan, context.previous["split"], tokenizer, folder / "scratch")
    routed = context.scheduler.map(route, context.partitions, f"shard: {' and '.join(plan.kinds)}", sizes)
    buckets = gather([one for some in routed for one in some])
    write = Write(plan, tokenizer, folder)
    weights = [bucket.bytes for bucket in buckets]
    written = context.scheduler.map(write, buckets, "shard: write", weights)

    files += [file for one in written for file in one.files]
    shards: list[list[Any]] = [[] for _ in plan.sets]
    for bucket, one in zip(buckets, written, strict=True):
        shards[bucket.set].append(one.shard)
    indexes = indexes_of(plan, bpe, files[0], shards)
    counters = counted(indexes)
    taken = sum(taken_of(folder, context.partitions, context.scheduler))
    expected = sum(part.rows for part in context.partitions) - taken
    for name in ("documents", "text_documents"):
        if counters.get(name, expected) != expected:
            raise WorkError(f"shard: {expected} documents came in, {counters[name]} are in the shards")
    files += publish_log(folder)
    files += publish_indexes(folder, plan, bpe, files[0], indexes)
    return Done(key=plan.key, files=files, counters=counters)


def _clear(folder: Folder, key: str) -> None:
    """Take away what other parameters or documents left, the indexes first; keep what this work left."""
    marker = folder / KEY
    try:
        if marker.read() == key.encode():
            return
    except FileNotFoundError:
        pass
    names = [entry.path for entry in folder.list()]
    ours = [
        name
        for name in names
        if name.endswith((".tar", ".tar.idx")) or name.startswith(("scratch/", "takedown/"))
    ]
    folder.delete([name for name in names if name == INDEX or name.endswith(f"/{INDEX}")])
    folder.delete(ours)
    marker.write(key.encode())


STAGE = Shards
