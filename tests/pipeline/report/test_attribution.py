"""Attribution against a plain reading of it: first, failed and alone, their bytes, and every point of a curve."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report.curves import _failing
from corpusmill.pipeline.report.survey import Failures, Rule, count_failures, numeric_columns
from corpusmill.schemas.tables import LEDGER

NAMES = ("a.x", "a.y", "b.z")
LATER = Rule("dedup", "dedup.minhash")

# A removed document: its source, its bytes (none where only ingest saw it), and the filter's rules that it failed.
removed = st.lists(
    st.tuples(
        st.sampled_from(["web", "books"]),
        st.none() | st.integers(0, 10**9),
        st.lists(st.sampled_from(NAMES), unique=True),
    ),
    max_size=30,
)


def ledger(docs: list[tuple[str, int | None, list[str]]]) -> pa.Table:
    """Without a failed rule of the filter, a document went at dedup."""
    rows: list[dict[str, Any]] = []
    for number, (source, size, names) in enumerate(docs):
        rules = [Rule("filter", name) for name in names] or [LATER]
        failed = [{"stage": r.stage, "rule": r.rule, "value": 0.0, "threshold": 1.0} for r in rules]
        rows.append(
            {
                "doc_id": number.to_bytes(16, "big"), "source": source, "locator": str(number), "outcome": "removed",
                "text_bytes": size, "stage": rules[0].stage, "rule": rules[0].rule,
                "failed": failed if rules != [LATER] else None,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=LEDGER)


@given(removed, st.integers(0, 30))
def test_counts_are_those_of_a_plain_reading_however_partitions_are_cut(docs: Any, cut: int) -> None:
    found = Failures()
    for part in (docs[:cut], docs[cut:]):
        found.add(count_failures(ledger(part), None))
    wanted: dict[str, Counter[Any]] = {what: Counter() for what in ("failed", "alone", "text")}
    for source, size, names in docs:
        rules = [Rule("filter", name) for name in names] or [LATER]
        for rule in rules:
            wanted["failed"][rule] += 1
            wanted["alone"][rule] += len(rules) == 1
            masks = {"first": rule == rules[0], "failed": True, "alone": len(rules) == 1}
            wanted["text"].update({(rule, what, source): size or 0 for what, true in masks.items() if true})
    assert found.failed == wanted["failed"] and +found.alone == +wanted["alone"]
    assert +found.text == +wanted["text"]
    for (one, two), count in found.overlap.items():
        assert one < two and count == sum({one.rule, two.rule} <= set(names) for _, _, names in docs)


@given(
    st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(0, 10**12)), max_size=40),
    st.lists(st.floats(-11, 11, width=32), min_size=1, max_size=8),
    st.sampled_from(["at_least", "at_most", "more_than", "less_than"]),
)
def test_a_curve_adds_up_what_fails_at_each_threshold(
    docs: list[tuple[float, int]], grid: list[float], comparison: str
) -> None:
    passes = {
        "at_least": np.greater_equal, "at_most": np.less_equal, "more_than": np.greater, "less_than": np.less,
    }[comparison]  # fmt: skip
    values = np.array([value for value, _ in docs], np.float64)
    weights = np.array([[1, size] for _, size in docs], np.int64).reshape(-1, 2)
    found = _failing(values, weights, comparison, np.array(sorted(grid)))
    assert found.tolist() == [weights[~passes(values, limit)].sum(axis=0).tolist() for limit in sorted(grid)]


SIGNAL = st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, 1.0]))


@given(st.integers(0, 40).flatmap(lambda n: st.lists(st.lists(SIGNAL, min_size=n, max_size=n), max_size=4)))
def test_the_range_of_the_bulk_is_between_two_quantiles(columns: list[list[float | None]]) -> None:
    """Of signals that are complete, and of those with null, infinite values and none at all."""
    arrays = {f"signal.{at}": pa.array(values, pa.float32()) for at, values in enumerate(columns)}
    rows = len(columns[0]) if columns else 0
    signals = pa.table(
        {"doc_id": pa.array([""] * rows, pa.string()), **arrays, "count": pa.array(range(rows), pa.int64())}
    )
    values = numeric_columns(signals)
    assert list(values) == [*arrays, "count"]
    found = count_failures(pa.Table.from_pylist([], schema=LEDGER), signals).spread
    for name, column in values.items():
        known = [one for one in signals[name].to_pylist() if one is not None and np.isfinite(one)]
        np.testing.assert_array_equal(column[np.isfinite(column)], known)
        if known:
            assert found[name] == tuple(np.quantile(np.array(known, np.float64), [0.005, 0.995]).tolist())
        else:
            assert name not in found
