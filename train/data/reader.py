"""One block of tokens: its byte ranges, their checksums, its substitutes; and reading it, from the disk cache or the store,
checked either way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import Block, BlockDocuments, Shard, Target
from corpusmill.train.data.cache import DiskCache, Key, Memory, Range, object_hash
from corpusmill.train.data.requests import Closed, Damaged, Log, Requests, Wrong
from corpusmill.train.data.shards import Source

GAP = 64 << 10  # members at most this far apart are read with one request


class BlockData(NamedTuple):
    """`tokens`: uint16 or uint32 [ntokens]; `starts`: int64, first token of each document segment; `held`: bool, which of these are
    held out and must not be labels (None: none); `targets`: uint8 [ntokens], a `Target` each (None: every token is a label)."""

    tokens: npt.NDArray[np.unsignedinteger]
    starts: npt.NDArray[np.int64]
    held: npt.NDArray[np.bool_] | None = None
    targets: npt.NDArray[np.uint8] | None = None

    @property
    def nbytes(self) -> int:
        own = 0 if self.targets is None else self.targets.nbytes
        return self.tokens.nbytes + self.starts.nbytes + own


class Member(NamedTuple):
    """A member of a tar: offset and size of its payload in the tar, and its checksum."""

    name: str
    offset: int
    size: int
    xxh3: str


class Span(NamedTuple):
    """A range that is read with one request, and the members in it."""

    start: int
    size: int
    members: list[Member]

    def check(self, data: Any) -> list[memoryview]:
        """The members' payloads, not copied. Raises `Wrong` for bytes that do not match the index."""
        view, payloads = memoryview(data), []
        for name, offset, size, xxh3 in self.members:
            payload = view[offset - self.start : offset - self.start + size]
            if checksum(payload) != xxh3:
                raise Wrong(f"the bytes of {name} are not those that the index promises (checksum differs)")
            payloads.append(payload)
        return payloads


def spans(block: Block) -> list[Span]:
    """The ranges of a block to read: tokens, documents' starts and targets, in one request if they are close together."""
    members = [
        Member(".tokens.npy", block.offset, block.size, block.xxh3),
        Member(".docs.npy", block.docs_offset, block.docs_size, block.docs_xxh3),
    ]
    if block.targets is not None:
        members.append(Member(".targets.npy", block.targets.offset, block.targets.size, block.targets.xxh3))
    start = min(member.offset for member in members)
    size = max(member.offset + member.size for member in members) - start
    if size <= sum(member.size for member in members) + GAP:
        return [Span(start, size, members)]
    return [Span(member.offset, member.size, [member]) for member in members]


def documents_span(block: Block) -> Span:
    """The `.json` member."""
    member = Member(".json", block.json_offset, block.json_size, block.json_xxh3)
    return Span(member.offset, member.size, [member])


def memory_of(block: Block) -> int:
    """Bytes of a block in memory: its spans as fetched, and the starts as int64."""
    return sum(span.size for span in spans(block)) + 8 * block.ndocs


def decode(
    source: Source, block: Block, payload: memoryview, docs: memoryview, targets: memoryview | None = None
) -> BlockData:
    """The arrays in `.npy` payloads; those of tokens are not copied. Raises `Wrong` if they do not match the index."""
    tokens = np.frombuffer(payload, dtype=source.dtype, offset=block.header)
    starts = np.frombuffer(docs, dtype="<u4", offset=_header(docs)).astype(np.int64)
    if len(tokens) != block.ntokens:
        raise Wrong(f"holds {len(tokens)} tokens, the index says {block.ntokens}")
    if len(tokens) and int(tokens.max()) >= source.index.vocab_size:
        raise Wrong(f"token {int(tokens.max())} is not in a vocabulary of {source.index.vocab_size}")
    if len(starts) != block.ndocs or (np.diff(starts) <= 0).any():
        raise Wrong(".docs.npy does not hold the rising starts of the documents")
    if targets is None:
        return BlockData(tokens, starts)
    kinds = np.frombuffer(targets, dtype=np.uint8, offset=_header(targets))
    if len(kinds) != len(tokens) or (len(kinds) and int(kinds.max()) > max(Target)):
        raise Wrong(f".targets.npy does not hold numbers up to {max(Target)} for {len(tokens)} tokens")
    return BlockData(tokens, starts, targets=kinds)


def _header(payload: memoryview) -> int:
    """Bytes of the header of a `.npy` file, whose length bytes 8 and 9 are. (Not np.load, which parses the header by `ast`: before
    CPython 3.12 that may fail in several threads at once.)"""
    return 10 + int.from_bytes(payload[8:10], "little")


def substitutes(source: Source, number: int) -> Iterator[int]:
    """Substitutes of block `number`, in the order to try them: blocks of the source with at least as many tokens, drawn by
    hashes of (the source's index, the number, the attempt), hence the same everywhere."""
    sizes = [block.ntokens for _, block in source.blocks]
    able = [other for other, size in enumerate(sizes) if other != number and size >= sizes[number]]
    for attempt in range(len(able)):
        draw = checksum(f"{source.xxh3} {number} {attempt}".encode())
        yield able.pop(int(draw, 16) % len(able))


VERIFY = "`corpusmill verify` checks the whole shard set"


class Reader:
    """Reads blocks by key. Thread-safe; waits for the store in its caller's thread."""

    def __init__(
        self, sources: Sequence[Source], fetch: FetchConfig, memory: Memory[BlockData], log: Log
    ) -> None:
        self.sources, self.fetch = sources, fetch
        self.requests = Requests(fetch, log)
        self._memory, self._log = memory, log
        # Of the disk cache: object hash -> source, first block of the tar, where the spans of its blocks start.
        self._tars: dict[str, tuple[int, int, list[int]]] = {}
        self._cache = (
            DiskCache(fetch.cache, int(fetch.cache_gb * 2**30), self._uses, log) if fetch.cache else None
        )

    def read(self, key: Key) -> BlockData:
        """The block. Raises `Damaged`, listing the attempts, if it does not match the index; `WorkError` naming shard and
        block if the store does not answer."""
        source, number = self.sources[key[0]], key[1]
        shard, block = source.blocks[number]
        try:
            parts = [
                part for span in spans(block) for part in self._range(key, source.folder / shard.url, span)
            ]
            found = decode(source, block, *parts)
            return found if source.held is None else found._replace(held=source.held[number])
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
        """The `.json` member of the block. Raises `WorkError` if it is damaged or cannot be read."""
        source, number = self.sources[key[0]], key[1]
        shard, block = source.blocks[number]
        span = documents_span(block)
        try:
            [data] = self.requests.read(source.folder / shard.url, span.start, span.size, span.check)
        except (Damaged, WorkError) as error:
            raise WorkError(f"{self.name(key)}: its documents: {error}. {VERIFY}") from None
        return BlockDocuments.model_validate_json(bytes(data))

    def name(self, key: Key) -> str:
        """A block in messages: its tar, key and bytes."""
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
                self._log(f"{cache.folder / kept.name}: damaged in the cache, fetched again: {error}")
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
        """The sequence number of each range's next use; None for tars that were not read yet."""
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
