"""How the values of each signal are spread, in all and by source: counts in bins that the first pass fixed, so that sums over
partitions are the same in any order. And the documents nearest to each rule's threshold, on either side of it."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.shuffle import words
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.token_rates import TokenRates
from corpusmill.pipeline.report import curves as curve
from corpusmill.pipeline.report.curves import Curve, Judged, Sums
from corpusmill.pipeline.report.survey import Places, Rule, read_columns
from corpusmill.schemas.tables import KEPT, REMOVED

BINS: Final = 40
LEDGER: Final = ["doc_id", "source", "locator", "text_bytes", "outcome", "stage", "rule", "failed"]
Counts = npt.NDArray[np.int64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Bins:
    """The bins of one signal: bin i holds values from edge i to below edge i + 1; what lies outside is counted apart."""

    signal: str
    log: bool
    edges: tuple[float, ...]  # BINS + 1

    @classmethod
    def over(cls, signal: str, low: float, high: float, thresholds: list[float]) -> Bins:
        """Over the bulk of the values, and the thresholds of the rules that judge them."""
        edges, log = curve.steps(min([low, *thresholds]), max([high, *thresholds]), BINS + 1)
        return cls(signal, log, tuple(edges))


@dataclass(frozen=True)
class Plan:
    """What the second pass looks for in each partition."""

    curves: list[Curve]  # of all rules that failed documents; the first `drawn` are counted along their grid
    drawn: int
    bins: list[Bins]
    samples: int  # documents on either side of a threshold
    rates: TokenRates | None


@dataclass
class Seen:
    """What it found, in one partition or in all."""

    sums: Sums
    documents: dict[str, Counts] = field(default_factory=dict)  # source -> int64[signals, BINS + 2]
    # The same, of the documents of all sources that are kept in the end.
    kept: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    nearest: dict[tuple[Rule, str], list[Row]] = field(default_factory=dict)  # (rule, outcome): nearest first

    def add(self, other: Seen, samples: int) -> None:
        """Merge another partition's into this."""
        # Python's integers: a product of bytes and a rate does not fit into 64 bits over a large corpus.
        whole, failing = (
            mine + theirs.astype(object) for mine, theirs in zip(self.sums, other.sums, strict=True)
        )
        self.sums = Sums(whole, failing)
        for source, counts in other.documents.items():
            self.documents[source] = self.documents.get(source, 0) + counts
        self.kept = self.kept + other.kept if self.kept.size else other.kept
        for key, rows in other.nearest.items():
            both = [*self.nearest.get(key, []), *rows]
            self.nearest[key] = heapq.nsmallest(
                samples, both, key=lambda row: (row["distance"], row["doc_id"])
            )


def plan(
    rules: list[Row], spread: dict[str, tuple[float, float]], curves: list[Curve], drawn: int, samples: int,
    rates: TokenRates | None,
) -> Plan:  # fmt: skip
    """`spread`: signal -> the range of the bulk of its values; `rules`: those of the filter's manifest."""
    limits: dict[str, list[float]] = {}
    for rule in rules:
        if rule.get("threshold") is not None:
            limits.setdefault(str(rule["signal"]), []).append(float(rule["threshold"]))
    bins = [Bins.over(name, *spread[name], limits.get(name, [])) for name in sorted(spread)]
    return Plan(curves, drawn, bins, samples, rates)


def look(scheduler: Scheduler, places: Places, wanted: Plan, partitions: list[str]) -> Seen:
    """The second pass over the signals of all partitions."""
    empty = np.zeros(len(curve.MEASURES), object)
    grid = np.zeros((wanted.drawn, curve.POINTS, 2, len(curve.MEASURES)), object)
    seen = Seen(Sums(empty, grid))
    for part in scheduler.map(partial(_look, places, wanted), partitions, "report: signals"):
        seen.add(part, wanted.samples)
    return seen


def _look(places: Places, wanted: Plan, name: str) -> Seen:
    """The second pass over partition `name`."""
    assert places.signals is not None
    columns = ["doc_id", "language.code", *(bins.signal for bins in wanted.bins)]
    signals = read_columns(places.signals / f"signals/{name}.parquet", columns)
    ledger = read_columns(places.ledger / f"{name}.parquet", LEDGER)
    judged = Judged.of(signals, ledger)
    seen = Seen(curve.count(judged, wanted.curves[: wanted.drawn], wanted.rates))
    _histograms(seen, judged, wanted.bins)
    if wanted.samples:
        _nearest(seen, judged, wanted)
    return seen


def _histograms(seen: Seen, judged: Judged, bins: list[Bins]) -> None:
    coded = judged.ledger["source"].combine_chunks().dictionary_encode()
    names = coded.dictionary.to_pylist()
    source = coded.indices.to_numpy().astype(np.int64)
    kept = np.asarray(pc.equal(judged.ledger["outcome"], KEPT))
    found = np.zeros((len(names), len(bins), BINS + 2), np.int64)
    stay = np.zeros((len(bins), BINS + 2), np.int64)
    for at, one in enumerate(bins):
        values = judged.columns[one.signal]
        known = np.isfinite(values)
        place = np.searchsorted(np.array(one.edges), values[known], side="right")
        place[values[known] == one.edges[-1]] = BINS  # the last bin has both its ends
        flat = np.bincount(source[known] * (BINS + 2) + place, minlength=len(names) * (BINS + 2))
        found[:, at] = flat.reshape(len(names), BINS + 2)
        stay[at] = np.bincount(place[kept[known]], minlength=BINS + 2)
    seen.documents = dict(zip(names, found, strict=True))
    seen.kept = stay


def _nearest(seen: Seen, judged: Judged, wanted: Plan) -> None:
    """Of each rule: documents that it failed and that were removed, and documents kept in the end that it was judged on."""
    high, low = words(judged.ledger["doc_id"].combine_chunks())
    outcome, shown = judged.ledger["outcome"], judged.ledger.select(["doc_id", "source", "locator"])
    removed, kept = (np.asarray(pc.equal(outcome, name)) for name in (REMOVED, KEPT))
    chosen: list[tuple[Curve, str, Counts, npt.NDArray[np.float64], Counts]] = []
    for one in wanted.curves:
        values, here = judged.columns[one.signal], judged.judged_by(one)
        limit = judged.as_stored(one, [one.threshold])[0]
        failed = curve.fails(values, one.comparison, limit)
        others = judged.others(one)
        for what, mask in ((REMOVED, here & failed & removed), (KEPT, here & ~failed & kept)):
            rows = np.flatnonzero(mask)
            distance = np.abs(values[rows] - limit)
            if len(rows) > wanted.samples:
                near = distance <= np.partition(distance, wanted.samples - 1)[wanted.samples - 1]
                rows, distance = rows[near], distance[near]
            order = np.lexsort((low[rows], high[rows], distance))[: wanted.samples]
            chosen.append((one, what, rows[order], distance[order], others[rows[order]]))
    if not chosen:
        return
    places = np.unique(np.concatenate([rows for _, _, rows, _, _ in chosen]))
    known = dict(zip(places.tolist(), shown.take(pa.array(places)).to_pylist(), strict=True))
    for one, what, rows, distance, others in chosen:
        values = judged.columns[one.signal][rows]
        columns = rows.tolist(), values.tolist(), distance.tolist(), others.tolist()
        seen.nearest[one.rule, what] = [
            {**known[at], "value": value, "distance": far, "others": count}
            for at, value, far, count in zip(*columns, strict=True)
        ]


def section(seen: Seen, wanted: Plan, rules: list[Row], failed: Counter[Rule]) -> list[Row]:
    """What `report.json` holds of each signal: those first whose rules failed most documents, then those that no rule judges."""
    judging: dict[str, list[Row]] = {}
    for rule in rules:
        if rule.get("threshold") is not None:
            entry = {
                "rule": str(rule["name"]),
                "comparison": rule["comparison"],
                "threshold": rule["threshold"],
            }
            judging.setdefault(str(rule["signal"]), []).append(entry)
    by_name = {rule.rule: count for rule, count in failed.items()}
    sizes = {name: int(counts.sum()) for name, counts in seen.documents.items()}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    found = []
    for at, bins in enumerate(wanted.bins):
        counts = {name: seen.documents[name][at] for name in largest}
        every = sum(counts.values(), np.zeros(BINS + 2, np.int64))
        found.append(
            {
                "signal": bins.signal,
                "log": bins.log,
                "edges": list(bins.edges),
                "rules": judging.get(bins.signal, []),
                "documents": every.tolist(),
                "kept": seen.kept[at].tolist(),
                "sources": {name: of.tolist() for name, of in counts.items() if of.any()},
            }
        )

    def order(row: Row) -> tuple[bool, int, str]:
        most = max((by_name.get(rule["rule"], 0) for rule in row["rules"]), default=0)
        return not row["rules"], -most, row["signal"]

    return sorted(found, key=order)
