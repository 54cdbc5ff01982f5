"""`corpusmill trace`: from tokens of a shard to the documents, the characters and the bytes of the source they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.lineage.edits import COMPOSING, Piece, StageEdits, back, composition
from corpusmill.pipeline.inspect.lineage.raw import Raw, Span, read_raw
from corpusmill.pipeline.inspect.lineage.run import Row, RunPlaces
from corpusmill.pipeline.inspect.lineage.shards import Address, Block, Shards, Stretch
from corpusmill.schemas.shards import INDEX

AROUND = 60  # characters of the cleaned text shown on either side
_HELD = 64  # documents kept


class Hop(NamedTuple):
    """A document in one run: its ledger row, and what the run's stages did to its text."""

    run: RunPlaces
    row: Row
    stages: list[StageEdits]


@dataclass
class Followed:
    """A document followed back, as far as it goes: `hops`, the run of the shards first, and why it ends there."""

    doc_id: bytes
    text: str | None = None  # cleaned, as the shards have it
    hops: list[Hop] = field(default_factory=list)
    end: str = ""
    raw: Raw | None = None
    composed: StageEdits | None = None  # what an NFC tokenizer did to the cleaned text, to make `text`

    @property
    def ingested(self) -> str | None:
        """The text as the earliest run's ingest kept it; None if it is no longer there."""
        return self.hops[-1].run.text("ingest", self.hops[-1].row) if self.hops else None

    @property
    def chain(self) -> list[StageEdits]:
        """Every stage's edits between the text as ingested and the cleaned one, in the order of the work."""
        stages = [stage for hop in reversed(self.hops) for stage in hop.stages]
        return stages if self.composed is None else [*stages, self.composed]


class Traced(NamedTuple):
    """Some tokens of one document: `pieces` of the cleaned text, with their places in the text as ingested."""

    address: Address
    block: str
    split: str
    source: str
    stretch: Stretch
    tokens: list[int]
    parts: list[bytes]  # what each token stands for
    document: Followed
    pieces: list[Piece]
    spans: list[Span]


class Tracer:
    """Follows tokens of one shard set. `run`: None for shards without a run; then lineage ends at the doc_id."""

    def __init__(self, shards: Shards, run: RunPlaces | None, raw: bool = True) -> None:
        self.shards, self.run, self.raw = shards, run, raw
        self._documents: dict[bytes, Followed] = {}
        self._block: tuple[tuple[str, str], Block] | None = None

    def trace(self, address: Address) -> Iterator[Traced]:
        """The tokens of an address, document by document. Raises `UserError` for an address that is not there, and
        `WorkError` for a tar that is damaged."""
        entry = self.shards.entry_of(address)
        key = (address.shard, address.block)
        if self._block is None or self._block[0] != key:
            self._block = key, self.shards.block(address)
        block = self._block[1]
        for stretch in self.shards.stretches(block, address):
            document = self._followed(stretch.doc_id)
            tokens = block.tokens[stretch.first : stretch.last + 1].tolist()
            pieces = back(document.chain, stretch.start, stretch.end) if stretch.start < stretch.end else []
            spans = document.raw.spans(pieces) if document.raw is not None else []
            yield Traced(
                address, block.key, entry.split, entry.source, stretch, tokens,
                [self.shards.vocabulary.bytes_of(token) for token in tokens], document, pieces, spans,
            )  # fmt: skip

    def _followed(self, doc_id: bytes) -> Followed:
        if doc_id not in self._documents:
            while len(self._documents) >= _HELD:
                del self._documents[next(iter(self._documents))]
            self._documents[doc_id] = follow(doc_id, self.shards, self.run, self.raw)
        return self._documents[doc_id]


def follow(doc_id: bytes, shards: Shards, run: RunPlaces | None, raw: bool = True) -> Followed:
    """A document of a shard set back through its run and those whose documents that one read; with `raw` to the bytes of
    its source."""
    found = Followed(doc_id)
    if run is None:
        found.end = "no run is there beside these shards, so its ledger and texts are not either; give --run"
        return found
    row = run.row(doc_id)
    if row is None and (copy := run.copy(doc_id)) is not None:
        text = run.text_of_copy(copy)
        found.text = None if text is None else shards.vocabulary.normalized(text)
        found.end = (
            f"a copy that augment made by {copy.by} of the document {copy.parent.hex()}; `corpusmill why` and"
            " `corpusmill find` show that one"
        )
        return found
    if row is None:
        found.end = f"the ledger of {run.url} has no such document: the shards are of another run"
        return found
    text = run.text(run.stages[-1], row)
    if text is not None:
        found.text = shards.vocabulary.normalized(text)
        if found.text != text:
            found.composed = StageEdits(COMPOSING, composition(text, found.text))
    while True:
        found.hops.append(Hop(run, row, run.edits(row)))
        before = _before(run, row)
        if before is None:
            break
        run, row = before
    if run.source_of(row) is None:
        found.end = f"{run.url} read document partitions, and the run that made them is not there"
        return found
    if raw:
        found.raw = read_raw(run, row)
    return found


def _before(run: RunPlaces, row: Row) -> tuple[RunPlaces, Row] | None:
    """The run whose document partitions gave a document, and its row there: the one that left the same text."""
    for earlier in run.earlier:
        found = earlier.row(row.doc_id)
        if found is None:
            continue
        left = earlier.text_hash(earlier.stages[-1], found)
        if left is not None and left == run.text_hash("ingest", row):
            return earlier, found
    return None


def open_shards(
    address: Address, run: str | None, log: Callable[[str], None]
) -> tuple[Shards, RunPlaces | None]:
    """The shard set that an address is of, and its run: `run`, or what lies around the tar's path."""
    if run is not None:
        return shards_of(run, log)
    if address.path is None:
        raise UserError(f"{address}: which run? Give --run DIR, or the path of the tar in place of its name")
    folder = Folder(address.path).parent.parent.parent
    if (folder / INDEX).exists():
        return shards_of(folder.url, log)
    raise UserError(f"{address}: no shard set around that tar (SET/<source>/<split>/x.tar); give --run DIR")


def shards_of(run: str, log: Callable[[str], None]) -> tuple[Shards, RunPlaces | None]:
    """The shards of a run or of a stage's output, and that; or those in a folder of shards, and the run that it is in.
    A set that was copied away from its run has none. Raises `UserError` where there are no shards."""
    try:
        places = RunPlaces(run, log)
        return places.shards, places
    except UserError:
        folder = Folder(run)
        if not (folder / INDEX).exists():
            raise
    found = _around(folder, log)
    return (found.shards, found) if found is not None else (Shards(folder), None)


def _around(folder: Folder, log: Callable[[str], None]) -> RunPlaces | None:
    """The run whose shards a folder holds."""
    for url in (folder.url, folder.parent.url):
        try:
            places = RunPlaces(url, log)
        except UserError:
            continue
        if "shard" in places.recipe.stage_names and places.folder_of("shard") == folder:
            return places
    return None
