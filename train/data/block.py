"""One block of tokens: where its bytes lie, what they must be, and which block may stand in for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.ids import checksum
from corpusmill.schemas.shards import Block
from corpusmill.train.data.requests import Wrong
from corpusmill.train.data.shards import Source

GAP = 64 << 10  # members that lie this close together are read with one request


class BlockData(NamedTuple):
    """`tokens`: uint16 or uint32 [ntokens]; `starts`: int64, first token of each document segment."""

    tokens: npt.NDArray[np.unsignedinteger]
    starts: npt.NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + self.starts.nbytes


class Member(NamedTuple):
    """A member of a tar: bytes from the start of the tar to its payload, bytes of that, and their checksum."""

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
        """The members' payloads, not copied. Raises `Wrong` for bytes that are not those of the index."""
        view, payloads = memoryview(data), []
        for member in self.members:
            payload = view[member.offset - self.start : member.offset - self.start + member.size]
            if checksum(payload) != member.xxh3:
                raise Wrong(
                    f"the bytes of {member.name} are not those that the index promises (checksum differs)"
                )
            payloads.append(payload)
        return payloads


def spans(block: Block) -> list[Span]:
    """What is read of a block: its tokens and its documents' starts, with one request if they lie close together."""
    members = [
        Member(".tokens.npy", block.offset, block.size, block.xxh3),
        Member(".docs.npy", block.docs_offset, block.docs_size, block.docs_xxh3),
    ]
    start = min(member.offset for member in members)
    size = max(member.offset + member.size for member in members) - start
    if size <= block.size + block.docs_size + GAP:
        return [Span(start, size, members)]
    return [Span(member.offset, member.size, [member]) for member in members]


def documents_span(block: Block) -> Span:
    """The `.json` member."""
    member = Member(".json", block.json_offset, block.json_size, block.json_xxh3)
    return Span(member.offset, member.size, [member])


def memory_of(block: Block) -> int:
    """Bytes that a block takes in memory: its spans as they came, and the starts as int64."""
    return sum(span.size for span in spans(block)) + 8 * block.ndocs


def decode(source: Source, block: Block, payload: memoryview, docs: memoryview) -> BlockData:
    """The arrays in two `.npy` payloads; tokens are not copied. Raises `Wrong` if the index says otherwise."""
    tokens = np.frombuffer(payload, dtype=source.dtype, offset=block.header)
    # Not np.load: it parses the header by `ast`, which fails now and then when threads do so together (CPython
    # before 3.12). The header's length stands in its bytes 8 and 9.
    starts = np.frombuffer(docs, dtype="<u4", offset=10 + int.from_bytes(docs[8:10], "little")).astype(
        np.int64
    )
    if len(tokens) != block.ntokens:
        raise Wrong(f"holds {len(tokens)} tokens, the index says {block.ntokens}")
    if len(tokens) and int(tokens.max()) >= source.index.vocab_size:
        raise Wrong(f"token {int(tokens.max())} is not in a vocabulary of {source.index.vocab_size}")
    if len(starts) != block.ndocs or (np.diff(starts) <= 0).any():
        raise Wrong(".docs.npy does not hold the rising starts of the documents")
    return BlockData(tokens, starts)


def substitutes(source: Source, number: int) -> Iterator[int]:
    """Blocks that may stand in for block `number`, in the order to try them: those of the source with at least as many
    tokens, drawn by hashes of (the source's index, the number, the attempt), so the same everywhere and always."""
    need = source.blocks[number][1].ntokens
    able = [
        other for other, (_, block) in enumerate(source.blocks) if other != number and block.ntokens >= need
    ]
    for attempt in range(len(able)):
        draw = checksum(f"{source.xxh3} {number} {attempt}".encode())
        yield able.pop(int(draw, 16) % len(able))
