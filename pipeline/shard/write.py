"""Phase 2, per shard: its documents from all partitions, in the order of their hash, as one tar."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from pipeline.bpe.load import Bpe, load_bpe
from pipeline.publish import publish_bytes
from pipeline.shard.blocks import Cut, cut, stream
from pipeline.shard.plan import Plan
from pipeline.shard.route import Segment, read_segment
from pipeline.shard.tar import TarWriter, npy
from schemas.ids import checksum
from schemas.manifest import PublishedFile, Strict, hash_json
from schemas.shards import Block, Shard
from schemas.storage import Folder


@dataclass(frozen=True)
class Bucket:
    """A shard to write: its number in its set, and its segments as (file under `scratch`, segment)."""

    set: int
    number: int
    segments: tuple[tuple[str, Segment], ...]


class Written(Strict):
    """A shard's marker: what the index says of it, and its files under the stage's folder."""

    key: str
    shard: Shard
    files: list[PublishedFile]


@dataclass(frozen=True)
class Write:
    """Write a shard and its `.idx`, then its marker; a valid marker is used again. The bytes depend on the
    documents, the tokenizer, the seed and the size of a block alone."""

    plan: Plan
    tokenizer: Folder
    eos_token: str
    folder: Folder

    def __call__(self, bucket: Bucket) -> Written:
        target = self.plan.sets[bucket.set]
        key = hash_json(
            [self.plan.key, target.name, bucket.number, [segment.xxh3 for _, segment in bucket.segments]]
        )
        marker = self.folder / f"scratch/shards/{target.name}-{bucket.number:06d}.json"
        known = self._known(marker, key)
        if known is not None:
            return known
        bpe = load_bpe(self.tokenizer.read(), self.eos_token, str(self.tokenizer))
        docs = pa.concat_tables(
            [read_segment(self.folder / "scratch", path, part) for path, part in bucket.segments]
        )
        # The hash is a seeded permutation of the documents; equal hashes fall back to the id.
        order = pc.sort_indices(docs, [("hash", "ascending"), ("doc_id", "ascending")])
        docs = docs.take(order).combine_chunks()
        name = f"{target.name}-{bucket.number:06d}.tar"
        data, index, shard = build(
            docs, bpe, f"{target.source}-{bucket.number:06d}", self.plan.block_tokens, name
        )
        files = [
            publish_bytes(self.folder, f"{target.folder}/{name}", data, rows=shard.ndocs),
            publish_bytes(self.folder, f"{target.folder}/{name}.idx", index),
        ]
        written = Written(key=key, shard=shard, files=files)
        marker.write(written.model_dump_json().encode())
        return written

    def _known(self, marker: Folder, key: str) -> Written | None:
        try:
            written = Written.model_validate_json(marker.read())
            whole = all((self.folder / file.path).entry().size == file.bytes for file in written.files)
            return written if written.key == key and whole else None
        except (FileNotFoundError, ValidationError):
            return None


def build(docs: pa.Table, bpe: Bpe, prefix: str, block_tokens: int, url: str) -> tuple[bytes, bytes, Shard]:
    """(tar, `.idx`, entry of the index) of documents (doc_id, text_bytes, tokens) in their order. Keys are
    `<prefix>-<block>`."""
    lists = docs["tokens"].combine_chunks()
    values = lists.flatten().to_numpy()
    lengths = np.diff(lists.offsets.to_numpy())
    tokens, offsets = stream(values, lengths, bpe)
    ids = [doc_id.hex() for doc_id in docs["doc_id"].to_pylist()]
    tar = TarWriter()
    blocks = [
        _add(tar, part, ids, f"{prefix}-{number:06d}")
        for number, part in enumerate(cut(tokens, offsets, block_tokens, bpe))
    ]
    data, index = tar.finish()
    shard = Shard(
        url=url,
        nsamples=len(blocks),
        filesize=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        ntokens=len(tokens),
        ndocs=len(docs),
        text_bytes=int(docs["text_bytes"].to_numpy().sum()),
        blocks=blocks,
    )
    return data, index, shard


def _add(tar: TarWriter, part: Cut, ids: list[str], key: str) -> Block:
    tokens, header = npy(part.tokens)
    starts, _ = npy(part.starts)
    documents = {
        "doc_ids": [ids[row] for row in part.rows.tolist()],
        "token_starts": part.starts.tolist(),
        "char_starts": part.char_starts.tolist(),
        "char_ends": part.char_ends.tolist(),
    }
    described = json.dumps(documents, separators=(",", ":")).encode()
    tar.begin_sample()
    first = tar.add(f"{key}.tokens.npy", tokens)
    second = tar.add(f"{key}.docs.npy", starts)
    third = tar.add(f"{key}.json", described)
    return Block(
        key=key, offset=first.offset, size=first.size, header=header, xxh3=checksum(tokens),
        docs_offset=second.offset, docs_size=second.size, docs_xxh3=checksum(starts),
        json_offset=third.offset, json_size=third.size, json_xxh3=checksum(described),
        ntokens=len(part.tokens), ndocs=len(part.rows),
    )  # fmt: skip
