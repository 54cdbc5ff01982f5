"""What the runner asks of a stage. Three kinds: a source makes partitions, a local stage maps each partition
to one of the same name, a global stage looks at all of them and publishes files of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.found import documents_removed
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Shape, local
from corpusmill.schemas.manifest import PublishedFile, StageManifest, stage_key
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DECISIONS, DOCUMENTS, QUARANTINED, REMOVED


class Outcome(NamedTuple):
    """What a transform made of a table of documents.

    `len(docs) == len(kept) + removed + quarantined`: the runner checks it at every call. `decisions` has one
    row per document removed, quarantined or edited (`corpusmill.schemas.tables.DECISIONS`); a document without a row was
    kept as it came. `signals` has one row per document that came in. `counters` are summed over the run;
    those named `source/<name>/...` are shown per source.
    """

    kept: pa.Table
    decisions: pa.Table
    signals: pa.Table | None = None
    counters: dict[str, int] = {}  # noqa: RUF012 (a NamedTuple default, never written to)


class Transform(Protocol):
    """Same input, same bytes out: no clock, no random state, no dependence on other partitions."""

    def __call__(self, docs: pa.Table) -> Outcome: ...


def decisions(rows: list[dict[str, Any]] | None = None, **columns: Any) -> pa.Table:
    """A `DECISIONS` table from row dicts (few rows) or from columns (many); absent columns are null."""
    if rows is not None:
        return pa.Table.from_pylist(rows, schema=DECISIONS)
    length = len(columns["doc_id"])
    arrays = [
        pa.array(columns[f.name], f.type)
        if f.name in columns and not isinstance(columns[f.name], pa.Array | pa.ChunkedArray)
        else columns[f.name].cast(f.type)
        if f.name in columns
        else pa.nulls(length, f.type)
        for f in DECISIONS
    ]
    return pa.Table.from_arrays(arrays, schema=DECISIONS)


def with_texts(docs: pa.Table, texts: Mapping[int, str]) -> pa.Table:
    """`docs` with these texts at these rows, and their hashes."""
    if not texts:
        return docs
    rows = sorted(texts)
    new = [texts[row] for row in rows]
    mask = np.zeros(len(docs), np.bool_)
    mask[rows] = True
    for name, values in (("text", new), ("text_hash", [text_hash(text) for text in new])):
        field = DOCUMENTS.field(name)
        column = pc.replace_with_mask(docs[name], pa.array(mask), pa.array(values, field.type))
        docs = docs.set_column(docs.schema.get_field_index(name), field, column)
    return docs


def check_conservation(where: str, docs_in: int, outcome: Outcome) -> tuple[int, int]:
    """(removed, quarantined) of an outcome; raises `AssertionError` if a document got lost or doubled."""
    counts = {
        entry["values"]: entry["counts"] for entry in outcome.decisions["outcome"].value_counts().to_pylist()
    }
    removed, quarantined = counts.get(REMOVED, 0), counts.get(QUARANTINED, 0)
    if docs_in != len(outcome.kept) + removed + quarantined:
        raise AssertionError(
            f"{where}: {docs_in} documents in, but {len(outcome.kept)} kept + {removed} removed"
            f" + {quarantined} quarantined out"
        )
    return removed, quarantined


Item = TypeVar("Item")
Result = TypeVar("Result")


class Scheduler(Protocol):
    """Runs a function over items, on Dask or in this process, and shows progress.

    `function` and its items travel to other processes: module-level functions, or `functools.partial` of
    them, with small arguments (partition names and folders, never tables). Results come back in the order
    of the items. A task whose worker died is tried again; one that keeps dying raises `WorkError`. `sizes`
    (bytes per item) turns the progress into MB/s. `count`: how many tasks run at a time.
    """

    @property
    def count(self) -> int: ...

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Result]: ...

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Begin work of the driver's own that goes on while tasks run in other processes; what is returned waits for its result.
        Where tasks run in this process it is done at once."""
        ...

    def close(self, last: Callable[[], Result]) -> list[Result]:
        """End the workers that it has started, which call `last` before that; what it gave there. Further tasks start others."""
        ...


@dataclass(frozen=True)
class Partition:
    """One document partition of a finished stage."""

    name: str
    folder: Folder = field(repr=False)  # the stage's folder
    rows: int = 0
    text_bytes: int = 0
    xxh3: str = ""

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The documents; raises `WorkError` if the file's bytes are not those that were published."""
        from corpusmill.pipeline.engine.publish import read_table

        return read_table(self.folder / f"documents/{self.name}.parquet", self.xxh3, columns)


def _silent(line: str) -> None:
    pass


def _unseen(label: str, size: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Context:
    """What a global stage works with. `previous` maps the names of finished stages to their folders."""

    recipe: Recipe
    run: Folder  # the run's folder
    folder: Folder  # this stage's own folder
    partitions: Sequence[Partition]  # the documents, after the last local stage before this one
    previous: dict[str, Folder]
    scheduler: Scheduler
    log: Callable[[str], None] = field(default=_silent)  # logs a line
    # Shows work of the driver's own, by name, that advances by so many bytes (`common.task_progress`).
    work: Callable[[str, int], AbstractContextManager[None]] = field(default=_unseen)


class Stage(ABC):
    """`version` changes with every change of code that may change a byte of the output."""

    name: str
    version: str
    looks_across = False  # whether a local stage needs all partitions before it takes one

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.params: Any = getattr(recipe, self.name)

    def key_params(self) -> dict[str, Any]:
        """Everything but the inputs that the output depends on, as JSON."""
        return {**self.recipe.params_of(self.name), "seed": self.recipe.seed}

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        """What the stage found, for its line on the console: in words, from the manifest that it published in `folder`."""
        return documents_removed(manifest.counts) if manifest.partitions else ""

    def check(self) -> list[str]:
        """What can be known before the stage runs, on the machine that this is called on: that models load and inputs other
        than the sources parse. Raises `UserError`; returns warnings. The driver and every worker of a cluster call it."""
        return []

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """What the stage will do with `flow`, step by step, and what it leaves; by default nothing is known of it."""
        return Forecast([], flow)

    def task_params(self) -> dict[str, Any]:
        """Of `key_params`, what the output of one partition (or one unit of input) depends on besides that itself."""
        return self.key_params()

    def task_key(self) -> str:
        """A key of the code and parameters of one task, the same whatever other input a run has."""
        return stage_key(self.name, self.version, self.task_params(), {})


class SourceUnit(Protocol):
    """A part of the raw input that one task reads: small, picklable.

    `name` begins the names of its partitions, which sort in the order of the units; `key` is a hash of all that its
    documents depend on besides the stage's `task_params`. Both stay when other input is added or removed. `size` is of the
    input, in bytes as stored.
    """

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int: ...


MANY_BYTES = 1 << 30  # of input that must be read to plan: workers read it, after all else was checked


class SourceStage(Stage):
    """Reads raw input. Units and what each yields depend on the input alone, never on the workers.

    What the run's record has of the input, known after `inputs`: `revisions`, data sets of the Hub with the commits that are
    read; `lists`, lists of files with the xxh3_128 of their bytes.
    """

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.revisions: dict[str, str] = {}
        self.lists: dict[str, str] = {}
        # Of an earlier run and then of this one: see `corpusmill.schemas.manifest.RunInputs`.
        self.known_parts: dict[str, list[tuple[int, int, str]]] = {}
        self.part_bytes = 0

    def check_apart(self, output: Folder) -> None:
        """Raise `UserError` if the output lies within an input, which the next run would read, or holds one."""
        return None

    def text_bytes(self) -> int:
        """About how many bytes of text the input holds, by the sizes and formats of its files."""
        return 0

    def unread_bytes(self) -> int:
        """Bytes of input that `inputs` will read."""
        return 0

    def shape(self) -> Shape:
        """The input by the sizes and formats of its files."""
        text = float(self.text_bytes())
        return Shape(text, text, 1.0, 1.0, 1.0)

    def samples(self) -> list[tuple[str, Folder]]:
        """A file of each source, with the key of the recipe that names it: to be looked for on workers."""
        return []

    @abstractmethod
    def units(self) -> Sequence[SourceUnit]:
        """The whole input, in a fixed order."""

    @abstractmethod
    def inputs(self, scheduler: Scheduler | None = None) -> dict[str, str]:
        """Input file -> hash of its content, for the key. With a scheduler, workers read what is more than `MANY_BYTES`."""

    @abstractmethod
    def read(self, unit: Any) -> Iterator[tuple[str, Outcome, int]]:
        """(partition name, outcome, bytes of raw input read) in order, in bounded memory.

        `decisions` follow `corpusmill.schemas.tables.INGEST_DECISIONS`. Names are unique over all units and sort in
        the order of the units.
        """


class LocalStage(Stage):
    """Partition in, partition out. `prepare`, if a stage looks across partitions first, runs on the driver."""

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        return local(self.name, flow, known)

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        """Publish what `transform` will need under `context.folder`; (files, counters). Resumable."""
        return [], {}

    @abstractmethod
    def transform(self, folder: Folder, partition: str) -> Transform:
        """The pure function for one partition. Called in the worker; models and tables are loaded here.

        `folder` is the stage's own folder, where `prepare` left its files.
        """


class GlobalStage(Stage):
    """Publishes files of its own: split, tokenizer, shards, report."""

    @abstractmethod
    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        """Do the work, resuming what a killed run left; (files under `context.folder`, counters)."""
