"""`corpusmill find`: the tokens of a document, and where its text is. Documents are sorted by the hash of their id, so a few
reads of blocks' lists and headers find the place: no tokens, and no other tar, are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.ids import named_id
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.engine.takedown_log import read_log
from corpusmill.pipeline.inspect.lineage.edits import forward
from corpusmill.pipeline.inspect.lineage.run import Row, RunPlaces
from corpusmill.pipeline.inspect.lineage.shards import Address, Shards
from corpusmill.pipeline.inspect.lineage.trace import follow
from corpusmill.pipeline.inspect.locate import BlockList, Ordered, TextList, ordered
from corpusmill.schemas.shards import SetEntry
from corpusmill.schemas.tables import KEPT

Span = tuple[int, int]  # first, one past the last
List = TypeVar("List", bound=Ordered[Any])


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
    length: int | None = None  # characters of the text, where those that were asked for lie beyond its end
    cut: bool = False  # those that were asked for have no characters in the cleaned text


class Finder:
    """Finds documents in a shard set. `run`: None for shards without a run; then only doc_ids are known."""

    def __init__(self, shards: Shards, run: RunPlaces | None) -> None:
        self.shards, self.run = shards, run
        self._lists: dict[str, Any] = {}
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
            without = "without the run that made the shards"
            if doc_id is None:
                raise UserError(f"{named}: {without} only a doc_id (32 hex digits) can be found; give --run")
            if ingested is not None:
                raise UserError(f"--ingested: {without} nothing is known of that text; give --run")
            return self._asked([self._found(doc_id, None, chars)], chars, None)
        rows = self.run.rows(named)
        raw = named_id(named)
        if not rows and raw is not None and self.run.copy(raw) is not None:
            return self._asked([self._found(raw, None, chars)], chars, None)
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
        lists: list[BlockList] = self._listed(self.shards.index.sets, source)
        return [self._place(some, at, doc_id) for some, at in self._held(lists, doc_id)]

    def _texts(self, doc_id: bytes, source: str | None) -> Iterator[TextPlace]:
        lists: list[TextList] = self._listed(self.shards.index.texts, source)
        for some, at in self._held(lists, doc_id):
            (tar, number), entry = some.place(at), some.entry
            path = entry.path(some.tars[tar]["url"])
            yield TextPlace(entry.source, entry.split, path, number, f"{doc_id.hex()}.txt")

    def _held(self, lists: Sequence[List], doc_id: bytes) -> list[tuple[List, int]]:
        """Where a document is, all of it in one of the lists: by its hash, or else by looking through all of them."""
        for some in lists:
            if numbers := list(some.holding(doc_id)):
                return [(some, at) for at in numbers]
        if doc_id in self.taken_down:
            return []
        for some in lists:
            if found := list(some.searched({doc_id})):
                return [(some, at) for at, _ in found]
        return []

    @cached_property
    def taken_down(self) -> dict[bytes, str]:
        """When documents were taken out of the shards, by the log of `corpusmill takedown`."""
        log = read_log(self.shards.folder, self.shards.requests.read)
        return {bytes.fromhex(doc_id): entry.time for entry in log.entries for doc_id in entry.doc_ids}

    def _listed(self, entries: Sequence[SetEntry], source: str | None) -> list[Any]:
        """The items of the lines of a source, or of all; read once."""
        for entry in entries:
            if source in (None, entry.source) and entry.index not in self._lists:
                self._lists[entry.index] = ordered(self.shards, entry, self.shards.requests, self._seed)
        return [self._lists[entry.index] for entry in entries if source in (None, entry.source)]

    def _place(self, blocks: BlockList, at: int, doc_id: bytes) -> Place:
        tar, number, line = blocks.block(at)
        docs = blocks.documents(at)
        row = docs.doc_ids.index(doc_id.hex())
        last = row + 1 == len(docs.doc_ids)
        end = line["ntokens"] if last else docs.token_starts[row + 1]
        # A document that fills the block to its end goes on in the next one, or not.
        following = blocks.documents(at + 1).doc_ids[0] if last and at + 1 < blocks.count else ""
        return Place(
            blocks.entry.source, blocks.entry.split, blocks.entry.path(tar), number, line["key"], docs.token_starts[row], end - 1,
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
        start, end = int(starts[first]), int(ends[last])
        first, last = place.first + first, place.first + last
        return place._replace(first=first, last=last, start=start, end=end, ends=False)
