"""Counterfactual thresholds: what a rule would remove if its threshold stood elsewhere.

The signals of every document are stored, so the curve needs no text. Two sums at each threshold: over documents that
would fail the rule, and over those of them that no other rule of the stage removes (its marginal cost). Each in three
measures: documents, bytes of text as ingested, and tokens, by the rate of each document's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.token_rates import TokenRates
from corpusmill.pipeline.report.survey import (
    Failures,
    Places,
    Rule,
    failure_matrix,
    numeric_columns,
    read_columns,
)
from corpusmill.schemas.tables import REMOVED

POINTS = 61
MEASURES = ("documents", "bytes", "tokens")
# What a document must satisfy -> side of `searchsorted` at which the failing values end or begin.
_BELOW = {"at_least": "left", "more_than": "right"}
_ABOVE = {"at_most": "right", "less_than": "left"}


@dataclass(frozen=True)
class Curve:
    """One rule's curve before it is counted: the test, and the thresholds to try (float, ascending)."""

    rule: Rule
    signal: str
    comparison: str
    threshold: float
    exempt: tuple[str, ...]  # sources in which the rule is not judged
    languages: tuple[str, ...]  # in which it is not
    log: bool
    grid: tuple[float, ...]


def plan(params: dict[str, Any], stage: str, failures: Failures, most: int) -> list[Curve]:
    """Curves for the `most` rules that fail most documents; `params` are those of the filter's manifest.

    Rules without a number to move, or whose signal was not measured, have no curve.
    """
    curves = []
    skip = params.get("skip_sources") or {}
    keep = (params.get("language") or {}).get("keep") or []
    for entry in params.get("rules") or ():
        if not isinstance(entry, dict) or entry.get("threshold") is None:
            continue
        rule = Rule(stage, str(entry["name"]))
        known = entry["comparison"] in {**_BELOW, **_ABOVE} and entry["signal"] in failures.spread
        if not known or not failures.failed[rule]:
            continue
        sets = {"*", rule.rule.partition(".")[0]}
        exempt = tuple(sorted(source for source, names in skip.items() if sets & set(names)))
        made_for = entry.get("languages") or ()
        languages = tuple(sorted(set(keep) - set(made_for))) if made_for else ()
        grid, log = _grid(*failures.spread[entry["signal"]], float(entry["threshold"]))
        curves.append(
            Curve(
                rule, entry["signal"], entry["comparison"], entry["threshold"], exempt, languages, log, grid
            )
        )
    return sorted(curves, key=lambda c: (-failures.failed[c.rule], c.rule))[:most]


def _grid(low: float, high: float, threshold: float) -> tuple[tuple[float, ...], bool]:
    """Thresholds to try: the bulk of the values, and the threshold; logarithmic over decades."""
    low, high = min(low, threshold), max(high, threshold)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    log = low >= 0 and high > 200 and high > 20 * max(low, 1)
    if log:
        tried = np.geomspace(max(low, 1), high, POINTS - 1)
    else:
        margin = 0.02 * (high - low)
        tried = np.linspace(max(low - margin, 0) if low >= 0 else low - margin, high + margin, POINTS - 1)
    return tuple(sorted([threshold, *(float(f"{x:.6g}") for x in tried)])), log


class Sums(NamedTuple):
    """Of one partition, in the order of `MEASURES`; tokens as products of bytes and rates, which `tokens` divides."""

    whole: npt.NDArray[np.int64]  # int64[3]: of all documents judged
    failing: npt.NDArray[
        np.int64
    ]  # int64[curves, POINTS, 2, 3]: failing at each threshold, and of these marginal


def count(places: Places, curves: list[Curve], rates: TokenRates | None, name: str) -> Sums:
    """The sums of partition `name`."""
    assert places.signals is not None
    wanted = ["doc_id", "language.code", *sorted({curve.signal for curve in curves})]
    signals = read_columns(places.signals / f"signals/{name}.parquet", wanted)
    ledger = read_columns(
        places.ledger / f"{name}.parquet",
        ["doc_id", "source", "text_bytes", "outcome", "stage", "rule", "failed"],
    )
    removed = ledger.filter(pc.equal(ledger["outcome"], REMOVED))
    rules, hit = failure_matrix(removed)
    where = _places(signals, removed)
    row = pc.index_in(signals["doc_id"], ledger["doc_id"].combine_chunks())
    source, size = ledger["source"].take(row), ledger["text_bytes"].take(row)
    weights = _weights(source, size, rates)
    columns = numeric_columns(signals)
    failing = np.zeros((len(curves), POINTS, 2, len(MEASURES)), np.int64)
    for index, curve in enumerate(curves):
        others = [i for i, rule in enumerate(rules) if rule.stage == curve.rule.stage and rule != curve.rule]
        elsewhere = np.append(hit[:, others].any(axis=1), False)[where]  # -1: not removed, the last entry
        values = columns[curve.signal]
        judged = np.isfinite(values) & ~np.asarray(pc.is_in(source, pa.array(curve.exempt, pa.string())))
        if curve.languages:
            judged &= ~np.asarray(pc.is_in(signals["language.code"], pa.array(curve.languages, pa.string())))
        stored = signals[curve.signal].type
        grid = np.array(curve.grid, np.float32 if pa.types.is_float32(stored) else np.float64)
        for which, mask in enumerate((judged, judged & ~elsewhere)):
            failing[index, :, which] = _failing(
                values[mask], weights[mask], curve.comparison, grid.astype(np.float64)
            )
    return Sums(weights.sum(axis=0), failing)


def _weights(
    source: pa.ChunkedArray, size: pa.ChunkedArray, rates: TokenRates | None
) -> npt.NDArray[np.int64]:
    """int64[documents, 3]: what each document counts for in each measure."""
    coded = source.combine_chunks().dictionary_encode()
    text = size.to_numpy().astype(np.int64)
    names = coded.dictionary.to_pylist()
    of = rates.rates(names) if rates else np.zeros(len(names), np.int64)
    return np.stack([np.ones_like(text), text, text * of[coded.indices.to_numpy()]], axis=1)


def _places(signals: pa.Table, removed: pa.Table) -> npt.NDArray[np.int64]:
    """Row in `removed` of every document measured, or -1."""
    found = pc.index_in(signals["doc_id"], removed["doc_id"].combine_chunks())
    return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


def _failing(
    values: npt.NDArray[Any], weights: npt.NDArray[np.int64], comparison: str, grid: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """int64[len(grid), measures]: weights of the values that fail at each threshold, added up."""
    order = np.argsort(values, kind="stable")
    upto = np.concatenate([np.zeros((1, weights.shape[1]), np.int64), np.cumsum(weights[order], axis=0)])
    below = comparison in _BELOW
    side: Any = (_BELOW if below else _ABOVE)[comparison]
    places = np.searchsorted(values[order], grid, side=side)
    return upto[places] if below else upto[-1] - upto[places]
