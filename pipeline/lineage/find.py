"""`corpusmill find`: the tokens that a document became. Documents lie in the order of the hash of their id, so a few reads of
what blocks say of their documents find the place: none of the tokens, and no other tar, is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.lineage.address import Address
from pipeline.lineage.edits import forward
from pipeline.lineage.run import Row, RunPlaces
from pipeline.lineage.shards import VERIFY, Requests, Shards
from pipeline.lineage.trace import follow
from pipeline.splits import hash_ids, purpose_seed
from schemas.documents import ID
from schemas.errors import UserError, WorkError
from schemas.ids import checksum, named_id
from schemas.ledger import KEPT
from schemas.shards import TAKEDOWNS, BlockDocuments, ShardSetEntry, Takedown
from schemas.storage import Folder


class Place(NamedTuple):
    """Tokens `first` to `last` (that one too) of a block that are a document's, and characters `start` to `end` of its
    cleaned text: those of which they hold a byte. `ends`: the last token is the end of the document."""

    source: str
    split: str
    tar: str  # path, relative to the shard set
    block: int
    key: str
    first: int
    last: int
    start: int
    end: int
    ends: bool

    @property
    def address(self) -> str:
        """What `corpusmill trace` takes."""
        stem = self.tar.rpartition("/")[2].removesuffix(".tar")
        return str(Address(stem, str(self.block), self.first, self.last))


class Found(NamedTuple):
    """A document: its row in the ledger, if there is a run, and its places in the shards."""

    doc_id: bytes
    row: Row | None
    places: list[Place]
    taken: str | None = None  # when it was taken out of the shards


@dataclass
class BlockList:
    """The blocks of a (source, split) in the order of the data set. Reads what they say of their documents when asked."""

    folder: Folder  # of the set's index
    entry: ShardSetEntry
    requests: Requests
    seed: int | None
    blocks: list[tuple[str, int, dict[str, Any]]]  # tar, number in it, its line of the index
    probed: dict[int, BlockDocuments] = field(default_factory=dict)

    def documents(self, at: int) -> BlockDocuments:
        """By one range request, checked; raises `WorkError` if the bytes are not those of the index."""
        if at not in self.probed:
            tar, _, line = self.blocks[at]
            data = self.requests.read_range(self.folder / tar, line["json_offset"], line["json_size"])
            if checksum(data) != line["json_xxh3"]:
                raise WorkError(f"{self.folder / tar}: {line['key']}.json: checksum differs; {VERIFY}")
            self.probed[at] = BlockDocuments.model_validate_json(data)
        return self.probed[at]

    def holding(self, doc_id: bytes) -> Iterator[int]:
        """Numbers of the blocks that hold a document, in order: where its hash says, if the order is that of the hashes."""
        at = self._first(doc_id)
        while at is not None and at < len(self.blocks) and doc_id.hex() in self.documents(at).doc_ids:
            yield at
            at += 1

    def searched(self, doc_id: bytes) -> Iterator[int]:
        """The same by reading what all blocks say."""
        yield from (i for i in range(len(self.blocks)) if doc_id.hex() in self.documents(i).doc_ids)

    def _first(self, doc_id: bytes) -> int | None:
        """The first block whose last document does not come before one, from a guess on: hashes lie evenly. None if the
        order is another one, as far as was seen."""
        if self.seed is None:
            return None
        wanted = _hashes([doc_id], self.seed)[0], doc_id
        low, high = 0, len(self.blocks)  # the answer is in low..high
        guess = wanted[0] * len(self.blocks) >> 64
        step = 1
        while low < high:
            at = min(max(guess, low), high - 1)
            order = self._order(at)
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

    def _order(self, at: int) -> list[tuple[int, bytes]]:
        ids = [bytes.fromhex(doc_id) for doc_id in self.documents(at).doc_ids]
        assert self.seed is not None
        return list(zip(_hashes(ids, self.seed), ids, strict=True))


def _hashes(ids: list[bytes], seed: int) -> list[int]:
    found: list[int] = hash_ids(pa.array(ids, ID), seed).tolist()
    return found


class Finder:
    """Finds documents in a shard set. `run`: None for shards without a run; then only doc_ids are known."""

    def __init__(self, shards: Shards, run: RunPlaces | None) -> None:
        self.shards, self.run = shards, run
        self._lists: dict[str, BlockList] = {}

    def find(
        self, named: str, chars: tuple[int, int] | None = None, ingested: tuple[int, int] | None = None
    ) -> list[Found]:
        """The documents whose doc_id, own id, locator or URL is `named`, each with its places in the shards; with
        `chars` only the tokens of these characters of the cleaned text (first, one past the last), with `ingested` of
        what stands there for these of the text as ingested. Raises `UserError` if there is no such document."""
        if self.run is None:
            doc_id = named_id(named)
            if doc_id is None:
                raise UserError(
                    f"{named}: without the run that made the shards only a doc_id (32 hex digits) can be found; give --run"
                )
            if ingested is not None:
                raise UserError(
                    "--ingested: without the run that made the shards nothing is known of that text; give --run"
                )
            return [self._found(doc_id, None, chars)]
        rows = self.run.rows(named)
        if not rows:
            raise UserError(
                f"{named}: no such document in {self.run.url}: a doc_id (32 hex digits), the input's own id, a locator or"
                " a URL is wanted"
            )
        return [
            self._found(row.doc_id, row, chars if ingested is None else self._cleaned(row.doc_id, ingested))
            for row in rows
        ]

    def _cleaned(self, doc_id: bytes, ingested: tuple[int, int]) -> tuple[int, int]:
        """The characters of the cleaned text that stand for those of the ingested one; none if they were cut."""
        return forward(follow(doc_id, self.shards, self.run, raw=False).chain, *ingested)

    def _found(self, doc_id: bytes, row: Row | None, chars: tuple[int, int] | None) -> Found:
        if row is not None and row.values["outcome"] != KEPT:
            return Found(doc_id, row, [])
        places = self._places(doc_id, None if row is None else row.values["source"], chars)
        return Found(doc_id, row, places, None if places else self.taken_down.get(doc_id))

    def _places(self, doc_id: bytes, source: str | None, chars: tuple[int, int] | None) -> list[Place]:
        lists = [self._blocks(entry) for entry in self.shards.index.sets if source in (None, entry.source)]
        places: list[Place] = []
        for look in (BlockList.holding, BlockList.searched):
            for blocks in lists:
                places = places or [self._place(blocks, at, doc_id) for at in look(blocks, doc_id)]
            if places or doc_id in self.taken_down:
                break
        return places if chars is None else [p for p in (self._narrowed(p, *chars) for p in places) if p]

    @cached_property
    def taken_down(self) -> dict[bytes, str]:
        """When documents were taken out of the shards: `corpusmill takedown` writes it down."""
        file = self.shards.folder / TAKEDOWNS
        try:
            log = self.shards.requests.read(file)
        except FileNotFoundError:
            return {}
        try:
            entries = [Takedown.model_validate_json(line) for line in log.splitlines()]
            return {bytes.fromhex(doc_id): entry.time for entry in entries for doc_id in entry.doc_ids}
        except ValueError:
            raise WorkError(f"{file}: not a log of takedowns; bring the file back as it was") from None

    def _blocks(self, entry: ShardSetEntry) -> BlockList:
        if entry.index not in self._lists:
            blocks = [
                (shard["url"], number, block)
                for shard in self.shards.listed(entry)
                for number, block in enumerate(shard["blocks"])
            ]
            seed = None if self.run is None else purpose_seed(self.run.recipe.seed, "shard")
            folder = (self.shards.folder / entry.index).parent
            self._lists[entry.index] = BlockList(folder, entry, self.shards.requests, seed, blocks)
        return self._lists[entry.index]

    def _place(self, blocks: BlockList, at: int, doc_id: bytes) -> Place:
        tar, number, line = blocks.blocks[at]
        docs = blocks.documents(at)
        row = docs.doc_ids.index(doc_id.hex())
        last = row + 1 == len(docs.doc_ids)
        end = line["ntokens"] if last else docs.token_starts[row + 1]
        # A document that fills the block to its end goes on in the next one, or not.
        following = blocks.documents(at + 1).doc_ids[0] if last and at + 1 < len(blocks.blocks) else ""
        place = f"{blocks.entry.place}/{tar}".lstrip("/")
        return Place(
            blocks.entry.source, blocks.entry.split, place, number, line["key"], docs.token_starts[row], end - 1,
            docs.char_starts[row], docs.char_ends[row], following != doc_id.hex(),
        )  # fmt: skip

    def _narrowed(self, place: Place, start: int, end: int) -> Place | None:
        """The tokens of a place that hold a byte of characters `start` to `end`."""
        if place.end <= start or place.start >= end or start == end:
            return None
        block = self.shards.block(Address(f"{self.shards.folder}/{place.tar}", str(place.block), 0, 0))
        tokens = block.tokens[place.first : place.last + 1]
        lead, inside = self.shards.vocabulary.characters(tokens)
        ends = place.start + int(inside[0]) + np.cumsum(lead, dtype=np.int64)
        starts = ends - lead - inside
        hit = np.flatnonzero((ends > start) & (starts < end) & (starts < ends))
        if not len(hit):
            return None
        first, last = int(hit[0]), int(hit[-1])
        return place._replace(
            first=place.first + first,
            last=place.first + last,
            start=int(starts[first]),
            end=int(ends[last]),
            ends=False,
        )
