"""Which rules removed documents: first, together, and alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    """bool[documents, names]: where a column says that name."""
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
        f.name: pc.cast(signals[f.name], pa.float64()).to_numpy()
        for f in signals.schema
        if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)
    }


def _spread(found: Failures, signals: pa.Table) -> None:
    for name, values in numeric_columns(signals).items():
        finite = values[np.isfinite(values)]
        if len(finite):
            low, high = np.quantile(finite, [0.005, 0.995])
            found.spread[name] = (float(low), float(high))
