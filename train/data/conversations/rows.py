"""Whole documents packed into rows: best-fit decreasing (Ding et al. 2024), none of them cut, what is left of a row filled up; and the
rows of a (source, split), written block by block."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from corpusmill.common.blocks import BlockWriter, Cut
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.shards import Shard, Target
from corpusmill.train.data.conversations.encode import ConversationEncoder, Document
from corpusmill.train.data.texts.inputs import Split
from corpusmill.train.data.texts.token_set import publish

BLOCK_TOKENS = 2**19  # of a block, about


def packed_whole(sizes: Sequence[int], length: int) -> list[list[int]]:
    """Which items go into each row of `length`, by their number; sizes sum to `length` at most. The same for the same sizes.

    The largest first, each into the fullest row that it fits into. Raises `ValueError` for an item longer than a row.
    """
    rows: list[list[int]] = []
    spaces: list[tuple[int, int]] = []  # (free, row), sorted
    for size, number in sorted((-size, number) for number, size in enumerate(sizes)):
        needed = -size
        if needed > length:
            raise ValueError(f"an item of {needed} is longer than a row of {length}")
        at = bisect_left(spaces, (needed, -1))
        free, row = spaces.pop(at) if at < len(spaces) else (length, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(number)
        if free > needed:
            insort(spaces, (free - needed, row))
    return rows


@dataclass
class Rows:
    """The rows of a (source, split), written block by block to one tar, which is made with the first block."""

    source: str
    split: Split
    encoder: ConversationEncoder
    folder: Folder
    stack: ExitStack = field(default_factory=ExitStack)
    shard: Shard | None = None
    files: list[PublishedFile] = field(default_factory=list)
    documents: int = 0
    rows: int = 0
    tokens: int = 0
    labels: int = 0
    scored: int = 0

    def __post_init__(self) -> None:
        self._units: list[tuple[list[bytes], list[Document]]] = []  # documents that lie together
        self._waiting = self._bytes = 0
        self._writer: BlockWriter | None = None
        length = self.encoder.length
        self.block_tokens = max(BLOCK_TOKENS // length, 1) * length + 1

    def add(self, ids: list[bytes], documents: list[Document], apart: bool) -> None:
        """The documents of a line, which lie in one row, or `apart`."""
        pairs = zip(ids, documents, strict=True)
        self._units += [([one], [document]) for one, document in pairs] if apart else [(ids, documents)]
        self._waiting += sum(len(document.tokens) for document in documents)
        if self._waiting >= self.block_tokens:
            self._block()

    def _block(self) -> None:
        """Pack what is waiting into rows, and write them as a block."""
        length, encoder = self.encoder.length, self.encoder.plain
        rows = packed_whole([sum(len(d.tokens) for d in documents) for _, documents in self._units], length)
        tokens = np.full(len(rows) * length + 1, encoder.eos_id, dtype=encoder.dtype)
        targets = np.full(len(tokens), Target.context, dtype=np.uint8)
        ids, starts, chars = list[bytes](), list[int](), list[int]()
        for row, units in enumerate(rows):
            at = row * length + 1
            for unit in units:
                for name, document in zip(*self._units[unit], strict=True):
                    end = at + len(document.tokens)
                    tokens[at:end], targets[at:end] = document.tokens, document.targets
                    ids.append(name)
                    starts.append(at)
                    chars.append(document.chars)
                    self._bytes += document.bytes
                    at = end
        starts[0] = 0  # with the token before it
        cut = Cut(
            tokens, np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(len(ids), -1), np.array(starts, dtype=np.uint32),
            np.zeros(len(ids), dtype=np.int64), np.array(chars, dtype=np.int64), targets,
        )  # fmt: skip
        if self._writer is None:
            self._writer = BlockWriter(
                self._stem, self.stack.enter_context((self.folder / self._path).create())
            )
        self._writer.add([cut])
        self.documents += len(ids)
        self.rows += len(rows)
        self.tokens += self._waiting
        self.labels += int((targets != Target.context).sum())
        self.scored += int((targets == Target.answer).sum())
        self._units, self._waiting = [], 0

    def finish(self) -> None:
        """Write what is waiting, and end the tar."""
        if self._units:
            self._block()
        if self._writer is None:
            return
        made = self._writer.finish(self.documents, self._bytes)
        self.stack.close()
        self.shard = Shard.model_validate(made.shard)
        self.files = [
            PublishedFile(path=self._path, rows=self.documents, bytes=self.shard.filesize, xxh3=made.xxh3),
            publish(self.folder, f"{self._path}.idx", made.sidecar),
        ]

    @property
    def _stem(self) -> str:
        return f"{self.source}-{self.split}-000000"

    @property
    def _path(self) -> str:
        return f"{self.source}/{self.split}/{self._stem}.tar"
