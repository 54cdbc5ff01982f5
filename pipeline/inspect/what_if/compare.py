"""One partition judged twice, as the run did and as asked: counts that add up, and a few examples."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.filter.rules.judge import columns_of, judge
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import PartitionManifest
from corpusmill.schemas.tables import KEPT, REMOVED

BACK: Final = "back"  # removed by the run, kept as asked
GONE: Final = "gone"  # kept by the run, removed as asked
BESIDE: Final = ("language.code", "language.score")  # what a judgement on the language shows
Mask = npt.NDArray[np.bool_]
LEDGER_COLUMNS: Final = ["doc_id", "source", "locator", "text_bytes", "outcome", "stage"]


@dataclass(frozen=True)
class Side:
    """One way to judge."""

    rules: tuple[Rule, ...]
    params: FilterParams


@dataclass
class Tally:
    """Counts of one partition, or of all. `text`: bytes of the documents as ingested."""

    documents: Counter[tuple[str, str]] = field(default_factory=Counter)  # (source, what) -> documents
    text: Counter[tuple[str, str]] = field(default_factory=Counter)  # the same -> bytes
    rules: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (side, rule, first|failed|only)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # final (outcome, stage) of what goes
    survivors: int = 0  # of what goes: documents that dedup kept and removed copies of
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # BACK, GONE -> lowest doc_ids

    def add(self, other: Tally, most: int) -> None:
        """Merge another partition's counts into these; `most` examples of each kind stay."""
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), getattr(other, entry.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
        self.survivors += other.survivors
        for kind, rows in other.examples.items():
            both = [*self.examples.get(kind, []), *rows]
            self.examples[kind] = heapq.nsmallest(most, both, key=lambda row: str(row["doc_id"]))


@dataclass(frozen=True)
class Compare:
    """Callable for the scheduler: partition name -> `Tally`. Reads the partition's signals, decisions and ledger."""

    folder: Folder = field(repr=False)  # the filter's
    ledger: Folder = field(repr=False)
    checksums: dict[str, str] = field(repr=False)  # of the ledger's files
    before: Side = field(repr=False)
    after: Side = field(repr=False)
    deduped: Folder | None = field(default=None, repr=False)  # dedup's, where it comes after the filter
    examples: int = 5

    def __call__(self, name: str) -> Tally:
        """Raises `WorkError` where the stored signals do not give the stored decisions."""
        part = PartitionManifest.model_validate_json((self.folder / f"parts/{name}.json").read())
        xxh3 = {file.path: file.xxh3 for file in part.files}
        judged = dict.fromkeys(
            name
            for side in (self.before, self.after)
            for rule in side.rules
            for name in columns_of(rule.signal)
        )
        columns = list(dict.fromkeys(["doc_id", *judged, *BESIDE]))
        signals = self._read(f"signals/{name}.parquet", xxh3, columns)
        decided = self._read(f"decisions/{name}.parquet", xxh3, ["doc_id", "outcome"])
        rows = f"{name}.parquet"
        documents = read_table(self.ledger / rows, self.checksums.get(rows, ""), LEDGER_COLUMNS)
        row = pc.index_in(signals["doc_id"], documents["doc_id"])
        if row.null_count:
            raise WorkError(
                f"{self.ledger}/{name}.parquet: documents of the filter are missing; run the recipe again"
            )
        documents = documents.take(row).combine_chunks()
        tally = Tally()
        now, was = self._judge(tally, "before", documents, signals, self.before)
        then, would = self._judge(tally, "after", documents, signals, self.after)
        removed = decided.filter(pc.equal(decided["outcome"], REMOVED))["doc_id"].combine_chunks()
        if not np.array_equal(now, ~np.asarray(pc.is_in(signals["doc_id"], removed))):
            raise WorkError(
                f"{self.folder}/signals/{name}.parquet: judged as the run did, it does not give the run's decisions;"
                " run the recipe again"
            )
        _count(tally, documents, now, then)
        for kind, mask, decisions in ((BACK, ~now & then, was), (GONE, now & ~then, would)):
            moved = documents.filter(pa.array(mask))
            tally.examples[kind] = _examples(moved, decisions, self.examples)
        if self.deduped is not None and len(moved):
            tally.survivors = _survivors(self.deduped / f"documents/{name}.parquet", moved)
        return tally

    def _read(self, path: str, xxh3: dict[str, str], columns: Sequence[str]) -> pa.Table:
        return read_table(self.folder / path, xxh3.get(path, ""), columns)

    def _judge(
        self, tally: Tally, name: str, documents: pa.Table, signals: pa.Table, side: Side
    ) -> tuple[Mask, pa.Table]:
        """(bool[D] kept, decisions), and the counts of rules in `tally`."""
        kept, decisions, counters = judge(documents, signals, side.rules, side.params)
        for key, count in counters.items():
            if key.startswith("rule/"):
                rule, _, what = key.removeprefix("rule/").rpartition("/")
                tally.rules[name, rule, what] += count
        return kept, decisions


def _count(tally: Tally, documents: pa.Table, now: Mask, then: Mask) -> None:
    sources = documents["source"].combine_chunks().dictionary_encode()
    sizes = documents["text_bytes"].to_numpy().astype(np.int64)
    codes, names = sources.indices.to_numpy(), sources.dictionary.to_pylist()
    every = np.ones(len(documents), np.bool_)
    masks = {"in": every, "before": now, "after": then, BACK: ~now & then, GONE: now & ~then}
    for what, mask in masks.items():
        counts = np.bincount(codes[mask], minlength=len(names)).tolist()
        text = [int(sizes[mask & (codes == code)].sum()) for code in range(len(names))]
        for source, count, size in zip(names, counts, text, strict=True):
            tally.documents[source, what] += count
            tally.text[source, what] += size
    gone = documents.filter(pa.array(masks[GONE]))
    ended = gone.group_by(["outcome", "stage"], use_threads=False).aggregate([([], "count_all")])
    for row in ended.to_pylist():
        tally.ends[row["outcome"], row["stage"] if row["outcome"] != KEPT else ""] += row["count_all"]


def _survivors(file: Folder, gone: pa.Table) -> int:
    """How many of `gone` lead a cluster of copies in dedup's documents. Their texts are not read."""
    with file.open() as stream:  # on this thread alone: see `publish.parse_table`
        kept = pq.ParquetFile(stream, pre_buffer=False).read(["doc_id", "cluster_id"], use_threads=False)
    leads = kept.filter(pc.is_valid(kept["cluster_id"]))
    return int(pc.sum(pc.is_in(gone["doc_id"], leads["doc_id"].combine_chunks())).as_py() or 0)


def _examples(documents: pa.Table, decisions: pa.Table, most: int) -> list[dict[str, Any]]:
    """The first `most` documents by doc_id, each with the rule that removes it on the side where one does."""
    order = pc.sort_indices(documents["doc_id"].cast(pa.binary()))
    chosen = documents.take(order[:most]).select(["doc_id", "source", "locator", "outcome", "stage"])
    where = pc.index_in(chosen["doc_id"], decisions["doc_id"].combine_chunks())
    named = decisions.select(["rule", "value", "threshold", "detail"]).take(where)
    rows = [a | b for a, b in zip(chosen.to_pylist(), named.to_pylist(), strict=True)]
    return [{**row, "doc_id": row["doc_id"].hex()} for row in rows]
