"""One pass over the ledger of a partition: every count of the report, small enough to send between processes; among them which
rules removed documents: first, together, and alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED

UNNAMED = "unnamed"


class Rule(NamedTuple):
    """A rule of a stage, as `failed` and `rule` name it."""

    stage: str
    rule: str


@dataclass
class Failures:
    """Counts of removed documents."""

    failed: Counter[Rule] = field(default_factory=Counter)
    alone: Counter[Rule] = field(default_factory=Counter)  # removed, and no other rule of the stage failed
    overlap: Counter[tuple[Rule, Rule]] = field(
        default_factory=Counter
    )  # failed both; each pair once, sorted
    text: Counter[tuple[Rule, str, str]] = field(
        default_factory=Counter
    )  # (rule, first | failed | alone, source) -> bytes of text as ingested
    spread: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # signal -> 0.5 % and 99.5 % quantile

    def add(self, other: Failures) -> None:
        """Merge another partition's failures into these."""
        self.failed.update(other.failed)
        self.alone.update(other.alone)
        self.overlap.update(other.overlap)
        self.text.update(other.text)
        for name, (low, high) in other.spread.items():
            mine_low, mine_high = self.spread.get(name, (low, high))
            self.spread[name] = (min(low, mine_low), max(high, mine_high))


def rule_labels(stage: Any, rule: Any) -> Any:
    """`stage` NUL `rule` for every row: one string to group and sort by."""
    return pc.binary_join_element_wise(stage, pc.fill_null(rule, UNNAMED), "\0")


def failure_matrix(removed: pa.Table) -> tuple[list[Rule], npt.NDArray[np.float32]]:
    """The rules that removed documents failed, sorted, and float32[documents, rules]: 1 where failed.

    A document whose stage gave no `failed` list failed the rule that removed it.
    """
    lists = removed["failed"].combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(lists)
    silent = np.setdiff1d(np.arange(len(removed)), rows)
    bare = removed.take(silent)
    stage, rule = (pa.concat_arrays([flat.field(n), bare[n].combine_chunks()]) for n in ("stage", "rule"))
    coded = rule_labels(stage, rule).dictionary_encode()
    names = coded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    hit = np.zeros((len(removed), len(names)), dtype=np.float32)
    hit[np.concatenate([rows, silent]).astype(np.int64), coded.indices.to_numpy()] = 1
    return [Rule(*names[i].split("\0", 1)) for i in order], hit[:, order]


def count_failures(removed: pa.Table, signals: pa.Table | None) -> Failures:
    """The failures of one partition; `removed` are the removed rows of its ledger."""
    found = Failures()
    if signals is not None:
        _spread(found, signals)
    rules, hit = failure_matrix(removed)
    if not rules:
        return found
    both = (hit.T @ hit).round().astype(np.int64)
    same_stage = np.array([[a.stage == b.stage for b in rules] for a in rules], dtype=np.float32)
    only = (hit > 0) & (hit @ same_stage == 1)
    decided = _codes(removed["stage"], [rule.stage for rule in rules])
    first = _codes(rule_labels(removed["stage"], removed["rule"]), ["\0".join(rule) for rule in rules])
    masks = {
        "first": first,
        "failed": hit > 0,
        "alone": only & decided,
    }
    for i, rule in enumerate(rules):
        found.failed[rule] += int(both[i, i])
        found.alone[rule] += int(masks["alone"][:, i].sum())
        for j in range(i + 1, len(rules)):
            if both[i, j]:
                found.overlap[rule, rules[j]] += int(both[i, j])
    _weigh(found, removed, rules, masks)
    return found


def _codes(column: pa.ChunkedArray, names: list[str]) -> npt.NDArray[np.bool_]:
    """bool[documents, names]: where a column holds that name."""
    place = pc.fill_null(pc.index_in(column, pa.array(sorted(set(names)), pa.string())), -1).to_numpy()
    wanted = np.searchsorted(sorted(set(names)), names)
    return np.asarray(place[:, None] == wanted[None, :])


def _weigh(
    found: Failures, removed: pa.Table, rules: list[Rule], masks: dict[str, npt.NDArray[np.bool_]]
) -> None:
    """Bytes of text behind the counts, by source: those that turn bytes into tokens need it."""
    sizes = pc.fill_null(removed["text_bytes"], 0).to_numpy().astype(np.int64)
    for source in pc.unique(removed["source"]).to_pylist():
        here = np.flatnonzero(pc.equal(removed["source"], source))
        for what, mask in masks.items():
            sums = sizes[here] @ mask[here]
            found.text.update(
                {(rule, what, source): int(n) for rule, n in zip(rules, sums, strict=True) if n}
            )


def numeric_columns(signals: pa.Table) -> dict[str, npt.NDArray[np.float64]]:
    """Signal -> its values; missing ones are NaN."""
    return {
        f.name: np.asarray(signals[f.name].to_numpy(), np.float64)
        for f in signals.schema
        if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)
    }


def _spread(found: Failures, signals: pa.Table) -> None:
    complete: dict[str, npt.NDArray[np.float64]] = {}
    for name, values in numeric_columns(signals).items():
        known = np.isfinite(values)
        if known.all():
            complete[name] = values
        elif known.any():
            (found.spread[name],) = _bulk(values[None, known])
    if complete and len(signals):  # together: a call for each signal would cost more than the work
        found.spread.update(zip(complete, _bulk(np.stack(list(complete.values()))), strict=True))


def _bulk(values: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """The 0.5 % and 99.5 % quantile of each row, to the bit those of `np.quantile`, with one sort for both."""
    ordered = np.sort(values, axis=1)
    last, found = values.shape[1] - 1, []
    for share in (0.005, 0.995):
        place = int(share * last)
        part = share * last - place
        low, high = ordered[:, place], ordered[:, min(place + 1, last)]
        step = high - low
        found.append((low + step * part if part < 0.5 else high - step * (1 - part)).tolist())
    return list(zip(*found, strict=True))


LENGTH_BINS = 48  # bin b holds texts of 2^b to 2^(b+1) - 1 bytes; empty ones are in bin 0
JACCARD_BINS = 50
PICKED = ("doc_id", "source", "locator", "stage", "rule", "value", "threshold", "detail")


@dataclass(frozen=True)
class Places:
    """Where the tables of a run lie. A folder is None where the recipe has no such stage."""

    ledger: Folder
    ingested: Folder
    kept: Folder  # the last stage that passes documents on
    signals: Folder | None


@dataclass
class Survey:
    """Counts over one partition, or over all of them. Keys of the counters are given with each."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # (source, outcome) -> records
    text_bytes: Counter[tuple[str, str]] = field(
        default_factory=Counter
    )  # the same -> bytes of ingested text
    first: Counter[tuple[Rule, str, str]] = field(
        default_factory=Counter
    )  # (rule, outcome, source) -> records
    failures: Failures = field(default_factory=Failures)
    lengths: Counter[tuple[str, int]] = field(default_factory=Counter)  # (outcome, bin) -> documents
    languages: Counter[tuple[str, str]] = field(default_factory=Counter)  # ("in" | "kept", code) -> documents
    language_bytes: Counter[str] = field(default_factory=Counter)  # code -> bytes of kept documents
    edits: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (stage, source, kind) -> spans
    edit_chars: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # the same -> characters
    edited: Counter[tuple[str, str]] = field(default_factory=Counter)  # (stage, source) -> documents
    jaccard: Counter[int] = field(default_factory=Counter)  # bin -> near-duplicates removed
    picks: dict[tuple[str, str, str], list[dict[str, Any]]] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)  # the least similar pairs
    typical: list[dict[str, Any]] = field(default_factory=list)  # pairs chosen by id alone

    def add(self, other: Survey, samples: int) -> None:
        """Merge another partition's survey into this one."""
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), getattr(other, entry.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
        self.failures.add(other.failures)
        for key, rows in other.picks.items():
            self.picks[key] = smallest([*self.picks.get(key, []), *rows], samples, ("doc_id",))
        self.pairs = smallest([*self.pairs, *other.pairs], samples, ("jaccard", "doc_id"))
        self.typical = smallest([*self.typical, *other.typical], samples, ("doc_id",))


def smallest(rows: Iterable[dict[str, Any]], count: int, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """The `count` rows that come first by `keys`. A doc_id is a hash, so that first by it is a fair draw."""
    return heapq.nsmallest(count, rows, key=lambda row: tuple(row[key] for key in keys))


def read_columns(file: Folder, columns: list[str]) -> pa.Table:
    """These columns of a Parquet file (those that it has), without reading the others."""
    with file.open() as stream:
        parquet = pq.ParquetFile(stream, pre_buffer=False)  # on this thread alone: see `publish.parse_table`
        known = set(parquet.schema_arrow.names)
        return parquet.read([name for name in columns if name in known], use_threads=False)


def survey(places: Places, samples: int, name: str) -> Survey:
    """The survey of partition `name`; `samples` rows are picked for each rule and each source's kept."""
    ledger = read_columns(
        places.ledger / f"{name}.parquet",
        ["doc_id", "source", "locator", "text_bytes", "outcome", "stage", "rule", "value", "threshold",
         "detail", "failed", "duplicate_of", "jaccard", "edits"],
    )  # fmt: skip
    found = Survey()
    _outcomes(found, ledger)
    _lengths(found, ledger)
    _edits(found, ledger)
    _pick(found, ledger, samples)
    signals = _signals(places, name)
    removed = ledger.filter(pc.equal(ledger["outcome"], REMOVED))
    found.failures = count_failures(removed, signals)
    _languages(
        found,
        ledger,
        read_columns(places.kept / f"documents/{name}.parquet", ["doc_id", "language"]),
        signals,
    )
    return found


def _signals(places: Places, name: str) -> pa.Table | None:
    if places.signals is None:
        return None
    return read_table(places.signals / f"signals/{name}.parquet")


def _counts(table: pa.Table, by: list[str], total: str | None = None) -> list[dict[str, Any]]:
    """Rows per group, and the sum of a column."""
    wanted: list[Any] = [([], "count_all")]
    if total:
        wanted.append((total, "sum"))
    rows: list[dict[str, Any]] = table.group_by(by, use_threads=False).aggregate(wanted).to_pylist()
    return rows


def _outcomes(found: Survey, ledger: pa.Table) -> None:
    for row in _counts(ledger, ["source", "outcome"], "text_bytes"):
        found.outcomes[row["source"], row["outcome"]] += row["count_all"]
        found.text_bytes[row["source"], row["outcome"]] += row["text_bytes_sum"] or 0
    decided = ledger.filter(pc.not_equal(ledger["outcome"], KEPT))
    for row in _counts(decided, ["stage", "rule", "outcome", "source"]):
        rule = Rule(row["stage"], row["rule"] or UNNAMED)
        found.first[rule, row["outcome"], row["source"]] += row["count_all"]


def _lengths(found: Survey, ledger: pa.Table) -> None:
    known = ledger.filter(pc.is_valid(ledger["text_bytes"]))
    bins = length_bins(known["text_bytes"].to_numpy())
    table = pa.table({"outcome": known["outcome"], "bin": bins})
    for row in _counts(table, ["outcome", "bin"]):
        found.lengths[row["outcome"], row["bin"]] += row["count_all"]


def length_bins(sizes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Bin of each length in bytes: the exponent of the power of two at or below it."""
    exponents = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1] - 1
    bins: npt.NDArray[np.int64] = np.minimum(exponents, LENGTH_BINS - 1).astype(np.int64)
    return bins


def _edits(found: Survey, ledger: pa.Table) -> None:
    lists = ledger["edits"].combine_chunks()
    flat = pc.list_flatten(lists)
    if not len(flat):
        return
    rows = pc.list_parent_indices(lists)
    spans = pa.table(
        {
            "row": rows,
            "source": ledger["source"].take(rows),
            **{n: flat.field(n) for n in ("stage", "kind", "length")},
        }
    )
    for row in _counts(spans, ["stage", "source", "kind"], "length"):
        found.edits[row["stage"], row["source"], row["kind"]] += row["count_all"]
        found.edit_chars[row["stage"], row["source"], row["kind"]] += row["length_sum"]
    for row in _counts(spans.group_by(["row", "stage", "source"]).aggregate([]), ["stage", "source"]):
        found.edited[row["stage"], row["source"]] += row["count_all"]


def _pick(found: Survey, ledger: pa.Table, samples: int) -> None:
    """Rows to show: the first by doc_id of each rule, of each source's kept, of each edit; and pairs."""
    names = [*PICKED, "duplicate_of", "jaccard"]
    ordered = ledger.take(pc.sort_indices(ledger["doc_id"].cast(pa.binary())))
    for outcome, by in ((KEPT, "source"), (REMOVED, "rule"), (QUARANTINED, "rule")):
        rows = ordered.filter(pc.equal(ordered["outcome"], outcome))
        groups = rows["source"] if by == "source" else rule_labels(rows["stage"], rows["rule"])
        for entry in pc.unique(groups).to_pylist():
            chosen = rows.filter(pc.equal(groups, entry)).slice(0, samples).select(names).to_pylist()
            stage, _, rule = entry.rpartition("\0")
            found.picks[outcome, stage, rule] = chosen
    _pick_edits(found, ordered, samples)
    copies = ordered.filter(pc.is_valid(ordered["duplicate_of"])).select(names)
    near = copies.filter(pc.fill_null(pc.less(copies["jaccard"], 1.0), False))
    bins = np.minimum((near["jaccard"].to_numpy() * JACCARD_BINS).astype(np.int64), JACCARD_BINS - 1)
    found.jaccard.update(bins.tolist())
    least = near.take(pc.sort_indices(near, [("jaccard", "ascending")])).slice(0, 4 * samples).to_pylist()
    found.pairs = smallest(least, samples, ("jaccard", "doc_id"))
    found.typical = near.slice(0, samples).to_pylist()


def _pick_edits(found: Survey, ordered: pa.Table, samples: int) -> None:
    """Kept documents by the kind of their first edit: only that one's place is known after it."""
    kept = ordered.filter(pc.equal(ordered["outcome"], KEPT))
    lists = kept["edits"].combine_chunks()
    flat = pc.list_flatten(lists)
    if not len(flat):
        return
    spans = pa.table(
        {"row": pc.list_parent_indices(lists), **{n: flat.field(n) for n in ("stage", "kind", "offset")}}
    ).sort_by([("row", "ascending"), ("offset", "ascending")])
    spans = spans.filter(pc.equal(spans["stage"], "redact"))  # other stages count offsets in another text
    row = spans["row"].to_numpy()
    first = spans.take(np.flatnonzero(np.diff(row, prepend=-1)))
    for kind in sorted(pc.unique(first["kind"]).to_pylist()):
        chosen = first.filter(pc.equal(first["kind"], kind)).slice(0, samples)
        rows = kept.take(chosen["row"]).select(["doc_id", "source", "locator"])
        found.picks["edited", "redact", kind] = rows.append_column("offset", chosen["offset"]).to_pylist()


def _languages(found: Survey, ledger: pa.Table, kept: pa.Table, signals: pa.Table | None) -> None:
    names = (
        [f.name for f in signals.schema if f.name.startswith("language.") and pa.types.is_string(f.type)]
        if signals
        else []
    )
    if signals is not None and names:
        for entry in pc.value_counts(pc.fill_null(signals[names[0]], "und").combine_chunks()).to_pylist():
            found.languages["in", entry["values"]] += entry["counts"]
    if "language" not in kept.column_names or kept["language"].null_count == len(kept):
        return
    sizes = ledger["text_bytes"].take(pc.index_in(kept["doc_id"], ledger["doc_id"]))
    table = pa.table({"language": pc.fill_null(kept["language"], "und"), "bytes": sizes})
    for row in _counts(table, ["language"], "bytes"):
        found.languages["kept", row["language"]] += row["count_all"]
        found.language_bytes[row["language"]] += row["bytes_sum"] or 0
