"""Reading one block: from the disk cache if it is there, else from the store, checked either way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import BlockDocuments, Shard
from corpusmill.train.data.block import BlockData, Span, decode, documents_span, spans
from corpusmill.train.data.cache import DiskCache, Range, object_hash
from corpusmill.train.data.memory import Key, Memory
from corpusmill.train.data.requests import Closed, Damaged, Requests, Say, Wrong
from corpusmill.train.data.shards import Source

VERIFY = "`corpusmill verify` checks the whole shard set"


class Reader:
    """Reads blocks by key. Thread-safe; waits for the store in its caller's thread."""

    def __init__(
        self, sources: Sequence[Source], fetch: FetchConfig, memory: Memory[BlockData], say: Say
    ) -> None:
        self.sources, self.fetch = sources, fetch
        self.requests = Requests(fetch, say)
        self._memory, self._say = memory, say
        # Of the disk cache: object hash -> source, first block of the tar, where the spans of its blocks start.
        self._tars: dict[str, tuple[int, int, list[int]]] = {}
        self._cache = (
            DiskCache(fetch.cache, int(fetch.cache_gb * 2**30), self._uses, say) if fetch.cache else None
        )

    def read(self, key: Key) -> BlockData:
        """The block. Raises `Damaged`, saying how, if the store has it not as the index promises; `WorkError` naming
        shard and block if the store cannot be asked."""
        source, number = self.sources[key[0]], key[1]
        shard, block = source.blocks[number]
        try:
            payload, docs = [
                part for span in spans(block) for part in self._range(key, source.folder / shard.url, span)
            ]
            return decode(source, block, payload, docs)
        except Wrong as error:
            raise Damaged(str(error)) from None
        except Closed:
            raise
        except WorkError as error:
            raise WorkError(
                f"{self.name(key)}: {error}. Given up after data.fetch.deadline_s ({self.fetch.deadline_s:g} s); start"
                f" again when the store answers. {VERIFY}"
            ) from None

    def documents(self, key: Key) -> BlockDocuments:
        """The `.json` member of the block. Raises `WorkError` if it is damaged or cannot be had."""
        source, number = self.sources[key[0]], key[1]
        shard, block = source.blocks[number]
        span = documents_span(block)
        try:
            [data] = self.requests.read(source.folder / shard.url, span.start, span.size, span.check)
        except (Damaged, WorkError) as error:
            raise WorkError(f"{self.name(key)}: its documents: {error}. {VERIFY}") from None
        return BlockDocuments.model_validate_json(bytes(data))

    def name(self, key: Key) -> str:
        """What to call a block in a message: its tar, its key and its bytes."""
        source = self.sources[key[0]]
        shard, block = source.blocks[key[1]]
        return f"{source.folder / shard.url}: block {block.key} (bytes {block.offset} to {block.offset + block.size})"

    def _range(self, key: Key, file: Folder, span: Span) -> list[memoryview]:
        cache = self._cache
        tag = self.requests.tag(file) if cache else ""
        if not cache or not tag:
            return self.requests.read(file, span.start, span.size, span.check)
        kept = self._kept(key, file, tag, span)
        data = cache.get(kept)
        if data is not None:
            try:
                return span.check(data)
            except Wrong as error:
                self._say(f"{cache.folder / kept.name}: damaged in the cache, fetched again: {error}")
                cache.drop(kept)
        came: list[Any] = []

        def check(data: Any) -> list[memoryview]:
            payloads = span.check(data)
            came[:] = [data]
            return payloads

        payloads = self.requests.read(file, span.start, span.size, check)
        cache.put(self._kept(key, file, self.requests.tag(file), span), came[0])
        return payloads

    def _kept(self, key: Key, file: Folder, tag: str, span: Span) -> Range:
        of = object_hash(file, tag)
        if of not in self._tars:
            first, shard = self._shards[key[0]][file.url]
            self._tars[of] = key[0], first, [spans(block)[0].start for block in shard.blocks]
        return Range(of, span.start, span.size)

    def _uses(self, ranges: Sequence[Range]) -> list[float | None]:
        """The sequence number that each range of the disk cache is used at next; None of tars that were not read yet."""
        if not self._memory.next_use:
            return [None] * len(ranges)
        places, keys = [], []
        for place, kept in enumerate(ranges):
            if kept.of in self._tars:
                source, first, starts = self._tars[kept.of]
                places.append(place)
                keys.append((source, first + int(np.searchsorted(starts, kept.start, side="right")) - 1))
        uses: list[float | None] = [None] * len(ranges)
        for place, use in zip(places, self._memory.next_uses(keys).tolist(), strict=True):
            uses[place] = use
        return uses

    @cached_property
    def _shards(self) -> list[dict[str, tuple[int, Shard]]]:
        """Per source, of each tar (by URL): the number of its first block, and its line in the index."""
        found: list[dict[str, tuple[int, Shard]]] = []
        for source in self.sources:
            first, tars = 0, {}
            for shard in source.index.shardlist:
                tars[(source.folder / shard.url).url] = first, shard
                first += len(shard.blocks)
            found.append(tars)
        return found
