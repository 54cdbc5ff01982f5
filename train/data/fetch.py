"""Blocks of tokens by range request: checked, retried within a deadline, kept in memory, fetched side by side."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from schemas.data import FetchConfig
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.shards import Block, BlockDocuments
from schemas.storage import Folder
from train.data.shards import Source

Result = TypeVar("Result")
Key = tuple[int, int]  # (source, block)
GAP = 64 << 10  # members that lie this close together are read with one request


class BlockData(NamedTuple):
    """`tokens`: uint16 or uint32 [ntokens]; `starts`: int64, first token of each document segment."""

    tokens: npt.NDArray[np.unsignedinteger]
    starts: npt.NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + self.starts.nbytes


class Blocks:
    """The blocks of some sources, by (source, block) number; the least recently used go when memory is full.

    Thread-safe. A block whose bytes cannot be had, or are not those that the index promises, is asked for again with
    growing pauses until `attempts` or `deadline` seconds are used up; then `WorkError` names shard and block.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        fetch: FetchConfig = FetchConfig(),
        next_use: object = None,
        say: object = None,
    ) -> None:
        self.sources = list(sources)
        self.capacity = int(fetch.memory_mb * 2**20)
        self.attempts, self.deadline = fetch.attempts, fetch.deadline_s
        self.hedged, self.replaced = 0, dict[Key, Key]()
        self.fetched_bytes = self.requests = self.retries = 0
        self._kept: OrderedDict[Key, BlockData] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(fetch.threads, thread_name_prefix="fetch")

    def read_ahead(self, keys: Iterable[Key], n: int = 0) -> None:
        pass

    def get(self, keys: Iterable[Key], n: int = 0) -> dict[Key, BlockData]:
        """The blocks asked for, the missing ones fetched side by side."""
        wanted = sorted(set(keys))
        found: dict[Key, BlockData] = {}
        with self._lock:
            for key in wanted:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[key] = self._kept[key]
        missing = [key for key in wanted if key not in found]
        for key, data in zip(missing, self._pool.map(self._fetch, missing), strict=True):
            found[key] = data
            self._keep(key, data)
        return found

    def documents(self, key: Key) -> BlockDocuments:
        """The `.json` member of a block: its documents' ids and character ranges."""
        source, number = key
        shard, block = self.sources[source].blocks[number]
        file = self.sources[source].folder / shard.url
        data = self._retry(
            file,
            block,
            lambda: _checked(file.read_range(block.json_offset, block.json_size), block.json_xxh3, ".json"),
        )
        return BlockDocuments.model_validate_json(data)

    def close(self) -> None:
        """Give up pauses and end the threads."""
        self._closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _keep(self, key: Key, data: BlockData) -> None:
        with self._lock:
            self._kept[key] = data
            self._bytes += data.nbytes
            while self._bytes > self.capacity and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes

    def _fetch(self, key: Key) -> BlockData:
        source = self.sources[key[0]]
        shard, block = source.blocks[key[1]]
        file = source.folder / shard.url
        return self._retry(file, block, lambda: self._read(source, file, block))

    def _read(self, source: Source, file: Folder, block: Block) -> BlockData:
        ends = (block.offset + block.size, block.docs_offset + block.docs_size)
        start = min(block.offset, block.docs_offset)
        if max(ends) - start <= block.size + block.docs_size + GAP:
            span = file.read_range(start, max(ends) - start)
            payload = span[block.offset - start : ends[0] - start]
            docs = span[block.docs_offset - start : ends[1] - start]
            requests = 1
        else:
            payload, requests = file.read_range(block.offset, block.size), 2
            docs = file.read_range(block.docs_offset, block.docs_size)
        with self._lock:
            self.requests += requests
            self.fetched_bytes += len(payload) + len(docs)
        _checked(payload, block.xxh3, ".tokens.npy")
        _checked(docs, block.docs_xxh3, ".docs.npy")
        tokens = np.frombuffer(payload, dtype=source.dtype, offset=block.header)
        # Not np.load: it parses the header by `ast`, which fails now and then when threads do so together (CPython
        # before 3.12). The header's length stands in its bytes 8 and 9.
        header = 10 + int.from_bytes(docs[8:10], "little")
        starts = np.frombuffer(docs, dtype="<u4", offset=header).astype(np.int64)
        if len(tokens) != block.ntokens:
            raise WorkError(f"holds {len(tokens)} tokens, the index says {block.ntokens}")
        if len(tokens) and int(tokens.max()) >= source.index.vocab_size:
            raise WorkError(f"token {int(tokens.max())} is not in a vocabulary of {source.index.vocab_size}")
        if len(starts) != block.ndocs or (np.diff(starts) <= 0).any():
            raise WorkError(".docs.npy does not hold the rising starts of the documents")
        return BlockData(tokens, starts)

    def _retry(self, file: Folder, block: Block, read: Callable[[], Result]) -> Result:
        began, pause = time.monotonic(), 0.05
        for attempt in range(1, self.attempts + 1):
            try:
                return read()
            except (WorkError, FileNotFoundError, ValueError) as error:
                spent = time.monotonic() - began
                gone = isinstance(error, FileNotFoundError)
                if gone or attempt == self.attempts or spent + pause > self.deadline or self._closed.is_set():
                    raise WorkError(
                        f"{file}: block {block.key} (bytes {block.offset} to {block.offset + block.size}): {error};"
                        f" tried {attempt} times in {spent:.1f} s. `corpusmill verify` checks the whole shard set"
                    ) from None
            with self._lock:
                self.retries += 1
            self._closed.wait(pause * (1 + random.random()))
            pause *= 3
        raise AssertionError("unreachable")


def _checked(data: bytes, xxh3: str, member: str) -> bytes:
    if checksum(data) != xxh3:
        raise WorkError(f"the bytes of {member} are not those that the index promises (checksum differs)")
    return data
