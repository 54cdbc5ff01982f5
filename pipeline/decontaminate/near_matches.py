"""Near copies among the matches: whether enough of an item's words stands in a passage, beside what its n-grams found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.decontaminate.index import Index
from corpusmill.pipeline.decontaminate.matches import I64, Judged, judge, spans_of, wanted
from corpusmill.pipeline.decontaminate.units import NEAR_LEAST
from corpusmill.pipeline.engine.shuffle import starts_of
from corpusmill.schemas.stages import DecontaminateParams
from corpusmill.schemas.tables import MATCHED_SPAN, MATCHES


def enough(words: I64, of: I64, near: float) -> npt.NDArray[np.bool_]:
    """Whether `words` of an item's `of` words are enough: the share `near`, and of short items more, since their words may stand
    together by chance: one may be missing of `NEAR_LEAST`, and of every further word twice what is allowed otherwise."""
    allowed = np.minimum((1 - near) * of, 1 + 2 * (1 - near) * (of - NEAR_LEAST))
    return np.asarray(of - words <= allowed + 1e-9, bool)


def judge_all(
    hits: Mapping[str, Any], near: Mapping[str, Any], index: Index, params: DecontaminateParams,
    dropped: npt.NDArray[np.bool_], dropped_near: npt.NDArray[np.bool_],
) -> Judged:  # fmt: skip
    """`judge`, and of the near hits those that are enough, but for items that count in the same text by their n-grams. Grams and near
    units that are dropped count nowhere."""
    judged = judge(hits, index, params, dropped)
    unit_of, lengths = index.seeds.unit.astype(np.int64), np.diff(index.seeds.starts)
    row, number, words, start, stop = (
        np.asarray(near[name]).astype(np.int64) for name in ("row", "near", "words", "start", "stop")
    )
    unit, of = unit_of[number], lengths[number]
    kept = (
        enough(words, of, params.near_share) & ~dropped_near[number]
        if params.near_share
        else np.zeros(len(row), bool)
    )
    width = len(index.units) + len(index.items)
    kept &= ~np.isin(row * width + unit, (judged["row"] * width + judged["unit"])[judged["found"]])
    item = pc.list_element(index.units["items"], 0).to_numpy().astype(np.int64)
    counted = judged["acts"]
    kept &= ~np.isin(row * width + item[unit], (judged["row"] * width + item[judged["unit"]])[counted])
    if not kept.any():
        return judged
    row, unit, words, of, start, stop = (column[kept] for column in (row, unit, words, of, start, stop))
    order = np.lexsort((-words, unit, row))  # of the passages of a unit in a text, the best comes first
    row, unit, words, of, start, stop = (column[order] for column in (row, unit, words, of, start, stop))
    new = starts_of(row, unit)
    pair, first = np.cumsum(new) - 1, np.flatnonzero(new)
    found = np.ones(len(first), bool)
    mine = Judged(
        row=row[first], unit=unit[first], matched=words[first], grams=of[first], words=words[first], of=of[first],
        value=words[first] / of[first], found=found, acts=found & wanted(index, unit[first], params), near=found,
        spans=spans_of(pair, start, stop, np.ones(len(row), bool), len(first)),
    )  # fmt: skip
    # Of a unit whose n-grams were too few, only the near copy is reported.
    other = ~np.isin(judged["row"] * width + judged["unit"], mine["row"] * width + mine["unit"])
    return _merged(judged, np.flatnonzero(other), mine)


def _merged(judged: Judged, kept: I64, mine: Judged) -> Judged:
    """The `kept` rows of one and all of the other, by row and unit."""
    row, unit = (np.r_[judged[name][kept], mine[name]] for name in ("row", "unit"))
    order = np.lexsort((unit, row))
    merged = Judged(
        (name, np.r_[judged[name][kept], mine[name]][order]) for name in judged if name != "spans"
    )
    bounds, starts, stops = judged["spans"]
    own_bounds, own_starts, own_stops = mine["spans"]
    all_starts, all_stops = np.r_[starts, own_starts], np.r_[stops, own_stops]
    firsts = np.r_[bounds[:-1][kept], own_bounds[:-1] + len(starts)][order]
    counts = np.r_[np.diff(bounds)[kept], np.diff(own_bounds)][order]
    ends = np.cumsum(counts)
    place = np.repeat(firsts - (ends - counts), counts) + np.arange(int(counts.sum()))
    merged["spans"] = np.r_[0, ends], all_starts[place], all_stops[place]
    return merged


def matches_table(hits: pa.Table, near: pa.Table, judged: Judged, index: Index) -> pa.Table:
    """`MATCHES` of a partition's hits."""
    documents = pa.concat_tables(
        [table.select(["row", "doc_id", "source"]) for table in (hits, near)]
    ).sort_by("row")
    documents = documents.take(pa.array(np.searchsorted(documents["row"].to_numpy(), judged["row"])))
    units = index.units.take(pa.array(judged["unit"]))
    first = pc.list_element(units["items"], 0)
    bounds, starts, stops = judged["spans"]
    spans = pa.ListArray.from_arrays(
        pa.array(bounds.astype(np.int32)),
        pa.StructArray.from_arrays([pa.array(starts), pa.array(stops - starts)], fields=list(MATCHED_SPAN)),
    )
    columns = {
        "doc_id": documents["doc_id"], "source": documents["source"], "unit": pa.array(judged["unit"]).cast(pa.uint32()),
        "set": units["set"], "item": index.items["id"].take(first), "items": pc.list_value_length(units["items"]),
        "part": units["part"], "spans": spans,
        **{name: pa.array(judged[name]) for name in ("matched", "grams", "words", "of", "value", "found", "acts", "near")},
    }  # fmt: skip
    return pa.table([columns[field.name] for field in MATCHES], schema=MATCHES)
