"""One tar without some of its documents: the others keep their order and their tokens, blocks are cut again.

The bytes are those that the stage would have written had the documents never been there.
"""

from __future__ import annotations

import hashlib
import itertools
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.checkpoints import known
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES
from corpusmill.common.storage import Folder
from corpusmill.common.tar import Sink, TarWriter
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.inspect.locate import SIZE, document_in, text_edges
from corpusmill.pipeline.shard.read import BlockData, above, read_block, read_tokenizer
from corpusmill.pipeline.shard.segments import Window
from corpusmill.pipeline.shard.write import Made, write_blocks
from corpusmill.schemas.manifest import Marker, PublishedFile
from corpusmill.schemas.shards import Shard, ShardIndex, TextShard

PIECE = 4 << 20  # bytes read at once where they are only hashed


class Rewritten(Marker):
    """A tar's marker. `shard` None: nothing is left of it. Paths are relative to the staged set."""

    shard: Shard | TextShard | None
    gone: list[str]  # documents, hex


@dataclass(frozen=True)
class Rewrite:
    """A tar to write again. `index`: of its (source, split), without its shards; None: a text shard."""

    key: str  # of the request
    place: Folder  # where the old tar lies
    index: ShardIndex | None
    shard: Shard | TextShard
    gone: frozenset[bytes]
    staged: Folder  # where the new set is put together
    path: str  # of the tar in the set


def rewrite(task: Rewrite) -> Rewritten:
    """Write the tar and its `.idx` below `staged`, then its marker; a marker of the same request is used again.

    Memory: a few blocks and the longest document, or the longest text. Raises `WorkError` naming the tar if its bytes
    are not those of its index.
    """
    marker = task.staged.parent / f"parts/{task.path}.json"
    found = known(Rewritten, marker, task.key, task.staged)
    if found is not None:
        return found
    with (task.staged / task.path).create() as stream:
        made, gone = _tokens(task, stream) if isinstance(task.shard, Shard) else _texts(task, stream)
    shard, files = made.shard, []
    if shard.nsamples:
        tar = PublishedFile(
            path=task.path, rows=shard.ndocs, bytes=shard.filesize, xxh3=made.xxh3, sha256=shard.sha256
        )
        files = [tar, publish_bytes(task.staged, f"{task.path}.idx", made.sidecar)]
    else:
        task.staged.delete([task.path])
    done = Rewritten(
        key=task.key,
        shard=shard if files else None,
        files=files,
        gone=sorted(doc_id.hex() for doc_id in gone),
    )
    marker.write(done.model_dump_json().encode())
    return done


def _tokens(task: Rewrite, sink: Sink) -> tuple[Made, set[bytes]]:
    shard, index, place = task.shard, task.index, task.place
    assert isinstance(shard, Shard) and index is not None
    if index.row_tokens is not None:
        raise WorkError(
            f"{place / shard.url}: rows of conversations are not written again: take the lines out of their files, and train on those"
        )
    bpe = read_tokenizer(above(place, index.tokenizer), index.eos_id)
    left = _Left(task.gone, bpe)
    blocks = place.at_once(lambda block: read_block(place, shard, block), shard.blocks)
    made = write_blocks(left.windows(blocks), bpe, shard.url.removesuffix(".tar"), index.block_tokens, sink)
    return made, left.went


@dataclass
class _Left:
    """The documents that stay, of blocks in their order; `went` gets the others."""

    gone: frozenset[bytes]
    bpe: Bpe
    went: set[bytes] = field(default_factory=set)

    def windows(self, blocks: Iterator[BlockData]) -> Iterator[Window]:
        """Whole documents, those that end in the same block at once."""
        wanted = np.frombuffer(b"".join(sorted(self.gone)), f"V{ID_BYTES}")
        begun: list[npt.NDArray[Any]] = []  # tokens of the document that goes on, where it stays
        for data in blocks:
            ids = np.frombuffer(bytes.fromhex("".join(data.documents.doc_ids)), wanted.dtype)
            edges = np.append(data.starts.astype(np.int64), len(data.tokens))
            going = np.isin(ids, wanted)
            self.went |= {one.tobytes() for one in ids[going]}
            stay = np.flatnonzero(~going)
            if len(stay) == 0:
                continue
            lengths = np.diff(edges)
            tokens = data.tokens[np.repeat(~going, lengths)]
            lengths, ids = lengths[stay], ids[stay]
            if begun:  # its next segment is the first of the block
                lengths[0] += sum(map(len, begun))
                tokens = np.concatenate([*begun, tokens])
            begun = []
            if int(tokens[-1]) != self.bpe.eos_id:
                begun = [tokens[len(tokens) - lengths[-1] :].copy()]
                tokens, lengths, ids = tokens[: len(tokens) - lengths[-1]], lengths[:-1], ids[:-1]
            if len(ids):
                offsets = np.concatenate([[0], np.cumsum(lengths)])
                size = int(self.bpe.byte_lengths[tokens].sum(dtype=np.int64))
                whole = np.frombuffer(ids.tobytes(), np.uint8).reshape(-1, ID_BYTES)
                yield Window(whole, tokens, offsets, size)
        if begun:
            raise WorkError("a tar's last document has no end; `corpusmill verify` shows where")


def _texts(task: Rewrite, sink: Sink) -> tuple[Made, set[bytes]]:
    """Samples as they are, byte by byte, but for those that go."""
    shard, file = task.shard, task.place / task.shard.url
    assert isinstance(shard, TextShard)
    edges = text_edges(file, (task.place / f"{shard.url}.idx").read(), shard.nsamples, shard.filesize)
    tar, old = TarWriter(sink), hashlib.sha256()
    went: set[bytes] = set()
    text_bytes = shard.text_bytes
    with file.open() as stream:
        for start, end in itertools.pairwise(edges):
            sample = stream.read(end - start)
            old.update(sample)
            doc_id = document_in(sample[: tarfile.BLOCKSIZE], f"{file}: byte {start}")
            if doc_id in task.gone:
                went.add(doc_id)
                text_bytes -= int(sample[SIZE], 8)
            else:
                tar.add_samples(memoryview(sample), np.zeros(1, np.int64))
        while rest := stream.read(PIECE):
            old.update(rest)
    if old.hexdigest() != shard.sha256:
        raise WorkError(
            f"{file}: sha256 differs from that of its index; `corpusmill verify` shows what is wrong"
        )
    sidecar, left = tar.finish(), shard.ndocs - len(went)
    new = shard.model_copy(
        update={
            "nsamples": left, "ndocs": left, "text_bytes": text_bytes, "filesize": tar.size, "sha256": tar.sha256
        }
    )  # fmt: skip
    return Made(new, tar.xxh3, sidecar), went
