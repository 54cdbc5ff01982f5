"""Distributions and the documents nearest to thresholds, against counts made by a plain loop."""

from __future__ import annotations

from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report.curves import Curve, Judged, Sums, fails, steps
from corpusmill.pipeline.report.distributions import BINS, Bins, Seen
from corpusmill.pipeline.report.drawings import Spread, distribution
from corpusmill.pipeline.report.survey import Rule
from corpusmill.schemas.tables import KEPT, LEDGER, REMOVED
from tests.common.test_charts import numbers_of
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.made import Doc


def corpus() -> list[list[Doc]]:
    """Documents of 30 to 69 words in two sources; those below 50 fail; of 50 and 51 words one each went as a copy."""
    docs = []
    for words in range(30, 70):
        source = "books" if words % 3 == 0 else "web"
        failed = [("quality.words", float(words), 50.0)] + (
            [("quality.other", 1.0, 2.0)] if words == 48 else []
        )
        gone = ("filter", "quality.words") if words < 50 else None
        docs.append(
            Doc(
                f"f#{words}",
                f"text of {words}",
                source,
                gone=gone,
                failed=failed if gone else (),
                words=words,
            )
        )
    for words in (50, 51):
        docs.append(Doc(f"c#{words}", "a copy", gone=("dedup", "dedup.exact"), copy_of=docs[-1], words=words))
    return [docs[:25], docs[25:]]


def test_counts_are_those_of_a_plain_loop(make_run: Maker) -> None:
    docs = [doc for part in corpus() for doc in part]
    [one] = make_run(corpus()).figures()["distributions"]
    assert (one["signal"], len(one["edges"]), len(one["documents"])) == ("document.words", BINS + 1, BINS + 2)
    assert one["rules"] == [{"rule": "quality.words", "comparison": "at_least", "threshold": 50.0}]

    def counted(some: list[Doc]) -> list[int]:
        found = [0] * (BINS + 2)
        for doc in some:
            found[sum(doc.words >= edge for edge in one["edges"][:-1]) + (doc.words > one["edges"][-1])] += 1
        return found

    assert one["documents"] == counted(docs) and sum(one["documents"]) == 42
    assert one["kept"] == counted([doc for doc in docs if not doc.gone])
    assert list(one["sources"]) == ["web", "books"]  # the largest first
    for source, counts in one["sources"].items():
        assert counts == counted([doc for doc in docs if doc.source == source])


def test_what_lies_nearest_to_a_threshold(make_run: Maker) -> None:
    figures = make_run(corpus()).figures()
    [near] = figures["samples"]["near"]
    assert [(row["value"], row["others"]) for row in near["removed"]] == [(49.0, 0), (48.0, 1), (47.0, 0)]
    assert [row["locator"] for row in near["kept"]] == [
        "f#50",
        "f#51",
        "f#52",
    ]  # not the copies: they are gone
    assert near["kept"][0]["text"] == "text of 50"
    assert (near["rule"], near["threshold"], near["signal"]) == ("quality.words", 50.0, "document.words")
    assert make_run(corpus(), report={"samples": 0}).figures()["samples"]["near"][0]["kept"] == []


def test_of_equally_near_ones_the_id_decides(make_run: Maker) -> None:
    docs = [
        Doc(f"f#{n}", "same", gone=("filter", "quality.words"), failed=[("quality.words", 9, 50)], words=9)
        for n in range(9)
    ]
    [near] = make_run([docs[4:], docs[:4]], report={"samples": 2}).figures()["samples"]["near"]
    assert [row["doc_id"] for row in near["removed"]] == sorted(doc.id.hex() for doc in docs)[:2]


def test_no_filter_no_signals(make_run: Maker) -> None:
    made = make_run([[Doc("a#0", "text")]], ("ingest", "dedup"))
    figures = made.figures()
    assert figures["distributions"] == figures["samples"]["near"] == []
    assert 'href="#signals"' not in (made.root / "report/report.html").read_text()


def part(seed: int) -> Seen:
    """What a partition of one or two sources might give."""
    random = np.random.default_rng(seed)
    counts = {f"s{random.integers(3)}": random.integers(0, 9, (2, BINS + 2)) for _ in range(2)}
    key = Rule("filter", "r"), KEPT
    rows = [{"doc_id": bytes([seed, n]), "distance": float(random.integers(3))} for n in range(3)]
    sums = Sums(random.integers(0, 9, 3), random.integers(0, 9, (1, 61, 2, 3)))
    return Seen(sums, counts, np.sum(list(counts.values()), axis=0), {key: rows})


@given(st.integers(0, 99))
def test_partitions_add_up_in_any_order(seed: int) -> None:
    order = list(range(6))
    Random(seed).shuffle(order)
    sums = []
    for numbers in (range(6), order):
        seen = part(0)
        for number in numbers:
            seen.add(part(number), 4)
        sums.append(seen)
    one, other = sums
    assert all((mine == theirs).all() for mine, theirs in zip(one.sums, other.sums, strict=True))
    assert {name: counts.tolist() for name, counts in one.documents.items()} == {
        name: counts.tolist() for name, counts in other.documents.items()
    }
    assert one.nearest == other.nearest and (one.kept == other.kept).all()


NUMBER = st.floats(-1e9, 1e9)


@given(NUMBER, NUMBER, st.lists(NUMBER, max_size=3))
def test_edges_ascend_and_hold_the_thresholds(low: float, high: float, thresholds: list[float]) -> None:
    low, high = min(low, high), max(low, high)
    bins = Bins.over("s.x", low, high, thresholds)
    assert list(bins.edges) == sorted(bins.edges) and len(bins.edges) == BINS + 1
    wide = max([high, *thresholds]) - min([low, *thresholds])
    for limit in thresholds:
        if bins.log and limit < 1:
            continue  # a logarithmic scale begins at 1; what is below is counted as that
        assert bins.edges[0] - 1e-5 * abs(limit) <= limit <= bins.edges[-1] + 1e-5 * (abs(limit) + wide)


@given(
    NUMBER,
    st.floats(1e-3, 1e9),
    st.lists(st.integers(0, 10**9), min_size=BINS + 2, max_size=BINS + 2),
    st.booleans(),
)
def test_any_distribution_is_well_formed(low: float, wide: float, counts: list[int], sources: bool) -> None:
    edges, log = steps(low, low + wide, BINS + 1)
    rows = [Spread("<b>books</b>", counts)] if sources else []
    drawn = distribution(
        edges, log, counts, [n // 2 for n in counts], rows, [(edges[3], "≥ 3"), (edges[9], "≤ 9")], "l"
    )
    numbers_of(drawn)
    root = ElementTree.fromstring(drawn)
    paths = [one.get("d", "") for one in root.iter("path")]
    assert len(paths) == 2 + sources and all(d.startswith("M") and d.endswith("Z") for d in paths)
    assert "<b>" not in drawn and len(drawn) < 4_000


def test_a_threshold_is_compared_as_the_column_stores_it() -> None:
    """0.12 as float32 is not 0.12: a value of it is kept by `at_most 0.12`, and its distance is 0."""
    ids = pa.array([bytes([n]) * 16 for n in range(2)], pa.binary(16))
    signals = pa.table({"doc_id": ids, "x.y": pa.array([0.12, 0.13], pa.float32())})
    lost: dict[str, Any] = {"source": "s", "locator": "l", "stage": "filter"}
    rows = [
        {"doc_id": ids[n].as_py(), "outcome": [KEPT, REMOVED][n], "rule": [None, "r"][n], **lost}
        for n in range(2)
    ]
    judged = Judged.of(signals, pa.Table.from_pylist(rows, schema=LEDGER))
    curve = Curve(Rule("filter", "r"), "x.y", "at_most", 0.12, (), (), False, (0.12,))
    limit = judged.as_stored(curve, [curve.threshold])[0]
    assert fails(judged.columns["x.y"], "at_most", limit).tolist() == [False, True]
    assert judged.columns["x.y"][0] == limit != 0.12


@pytest.mark.parametrize(
    ("comparison", "failing"),
    [("at_least", [1]), ("more_than", [1, 2]), ("at_most", [3]), ("less_than", [2, 3])],
)
def test_which_values_fail(comparison: str, failing: list[int]) -> None:
    values = np.array([1.0, 2.0, 3.0])
    assert values[fails(values, comparison, np.array(2.0))].tolist() == failing
