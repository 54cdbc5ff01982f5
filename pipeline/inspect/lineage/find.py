"""`corpusmill find`: the tokens that a document became, and where its text is. Documents lie in the order of the hash of
their id, so a few reads of what blocks and headers say find the place: none of the tokens, and no other tar, is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import named_id
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.inspect.lineage.edits import forward
from corpusmill.pipeline.inspect.lineage.lists import BlockList, Ordered, TextList
from corpusmill.pipeline.inspect.lineage.run import Row, RunPlaces
from corpusmill.pipeline.inspect.lineage.shards import Address, Shards
from corpusmill.pipeline.inspect.lineage.trace import follow
from corpusmill.schemas.ledger import KEPT
from corpusmill.schemas.shards import TAKEDOWNS, ShardSetEntry, Takedown, TextSetEntry

Span = tuple[int, int]  # first, one past the last
List = TypeVar("List", bound=Ordered)


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


class TextPlace(NamedTuple):
    """A document's text in a tar of texts: sample `number`, whose text is the `member`."""

    source: str
    split: str
    tar: str  # path, relative to the shard set
    number: int
    member: str


class Found(NamedTuple):
    """A document: its row in the ledger, if there is a run, and its places in the shards."""

    doc_id: bytes
    row: Row | None
    places: list[Place]
    taken: str | None = None  # when it was taken out of the shards
    texts: tuple[TextPlace, ...] = ()
    length: int | None = None  # characters of the text, where those that were asked for lie behind its end
    cut: bool = False  # nothing stands in the cleaned text for those that were asked for


class Finder:
    """Finds documents in a shard set. `run`: None for shards without a run; then only doc_ids are known."""

    def __init__(self, shards: Shards, run: RunPlaces | None) -> None:
        self.shards, self.run = shards, run
        self._lists: dict[str, BlockList] = {}
        self._seed = None if run is None else purpose_seed(run.recipe.seed, "shard")

    def find(
        self, named: str, chars: tuple[int, int] | None = None, ingested: tuple[int, int] | None = None
    ) -> list[Found]:
        """The documents whose doc_id, own id, locator or URL is `named`, each with its places in the shards; with
        `chars` only the tokens of these characters of the cleaned text (first, one past the last), with `ingested` of
        what stands there for these of the text as ingested. Raises `UserError` if there is no such document, or no such
        characters in any."""
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
            return self._asked([self._found(doc_id, None, chars)], chars, None)
        rows = self.run.rows(named)
        if not rows:
            raise UserError(
                f"{named}: no such document in {self.run.url}: a doc_id (32 hex digits), the input's own id, a locator or"
                " a URL is wanted"
            )
        found = [self._found(row.doc_id, row, chars, ingested) for row in rows]
        return self._asked(found, chars, ingested)

    @staticmethod
    def _asked(found: list[Found], chars: Span | None, ingested: Span | None) -> list[Found]:
        """What was found; raises `UserError` if none of it has the characters that were asked for."""
        length = found[0].length
        if length is None or any(one.length is None for one in found):
            return found
        option, (start, end) = ("--chars", chars or (0, 0)) if ingested is None else ("--ingested", ingested)
        asked = f"{option} {start}" if end == start + 1 else f"{option} {start}-{end - 1}"
        allowed = f"0-{length - 1} may be asked for" if length else "leave the option out"
        raise UserError(f"{asked}: {found[0].doc_id.hex()} has {length:,} characters; {allowed}")

    def _found(
        self, doc_id: bytes, row: Row | None, chars: Span | None, ingested: Span | None = None
    ) -> Found:
        if row is not None and row.values["outcome"] != KEPT:
            return Found(doc_id, row, [])
        source = None if row is None else row.values["source"]
        places, texts = self._places(doc_id, source), tuple(self._texts(doc_id, source))
        taken = None if places or texts else self.taken_down.get(doc_id)
        found = Found(doc_id, row, places, taken, texts)
        if taken or (chars is None and ingested is None):
            return found
        length, asked = self._length(found, ingested is not None), ingested or chars
        if length is not None and asked is not None and asked[0] >= length:
            return found._replace(places=[], length=length)
        if ingested is not None:
            chars = forward(follow(doc_id, self.shards, self.run, raw=False).chain, *ingested)
        assert chars is not None
        narrowed = [part for place in places if (part := self._narrowed(place, *chars)) is not None]
        return found._replace(places=narrowed, cut=chars[0] == chars[1])

    def _length(self, found: Found, ingested: bool) -> int | None:
        """Characters of a document's text, the cleaned or the ingested one; None if it is not there any more."""
        if not ingested and found.places:
            return found.places[-1].end
        if self.run is None or found.row is None:
            return None
        followed = follow(found.doc_id, self.shards, self.run, raw=False)
        text = followed.ingested if ingested else followed.text
        return None if text is None else len(text)

    def _places(self, doc_id: bytes, source: str | None) -> list[Place]:
        lists = [self._blocks(entry) for entry in self.shards.index.sets if source in (None, entry.source)]
        return [self._place(some, at, doc_id) for some, at in self._held(lists, doc_id)]

    def _texts(self, doc_id: bytes, source: str | None) -> Iterator[TextPlace]:
        entries = [entry for entry in self.shards.index.texts if source in (None, entry.source)]
        for some, at in self._held([self._text_list(entry) for entry in entries], doc_id):
            tar, number = some.place(at)
            yield TextPlace(
                some.entry.source, some.entry.split, some.entry.path(tar), number, f"{doc_id.hex()}.txt"
            )

    def _held(self, lists: Sequence[List], doc_id: bytes) -> list[tuple[List, int]]:
        """Where a document is, all of it in one of the lists: by its hash, or else by looking through all of them."""
        for look in (Ordered.holding, Ordered.searched):
            for some in lists:
                numbers = list(look(some, doc_id))
                if numbers:
                    return [(some, at) for at in numbers]
            if doc_id in self.taken_down:
                break
        return []

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
            self._lists[entry.index] = BlockList(
                (self.shards.folder / entry.index).parent, entry, self.shards.requests, self._seed, blocks
            )
        return self._lists[entry.index]

    def _text_list(self, entry: TextSetEntry) -> TextList:
        return TextList(
            (self.shards.folder / entry.index).parent,
            entry,
            self.shards.requests,
            self._seed,
            self.shards.listed(entry),
        )

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
