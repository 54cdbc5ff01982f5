"""`shard`: tokens of every kept document in WebDataset tars, and the indexes that find them."""

from __future__ import annotations

import json
from collections import defaultdict

from pydantic import ValidationError

from pipeline.publish import publish_bytes
from pipeline.shard.plan import Plan
from pipeline.stage import Context, GlobalStage
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import PublishedFile, Strict, hash_json
from schemas.shard import ShardParams
from schemas.shards import INDEX, ShardIndex, ShardSet, ShardSetEntry
from schemas.storage import Folder

TOKENIZER = "tokenizer.json"
DONE, KEY = "scratch/done.json", "scratch/key.json"


class Done(Strict):
    """The last marker: everything is published."""

    key: str
    files: list[PublishedFile]
    counters: dict[str, int]


class Shards(GlobalStage):
    """Publishes `<source>/<split>/<source>-<split>-<number>.tar`, `.tar.idx` and `index.json`, a copy of
    `tokenizer.json` so that the folder is complete in itself, and last `index.json` (`ShardSet`)."""

    name = "shard"
    version = "1"

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from pipeline.bpe.load import load_bpe
        from pipeline.shard.route import Route, Routed
        from pipeline.shard.write import Bucket, Write

        folder, split = context.folder, context.previous["split"]
        source = context.previous["tokenizer"] / TOKENIZER
        data = source.read()
        eos_token = self.recipe.tokenizer.eos_token
        bpe = load_bpe(data, eos_token, str(source))
        plan = self._plan(context, checksum(data), 2 if bpe.vocab_size <= 2**16 else 4)
        done = _done(folder, plan.key)
        if done is not None:
            return done.files, done.counters
        _clear(folder, plan.key)
        files = [publish_bytes(folder, TOKENIZER, data)]
        copy = folder / TOKENIZER

        sizes = [part.text_bytes for part in context.partitions]
        route = Route(plan, split, copy, eos_token, folder / "scratch")
        routed: list[Routed] = context.scheduler.map(route, context.partitions, "shard: tokens", sizes)
        gathered = defaultdict(list)
        for one in routed:
            for segment in one.segments:
                gathered[segment.set, segment.bucket].append((one.file.path, segment))
        buckets: list[Bucket] = []
        for position, bucket in sorted(
            gathered
        ):  # a range of hashes that no document fell into makes no shard
            number = buckets[-1].number + 1 if buckets and buckets[-1].set == position else 0
            buckets.append(Bucket(position, number, tuple(gathered[position, bucket])))
        write = Write(plan, copy, eos_token, folder)
        weights = [sum(segment.size for _, segment in bucket.segments) for bucket in buckets]
        written = context.scheduler.map(write, buckets, "shard: write", weights)

        entries: list[ShardSetEntry] = []
        counters = {"shards": 0, "blocks": 0, "tokens": 0, "documents": 0}
        for position, target in enumerate(plan.sets):
            mine = [one for bucket, one in zip(buckets, written, strict=True) if bucket.set == position]
            shards = [one.shard for one in mine]
            index = ShardIndex(
                name=target.name,
                source=target.source,
                split=target.split,
                dtype="uint16" if bpe.vocab_size <= 2**16 else "uint32",
                vocab_size=bpe.vocab_size,
                eos_id=bpe.eos_id,
                tokenizer=f"../../{TOKENIZER}",
                tokenizer_xxh3=files[0].xxh3,
                block_tokens=plan.block_tokens,
                ntokens=sum(shard.ntokens for shard in shards),
                ndocs=sum(shard.ndocs for shard in shards),
                text_bytes=sum(shard.text_bytes for shard in shards),
                shardlist=shards,
            )
            path = f"{target.folder}/{INDEX}"
            index_file = publish_bytes(folder, path, _json(index), rows=index.ndocs)
            files += [*(file for one in mine for file in one.files), index_file]
            entries.append(
                ShardSetEntry(
                    source=target.source, split=target.split, index=path, index_xxh3=index_file.xxh3,
                    ntokens=index.ntokens, ndocs=index.ndocs, text_bytes=index.text_bytes,
                )
            )  # fmt: skip
            counters["shards"] += len(shards)
            counters["blocks"] += sum(shard.nsamples for shard in shards)
            counters["tokens"] += index.ntokens
            counters["documents"] += index.ndocs
            counters[f"source/{target.source}/{target.split}_tokens"] = index.ntokens
            counters[f"source/{target.source}/{target.split}_documents"] = index.ndocs
        expected = sum(part.rows for part in context.partitions)
        if counters["documents"] != expected:
            raise WorkError(f"shard: {expected} documents came in, {counters['documents']} are in the shards")
        top = ShardSet(
            tokenizer=TOKENIZER, tokenizer_xxh3=files[0].xxh3, vocab_size=bpe.vocab_size, eos_id=bpe.eos_id,
            dtype="uint16" if bpe.vocab_size <= 2**16 else "uint32", sets=entries,
        )  # fmt: skip
        files.append(publish_bytes(folder, INDEX, _json(top)))
        publish_bytes(folder, DONE, _json(Done(key=plan.key, files=files, counters=counters)))
        for part in ("tokens", "parts", "shards"):
            (folder / "scratch" / part).delete()
        return files, counters

    def _plan(self, context: Context, tokenizer: str, item_size: int) -> Plan:
        from pipeline.shard.plan import plan_sets
        from pipeline.splits import SUMMARY, VALIDATION, purpose_seed

        params: ShardParams = self.params
        splits = json.loads((context.previous["split"] / SUMMARY).read())["sources"]
        stats = json.loads((context.previous["tokenizer"] / "stats.json").read())
        sets = plan_sets(splits, stats, params.shard_mb, item_size)
        validation = checksum((context.previous["split"] / VALIDATION).read())
        inputs = {part.name: part.xxh3 for part in context.partitions}
        key = hash_json(
            [
                self.version,
                self.key_params(),
                self.recipe.tokenizer.eos_token,
                tokenizer,
                validation,
                inputs,
                sets,
            ]
        )
        return Plan(sets, purpose_seed(self.recipe.seed, "shard"), params.block_tokens, key)


def _done(folder: Folder, key: str) -> Done | None:
    """The last marker of the same work, if every file is still there."""
    try:
        done = Done.model_validate_json((folder / DONE).read())
        whole = all((folder / file.path).entry().size == file.bytes for file in done.files)
        return done if done.key == key and whole else None
    except (FileNotFoundError, ValidationError):
        return None


def _clear(folder: Folder, key: str) -> None:
    """Take away what other parameters or documents left, the indexes first; keep what this work left."""
    marker = folder / KEY
    try:
        if marker.read() == key.encode():
            return
    except FileNotFoundError:
        pass
    names = [entry.path for entry in folder.list()]
    ours = [name for name in names if name.endswith((".tar", ".tar.idx")) or name.startswith("scratch/")]
    folder.delete([name for name in names if name == INDEX or name.endswith(f"/{INDEX}")])
    folder.delete(ours)
    marker.write(key.encode())


def _json(model: Strict) -> bytes:
    return (model.model_dump_json(indent=1) + "\n").encode()


STAGE = Shards
