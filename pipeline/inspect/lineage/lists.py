"""The blocks and texts of a (source, split) in the order of the hash of their documents' ids: a few reads find a document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from tarfile import BLOCKSIZE
from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import ID_BYTES, checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.inspect.lineage.shards import SAMPLE, VERIFY, Requests
from corpusmill.schemas.documents import ID
from corpusmill.schemas.shards import BlockDocuments, ShardSetEntry, TextSetEntry


class Ordered(ABC):
    """Items of one (source, split), each with some documents. `seed` is that of the hash; None if it is not known."""

    seed: int | None

    @property
    @abstractmethod
    def count(self) -> int:
        """Items."""

    @abstractmethod
    def ids(self, at: int) -> list[bytes]:
        """The documents of an item, in their order."""

    def holding(self, doc_id: bytes) -> Iterator[int]:
        """Numbers of the items that hold a document, in order: where its hash says, if the order is that of the hashes."""
        at = self._first(doc_id)
        while at is not None and at < self.count and doc_id in self.ids(at):
            yield at
            at += 1

    def searched(self, doc_id: bytes) -> Iterator[int]:
        """The same by reading what all items say."""
        yield from (i for i in range(self.count) if doc_id in self.ids(i))

    def _first(self, doc_id: bytes) -> int | None:
        """The first item whose last document does not come before one, from a guess on: hashes lie evenly. None if the
        order is another one, as far as was seen."""
        if self.seed is None:
            return None
        wanted = _hashes([doc_id], self.seed)[0], doc_id
        low, high = 0, self.count  # the answer is in low..high
        guess = wanted[0] * self.count >> 64
        step = 1
        while low < high:
            at = min(max(guess, low), high - 1)
            ids = self.ids(at)
            order = list(zip(_hashes(ids, self.seed), ids, strict=True))
            if order != sorted(order):
                return None
            if order[-1] < wanted:
                low, guess = at + 1, at + step
            elif order[0] < wanted:
                return at
            else:
                high, guess = at, at - step
            step *= 2
            if step > 8:
                guess = (low + high) // 2
        return low


def _hashes(ids: list[bytes], seed: int) -> list[int]:
    found: list[int] = hash_ids(pa.array(ids, ID), seed).tolist()
    return found


@dataclass
class BlockList(Ordered):
    """The blocks of a (source, split). Reads what they say of their documents when asked."""

    folder: Folder  # of the set's index
    entry: ShardSetEntry
    requests: Requests
    seed: int | None
    blocks: list[tuple[str, int, dict[str, Any]]]  # tar, number in it, its line of the index
    probed: dict[int, BlockDocuments] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.blocks)

    def ids(self, at: int) -> list[bytes]:
        return [bytes.fromhex(doc_id) for doc_id in self.documents(at).doc_ids]

    def documents(self, at: int) -> BlockDocuments:
        """By one range request, checked; raises `WorkError` if the bytes are not those of the index."""
        if at not in self.probed:
            tar, _, line = self.blocks[at]
            data = self.requests.read_range(self.folder / tar, line["json_offset"], line["json_size"])
            if checksum(data) != line["json_xxh3"]:
                raise WorkError(f"{self.folder / tar}: {line['key']}.json: checksum differs; {VERIFY}")
            self.probed[at] = BlockDocuments.model_validate_json(data)
        return self.probed[at]


@dataclass
class TextList(Ordered):
    """The texts of a (source, split), a document each. Reads where one begins, and the name in its header, when asked."""

    folder: Folder  # of the set's index
    entry: TextSetEntry
    requests: Requests
    seed: int | None
    tars: list[dict[str, Any]]  # as the index has them

    @cached_property
    def ends(self) -> list[int]:
        """Texts up to the end of each tar."""
        return list(accumulate(tar["nsamples"] for tar in self.tars))

    @property
    def count(self) -> int:
        return self.ends[-1] if self.ends else 0

    def place(self, at: int) -> tuple[str, int]:
        """(tar, number in it) of a text."""
        tar = bisect_right(self.ends, at)
        return self.tars[tar]["url"], at - (self.ends[tar - 1] if tar else 0)

    def ids(self, at: int) -> list[bytes]:
        tar, number = self.place(at)
        file = self.folder / tar
        (start,) = self._starts(tar, number, 1)
        return [_document(self.requests.read_range(file, start, BLOCKSIZE), f"{file}: byte {start}")]

    def searched(self, doc_id: bytes) -> Iterator[int]:
        """By each text's header, many at a time from an object store."""
        for tar, end in zip(self.tars, self.ends, strict=True):
            file, begin = self.folder / tar["url"], end - tar["nsamples"]
            starts = self._starts(tar["url"], 0, tar["nsamples"])
            headers = file.at_once(lambda start, file=file: file.read_range(start, BLOCKSIZE), starts)
            for number, (start, header) in enumerate(zip(starts, headers, strict=True)):
                if _document(self.requests.took(header), f"{file}: byte {start}") == doc_id:
                    yield begin + number

    def _starts(self, tar: str, number: int, count: int) -> list[int]:
        """Where texts of a tar begin, by its `.idx`."""
        data = self.requests.read_range(self.folder / f"{tar}.idx", number * SAMPLE, count * SAMPLE)
        found: list[int] = np.frombuffer(data, "<u8").tolist()
        return found


def _document(header: bytes, where: str) -> bytes:
    """The document that the header of a text names; raises `WorkError` naming the place if it names none."""
    name, dot, _ = header.partition(b".")
    try:
        found = bytes.fromhex(name.decode("ascii")) if dot else b""
    except ValueError:
        found = b""
    if len(found) != ID_BYTES:
        raise WorkError(f"{where}: no document's header there; {VERIFY}")
    return found
