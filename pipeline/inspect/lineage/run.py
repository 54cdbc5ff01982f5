"""What a run, or a stage's command, keeps of a document: its ledger row, its text after any stage, what it was made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import parse
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.hub import SCHEME, pin
from corpusmill.common.ids import doc_id, named_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.copies import Copy, copies_of, named
from corpusmill.pipeline.engine.layout import (
    INPUTS,
    is_relative,
    parse_inputs,
    recipe_of,
    stage_folders,
    where_made,
)
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.inspect.lineage.edits import StageEdits, by_stage
from corpusmill.pipeline.inspect.lineage.ids import Ids, key_of_id, key_of_text
from corpusmill.pipeline.inspect.lineage.shards import Requests, Shards
from corpusmill.schemas.manifest import EXPIRED, Expired, RunInputs, StageManifest, manifest_name
from corpusmill.schemas.recipe import FOLDERS
from corpusmill.schemas.sources import Source
from corpusmill.schemas.tables import KEPT

_HELD = 4  # tables of partitions kept, for documents that lie together


class Row(NamedTuple):
    """A row of the ledger, and the partition that it is in."""

    partition: str
    values: dict[str, Any]

    @property
    def doc_id(self) -> bytes:
        found: bytes = self.values["doc_id"]
        return found


@dataclass
class RunPlaces:
    """A finished run or a stage's output; raises `UserError` where there is none. `until`: its last stage that counts."""

    url: str
    log: Callable[[str], None]
    until: str | None = None
    requests: Requests = field(default_factory=Requests)
    _tables: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict, repr=False)
    _expired: set[str] = field(default_factory=set, repr=False)  # stages of which that was logged

    def __post_init__(self) -> None:
        self.recipe, self.alone = recipe_of(self.url)

    @property
    def folder(self) -> Folder:
        return Folder(self.url)

    @property
    def stages(self) -> list[str]:
        """The local stages, in their order, up to `until`."""
        local: list[str] = self.recipe.local
        return local[: local.index(self.until) + 1] if self.until in local else local

    def folder_of(self, stage: str) -> Folder:
        """Where a stage published."""
        if self.alone:
            return Folder(stage_folders(self.recipe.stage_names, self.url)[stage])
        return self.folder / FOLDERS.get(stage, stage)

    @cached_property
    def shards(self) -> Shards:
        """Its shard set; raises `UserError` if it has none."""
        if "shard" not in self.recipe.stage_names:
            stages = ", ".join(self.recipe.stage_names)
            raise UserError(f"{self.url}: no shards there: its stages are {stages}")
        return Shards(self.folder_of("shard"), self.requests)

    @cached_property
    def ids(self) -> Ids:
        """The index of its documents' ids."""
        ledger = self.folder_of("ledger")
        if not (ledger / manifest_name("ledger")).exists():
            raise UserError(
                f"{ledger}: no ledger there; give the folder of a finished run, such as runs/quickstart"
            )
        return Ids(self.folder, ledger, self.requests, self.log)

    @cached_property
    def sources(self) -> list[str]:
        """Names of the sources of its documents: the recipe's, and those that document partitions brought along."""
        data = self.requests.read(self.folder_of("ingest") / "manifest.json")
        return sorted({*self.recipe.sources, *StageManifest.model_validate_json(data).per_source})

    def row(self, wanted: bytes) -> Row | None:
        """The ledger row of a doc_id."""
        return next((row for row in self._rows([key_of_id(wanted)]) if row.doc_id == wanted), None)

    def rows(self, named: str) -> list[Row]:
        """The ledger rows whose doc_id (32 hex digits), own id, locator or URL is `named`, kept documents first."""
        by_locator = [doc_id(source, named) for source in self.sources] if "#" in named else []
        raw = named_id(named)
        ids = by_locator if raw is None else [*by_locator, raw]
        found = [
            row
            for row in self._rows([*map(key_of_id, ids), key_of_text(named)])
            if row.doc_id in ids
            or named in (row.values["source_id"], row.values["url"], row.values["locator"])
        ]
        return sorted(found, key=lambda row: row.values["outcome"] != KEPT)

    def copy(self, doc_id: bytes) -> Copy | None:
        """What `augment` says of a copy that it made; None for any other document."""
        if "augment" not in self.recipe.stage_names:
            return None
        made = (one for one in copies_of(self.folder_of("augment"), [doc_id]) if one.doc_id == doc_id)
        return next(made, None)

    def text_of_copy(self, copy: Copy) -> str | None:
        """The text of a copy, as it is in the shards; None if its documents are no longer there."""
        row = Row(named(copy.partition), {"doc_id": copy.doc_id})
        found: str | None = self._value("augment", row, "text")
        return found

    def _rows(self, keys: Sequence[int]) -> Iterator[Row]:
        for partition, place in self.ids.places(keys):
            table = self._table(self.folder_of("ledger") / f"{partition}.parquet")
            yield Row(partition, table.slice(place, 1).to_pylist()[0])

    def text(self, stage: str, row: Row) -> str | None:
        """A document's text after a stage, from the partition of the same name; None if the stage did not keep it, or its
        documents are no longer there."""
        found: str | None = self._value(stage, row, "text")
        return found

    def text_hash(self, stage: str, row: Row) -> bytes | None:
        """The hash of that text, without reading it."""
        found: bytes | None = self._value(stage, row, "text_hash")
        return found

    def _value(self, stage: str, row: Row, column: str) -> Any:
        file = self.folder_of(stage) / f"documents/{row.partition}.parquet"
        try:
            table = self._table(file, ("doc_id", column))
        except FileNotFoundError:
            self._say_expired(stage)
            return None
        where = pc.index(table["doc_id"], pa.scalar(row.doc_id, table["doc_id"].type)).as_py()
        return None if where < 0 else table[column][where].as_py()

    def _say_expired(self, stage: str) -> None:
        """Log once why the text of a stage is not there."""
        gone = parse(Expired, self.folder_of(stage) / EXPIRED) if stage not in self._expired else None
        self._expired.add(stage)
        if gone is not None:
            self.log(f"{self.folder_of(stage)}: its text was deleted on purpose ({gone.why})")

    def edits(self, row: Row) -> list[StageEdits]:
        """What each stage after ingest did to a document's text."""
        stages = self.stages
        kept = [edit for edit in row.values["edits"] or () if edit["stage"] in stages or self.until is None]
        return by_stage(stages[1:], kept)

    def source_of(self, row: Row) -> Source | None:
        """The recipe's entry for a document's source; None for one that came in document partitions, named there."""
        return self.recipe.sources.get(row.values["source"])

    @cached_property
    def _inputs(self) -> RunInputs:
        """The record of its input files; empty if there is none."""
        try:
            return parse_inputs(self.requests.read(self.folder / INPUTS))
        except FileNotFoundError:
            return RunInputs(files={})

    @cached_property
    def made_in(self) -> str:
        """The directory in which the run was made, if its recipe has relative paths and it is known; else ""."""
        return where_made(self.folder, self._inputs.made_in)

    @property
    def revisions(self) -> dict[str, str]:
        """Data sets of the Hub, each with the commit that the run read."""
        return dict(self._inputs.revisions)

    def places_of(self, path: str) -> list[str]:
        """Where a path of the recipe may lead: a relative one from where the run was made, then from here; of the Hub, to the
        commit that the run read."""
        if path.startswith(SCHEME):
            with suppress(UserError, WorkError):
                return [pin(path, self.revisions)]
        if not is_relative(path):
            return [path]
        made = [f"{self.made_in.rstrip('/')}/{path}"] if self.made_in else []
        return list(dict.fromkeys([*made, os.path.abspath(path)]))  # noqa: PTH100 (links stay links)

    @cached_property
    def earlier(self) -> list[RunPlaces]:
        """The runs and outputs whose document partitions this one read."""
        paths = [path for source in self.recipe.sources.values() for path in source.paths]
        places = dict.fromkeys(place for path in paths for place in self.places_of(path))
        found = [made for place in places if (made := _made_by(place, self.log)) is not None]
        for made in found:
            made.requests = self.requests
        return found

    def _table(self, file: Folder, columns: tuple[str, ...] = ()) -> pa.Table:
        key = (file.url, columns)
        if key not in self._tables:
            while len(self._tables) >= _HELD:
                del self._tables[next(iter(self._tables))]
            self._tables[key] = parse_table(self.requests.read(file), columns or None)
        return self._tables[key]


def _made_by(path: str, log: Callable[[str], None]) -> RunPlaces | None:
    """The run or output that published the document partitions at a path, up to the stage that did."""
    parts = path.rstrip("/").split("/")
    if "documents" not in parts:
        return None
    folder = "/".join(parts[: len(parts) - 1 - parts[::-1].index("documents")]) or "."
    for url, until in ((folder, None), (str(Folder(folder).parent), Folder(folder).name)):
        try:
            return RunPlaces(url, log, until)
        except UserError:
            continue
    return None
