"""Occurrences of the index's n-grams in a partition (`scan`: hits), and what they amount to (`judge`: matches): how much of
which item stands in which document, and whether that is enough. Hits are found once and judged again whenever thresholds
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import parse, whole
from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate import ngram_kernels
from corpusmill.pipeline.decontaminate.index import Index, load
from corpusmill.pipeline.decontaminate.near_kernels import sift
from corpusmill.pipeline.decontaminate.units import coverage
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.shuffle import distinct, starts_of
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.decontamination import HitsRecord
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.stages import NEAR_FLOOR, DecontaminateParams
from corpusmill.schemas.tables import HITS, NEAR_HITS

NUMBERS, NEAR_NUMBERS = HITS.names[2:], NEAR_HITS.names[2:]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Job:
    """Settings shared by all tasks."""

    folder: Folder
    key: str  # of the index
    params: DecontaminateParams


def find_hits(text: pa.Array, index: Index) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hits in a large_string array, as the numeric columns of `HITS`, in the order of the texts' words, and those of
    `NEAR_HITS`."""
    offsets, data = view(text)
    holding, near = sift(offsets, data, rule(), index.table, index.seeds, NEAR_FLOOR)
    found = ngram_kernels.matches(offsets, data, np.flatnonzero(holding), rule(), index.table)
    columns = dict(zip(NUMBERS, found.T, strict=True)), dict(zip(NEAR_NUMBERS, near.T, strict=True))
    for own in columns:
        in_characters(own, offsets, data)
    return columns


def in_characters(columns: dict[str, Any], offsets: Any, data: Any) -> None:
    """Turn `start` and `stop` from bytes of each text into characters; rows ascend."""
    for row in distinct(columns["row"]).tolist():
        own = data[offsets[row] : offsets[row + 1]]
        first, last = np.searchsorted(columns["row"], [row, row + 1])
        # Characters before each byte: bytes that continue one are none.
        before = np.r_[0, np.cumsum((own & 0xC0) != 0x80)]
        for name in ("start", "stop"):
            columns[name][first:last] = before[columns[name][first:last]]


def scan(job: Job, partition: Partition) -> list[PublishedFile]:
    """Publish the hits of a partition, unless they are there; their files and the record of these."""
    key = hash_json([job.key, partition.name, partition.xxh3])
    marker = f"hits/{partition.name}.json"
    known = parse(HitsRecord, job.folder / marker)
    if known is None or known.key != key or not whole(job.folder, [known.file, known.near]):
        index = load(job.folder, job.key, job.params)
        docs = partition.read(["doc_id", "source", "text"])
        grams, near, first = [HITS.empty_table()], [NEAR_HITS.empty_table()], 0
        for chunk in docs["text"].chunks:
            for columns, tables in zip(find_hits(chunk, index), (grams, near), strict=True):
                if len(columns["row"]):
                    columns["row"] = columns["row"] + first
                    tables.append(_hits_table(docs, columns, tables[0].schema))
            first += len(chunk)
        file = publish_table(job.folder, f"hits/{partition.name}.parquet", pa.concat_tables(grams))
        other = publish_table(job.folder, f"hits/{partition.name}.near.parquet", pa.concat_tables(near))
        known = HitsRecord(key=key, file=file, near=other)
    # Rewritten also where nothing was scanned: it is the same, and its name, size and checksum are returned.
    data = (known.model_dump_json(indent=1) + "\n").encode()
    return [known.file, known.near, publish_bytes(job.folder, marker, data)]


def _hits_table(docs: pa.Table, columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    where = pa.array(columns["row"])
    arrays = [one_array(docs[name].take(where)) for name in schema.names[:2]]
    numbers = [pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names[2:]]
    return pa.Table.from_arrays([*arrays, *numbers], schema=schema)


class Judged(dict[str, Any]):
    """Columns of matches, one entry per (row, unit), ascending: row, unit, matched, grams, words, of, value, found, acts,
    near, and `spans`: (bounds int64[n + 1], starts, stops)."""


def remaining(index: Index, dropped: npt.NDArray[np.bool_]) -> tuple[I64, I64]:
    """(int64[U], int64[U]): the grams of each unit that are not dropped, and its words that lie in one of them."""
    if not dropped.any():
        return index.unit_grams, index.unit_covered
    sizes, units = np.diff(index.table.gram_units), len(index.unit_grams)
    live = ~np.repeat(dropped, sizes)
    unit, place = index.table.units[live].astype(np.int64), index.table.places[live].astype(np.int64)
    length = np.repeat(index.table.lengths, sizes)[live]
    return np.bincount(unit, minlength=units), coverage(unit, place, length, units)


def judge(
    hits: Mapping[str, Any], index: Index, params: DecontaminateParams, dropped: npt.NDArray[np.bool_]
) -> Judged:
    """Judge hits (arrays by the names of `HITS`); grams that are `dropped` (bool[G]) count nowhere."""
    live = ~dropped[hits["gram"]] if len(hits["gram"]) else np.zeros(0, bool)
    row, unit, gram, place, start, stop, paragraph, of = (
        np.asarray(hits[name])[live].astype(np.int64)
        for name in ("row", "unit", "gram", "place", "start", "stop", "paragraph", "of")
    )
    order = np.lexsort((stop, start, gram, unit, row))
    row, unit, gram, start, stop = row[order], unit[order], gram[order], start[order], stop[order]
    place, paragraph, of = place[order], paragraph[order], of[order]
    new = starts_of(row, unit)
    pair = np.cumsum(new) - 1
    group_starts = np.flatnonzero(new)
    distinct = starts_of(pair, gram)
    matched = np.bincount(pair[distinct], minlength=len(group_starts))
    words = coverage(pair[distinct], place[distinct], index.table.lengths[gram[distinct]], len(group_starts))
    grams, coverable = (totals[unit[group_starts]] for totals in remaining(index, dropped))
    value, counted = words / np.maximum(coverable, 1), np.ones(len(row), bool)
    if params.measure == "ngrams":
        value = matched / np.maximum(grams, 1)
    elif params.measure == "paragraph":
        shares = paragraph_shares(row, paragraph, of, start)
        shares[index.table.lengths[gram] < params.ngram] = 1.0  # a short item is matched whole or not at all
        value = np.zeros(len(group_starts))
        np.maximum.at(value, pair, shares)
        counted = shares >= params.threshold
    found = value >= params.threshold
    acts = found & wanted(index, unit[group_starts], params)
    return Judged(
        row=row[group_starts], unit=unit[group_starts], matched=matched, grams=grams, words=words, of=coverable, value=value,
        found=found, acts=acts, near=np.zeros(len(value), bool), spans=spans_of(pair, start, stop, counted | ~found[pair], len(group_starts)),
    )  # fmt: skip


def wanted(index: Index, units: I64, params: DecontaminateParams) -> npt.NDArray[np.bool_]:
    """Whether the part of each unit is one that makes a document count."""
    parts = pc.is_in(index.units["part"].take(pa.array(units)), pa.array(params.parts))
    return np.asarray(parts, bool)


def paragraph_shares(row: I64, paragraph: I64, of: I64, start: I64) -> npt.NDArray[np.float64]:
    """float64[hits]: of the paragraph that a hit lies in, the share of its n-grams that were found; 0 for a hit that
    lies in none."""
    order = np.lexsort((start, paragraph, row))
    group = np.cumsum(starts_of(row[order], paragraph[order])) - 1
    distinct = starts_of(group, start[order])
    shares = np.zeros(len(row))
    if len(row):
        found = np.bincount(group[distinct])
        inside = (paragraph[order] >= 0) & (of[order] > 0)
        shares[order] = np.where(inside, np.minimum(1.0, found[group] / np.maximum(of[order], 1)), 0.0)
    return shares


def spans_of(
    pair: I64, start: I64, stop: I64, counted: npt.NDArray[np.bool_], pairs: int
) -> tuple[I64, I64, I64]:
    """(bounds int64[pairs + 1], starts, stops): the runs of matched characters of each pair."""
    pair, start, stop = pair[counted], start[counted], stop[counted]
    order = np.lexsort((stop, start, pair))
    pair, start, stop = pair[order], start[order], stop[order]
    # The furthest stop so far inside each pair: pairs are lifted apart so that one running maximum does.
    lift = pair * (int(stop.max(initial=0)) + 2)
    reach = np.maximum.accumulate(stop + lift)
    new = starts_of(pair)
    new[1:] |= start[1:] + lift[1:] > reach[:-1]
    group_starts = np.flatnonzero(new)
    last = np.r_[group_starts[1:], len(pair)][: len(group_starts)] - 1
    bounds = np.searchsorted(pair[group_starts], np.arange(pairs + 1))
    return bounds.astype(np.int64), start[group_starts], (reach - lift)[last]
