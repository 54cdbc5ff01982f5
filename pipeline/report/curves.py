"""Counterfactual thresholds: what a rule would remove if its threshold stood elsewhere.

The signals of every document are stored, so the curve needs no text. Two sums at each threshold: over documents that
would fail the rule, and over those of them that no other rule of the stage removes (its marginal cost). Each in three
measures: documents, bytes of text as ingested, and tokens, by the rate of each document's source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.token_rates import TokenRates
from corpusmill.pipeline.report.survey import Failures, Rule, failure_matrix, numeric_columns
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED
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


def plan(params: dict[str, Any], stage: str, failures: Failures) -> list[Curve]:
    """A curve for every rule that some document failed, those first that most fail; `params` are those of the filter's manifest.

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
    return sorted(curves, key=lambda c: (-failures.failed[c.rule], c.rule))


def _grid(low: float, high: float, threshold: float) -> tuple[tuple[float, ...], bool]:
    """Thresholds to try: the bulk of the values, and the threshold; logarithmic over decades."""
    tried, log = steps(min(low, threshold), max(high, threshold), POINTS - 1)
    return tuple(sorted([threshold, *tried])), log


def steps(low: float, high: float, count: int) -> tuple[list[float], bool]:
    """`count` values over a range and a margin, ascending, of six digits; logarithmic over decades, and whether they are."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    log = low >= 0 and high > 200 and high > 20 * max(low, 1)
    if log:
        tried = np.geomspace(max(low, 1), high, count)
    else:
        margin = 0.02 * (high - low)
        tried = np.linspace(max(low - margin, 0) if low >= 0 else low - margin, high + margin, count)
    return [float(f"{x:.6g}") for x in tried], log


@dataclass(frozen=True)
class Judged:
    """The documents of a partition that the filter measured, a row each."""

    signals: pa.Table
    columns: dict[str, npt.NDArray[np.float64]]  # signal -> values, NaN where it was not measured
    ledger: pa.Table  # the rows of the ledger that belong to them
    rules: list[Rule]
    failed: npt.NDArray[np.bool_]  # bool[documents, rules]: which rules each failed
    # Stage -> int64[documents]: how many of its rules each failed; filled as it is asked for.
    counted: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, signals: pa.Table, ledger: pa.Table) -> Judged:
        """From the tables of a partition."""
        removed = ledger.filter(pc.equal(ledger["outcome"], REMOVED))
        rules, hit = failure_matrix(removed)
        where = pc.index_in(signals["doc_id"], removed["doc_id"].combine_chunks())
        place = np.asarray(pc.fill_null(where, -1)).astype(np.int64)  # -1: not removed, the last row
        failed = np.concatenate([hit > 0, np.zeros((1, len(rules)), bool)])[place]
        row = pc.index_in(signals["doc_id"], ledger["doc_id"].combine_chunks())
        return cls(signals, numeric_columns(signals), ledger.take(row), rules, failed)

    def judged_by(self, curve: Curve) -> npt.NDArray[np.bool_]:
        """bool[documents]: on which a rule was judged."""
        here = np.isfinite(self.columns[curve.signal])
        if curve.exempt:
            here &= ~np.asarray(pc.is_in(self.ledger["source"], pa.array(curve.exempt, pa.string())))
        if curve.languages:
            beside = pa.array(curve.languages, pa.string())
            here &= ~np.asarray(pc.is_in(self.signals["language.code"], beside))
        if curve.signal.startswith("toxicity.") and KNOWN_WORDS in self.columns:
            here &= ~(self.columns[KNOWN_WORDS] < TRUSTED)
        return here

    def others(self, curve: Curve) -> npt.NDArray[np.int64]:
        """int64[documents]: how many other rules of the stage each failed."""
        if curve.rule not in self.rules:  # in this partition none failed it
            return self._failed_in(curve.rule.stage)
        return self._failed_in(curve.rule.stage) - self.failed[:, self.rules.index(curve.rule)]

    def _failed_in(self, stage: str) -> npt.NDArray[np.int64]:
        if stage not in self.counted:
            mine = [rule.stage == stage for rule in self.rules]
            self.counted[stage] = self.failed[:, mine].sum(axis=1)
        return self.counted[stage]

    def as_stored(self, curve: Curve, values: Any) -> npt.NDArray[np.float64]:
        """Thresholds as the column stores its values: those that the judgement compared."""
        stored = self.signals[curve.signal].type
        return np.array(values, np.float32 if pa.types.is_float32(stored) else np.float64).astype(np.float64)


class Sums(NamedTuple):
    """Of one partition, in the order of `MEASURES`; tokens as products of bytes and rates, which `tokens` divides."""

    whole: npt.NDArray[np.int64]  # int64[3]: of all documents judged
    failing: npt.NDArray[
        np.int64
    ]  # int64[curves, POINTS, 2, 3]: failing at each threshold, and of these marginal


def count(judged: Judged, curves: list[Curve], rates: TokenRates | None) -> Sums:
    """The sums of a partition."""
    weights = _weights(judged.ledger["source"], judged.ledger["text_bytes"], rates)
    failing = np.zeros((len(curves), POINTS, 2, len(MEASURES)), np.int64)
    for index, curve in enumerate(curves):
        here, values = judged.judged_by(curve), judged.columns[curve.signal]
        grid = judged.as_stored(curve, curve.grid)
        for which, mask in enumerate((here, here & (judged.others(curve) == 0))):
            failing[index, :, which] = _failing(values[mask], weights[mask], curve.comparison, grid)
    return Sums(weights.sum(axis=0), failing)


def fails(
    values: npt.NDArray[np.float64], comparison: str, threshold: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Which values fail at a threshold."""
    failed = {
        "at_least": np.less, "more_than": np.less_equal, "at_most": np.greater, "less_than": np.greater_equal,
    }[comparison]  # fmt: skip
    found: npt.NDArray[np.bool_] = failed(values, threshold)
    return found


def _weights(
    source: pa.ChunkedArray, size: pa.ChunkedArray, rates: TokenRates | None
) -> npt.NDArray[np.int64]:
    """int64[documents, 3]: what each document counts for in each measure."""
    coded = source.combine_chunks().dictionary_encode()
    text = size.to_numpy().astype(np.int64)
    names = coded.dictionary.to_pylist()
    of = rates.rates(names) if rates else np.zeros(len(names), np.int64)
    return np.stack([np.ones_like(text), text, text * of[coded.indices.to_numpy()]], axis=1)


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
