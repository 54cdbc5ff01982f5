"""The section of duplicates: from nothing but a manifest, and with everything that `dedup` publishes."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from tests.browser import check_page
from tests.pipeline.report import copies
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import LONG, hostile, ordinary
from tests.pipeline.report.made import Doc, Made

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def made(make_run: Maker) -> Made:
    """The ordinary corpus with all figures that a `dedup` publishes."""
    run = make_run(ordinary())
    copies.publish(run.previous["dedup"])
    return run


def words(run: Made) -> str:
    """The page's section as a reader has it: text without tags, white space by single spaces."""
    page = (run.report() / "report.html").read_text()
    section = page[page.index('<section id="duplicates">') :]
    section = re.sub(r"<svg.*?</svg>", "", section[: section.index("</section>")], flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).replace("\u00a0", " ").split())


def test_without_the_stages_own_figures(make_run: Maker) -> None:
    figures = make_run(ordinary()).figures()
    found = figures["duplicates"]
    assert (found["removed"], found["exact"], found["near"]) == (3, 1, 2)
    assert (
        found["recall"] is found["cluster_sizes"] is found["largest_clusters"] is found["precision"] is None
    )
    assert found["s_curve"] == found["planned"] == found["losses"] == found["hot_buckets"] == []
    assert found["cuts"] is None and found["promised"] == 0.95
    assert [pair["jaccard"] for pair in figures["samples"]["pairs"]] == [0.82, 0.91]


def test_of_an_older_stage(make_run: Maker) -> None:
    """Fewer keys, clusters by id alone."""
    run = make_run(ordinary())
    recall = {"value": 0.9, "found": 9, "of": 10, "low": 0.59, "high": 0.98}
    older = {
        "bands": 13, "rows": 7, "similarity": 0.8, "counters": {"clusters": 2, "largest_cluster": 4},
        "measured": {"texts": 12, "recall": recall, "curve": [
            {"jaccard": 0.8, "expected": 0.9, **recall}, {"jaccard": 0.9, "value": None, "found": 0, "of": 0}]},
    }  # fmt: skip
    publish_bytes(run.previous["dedup"], "quality.json", json.dumps(older).encode())
    ids = pa.table({"cluster_id": pa.array([b"a" * 16] * 4 + [b"b" * 16] * 2, pa.binary(16))})
    publish_table(run.previous["dedup"], "clusters.parquet", ids)
    found = run.figures()["duplicates"]
    assert found["recall"]["found"] == 9 and len(found["s_curve_measured"]) == 1
    sizes = [(row["from"], row["clusters"], row["documents"]) for row in found["cluster_sizes"]]
    assert sizes == [(2, 1, 2), (3, 0, 0), (4, 1, 4)]
    assert dict(map(tuple, found["s_curve"]))[0.8] == pytest.approx(1 - (1 - 0.8**7) ** 13, abs=1e-6)
    assert found["largest_clusters"][0] == {
        "cluster": "61" * 16, "documents": 4, "kept": None, "jaccard": None, "sources": [],
    }  # fmt: skip
    assert "90.0 % (9 of 10; 95 % interval 59.0 % to 98.0 %)" in words(run)


def test_recall_and_precision_in_words(made: Made) -> None:
    shown = words(made)
    assert (
        "13 bands of 7 rows should find 95.3 % of the pairs at the similarity asked for, 95.0 % were promised"
        in shown
    )
    assert "96.9 % (310 of 320; 95 % interval" in shown and "among 1,987 sampled texts" in shown
    assert "98.7 % (228 of 231; 95 % interval 96.3 % to 99.6 %) of the planted copies" in shown
    assert "99.8 % (998 of 1,000; 95 % interval 99.3 % to 99.9 %) of the removed documents" in shown
    assert (
        "the least similar one has 0.41" in shown
        and "2 had another similarity than the stage recorded" in shown
    )
    assert "Too long to be judged: 1." in shown and "compared again by their words" in shown


def test_planned_beside_actual(made: Made) -> None:
    """Of `actual` first, of the counters otherwise; what nobody measured is a dash."""
    planned = {
        row["what"]: (row["expected"], row["actual"]) for row in made.figures()["duplicates"]["planned"]
    }
    assert planned == {
        "candidate pairs": (110_000, 123_456), "memory of a worker": (512, 401), "wall time": (81.0, None),
        "intermediate files": (900_000_000, 912_345_678),
    }  # fmt: skip
    shown = words(made)
    assert "candidate pairs 110 k 123 k" in shown and "memory of a worker 537 MB 420 MB" in shown
    assert "intermediate files 900 MB 912 MB" in shown and "wall time 81 s –" in shown


def test_planned_by_the_estimator(make_run: Maker) -> None:
    """What `dedup` itself writes: `memory_mb` is the budget there and no estimate; other keys are not shown."""
    run = make_run(ordinary())
    estimate = {
        "candidates": 12.5, "near_removed": 0.4, "shuffled_bytes": 4e6, "worker_bytes": 3e8, "memory_mb": 512,
        "cpu_seconds": 0.25, "steps": [{"name": "sketch"}], "similar": None,
    }  # fmt: skip
    publish_bytes(run.previous["dedup"], "plan.json", json.dumps({"estimate": estimate}).encode())
    rows = run.figures()["duplicates"]["planned"]
    assert [(row["what"], row["expected"]) for row in rows] == [
        ("candidate pairs", 12.5), ("near-copies removed", 0.4), ("intermediate files", 4e6),
        ("memory of a worker", 3e8), ("CPU time", 0.25)]  # fmt: skip
    assert "memory of a worker 300 MB – CPU time 0.25 s –" in words(run)
    publish_bytes(run.previous["dedup"], "plan.json", json.dumps({"estimate": None}).encode())
    assert run.figures()["duplicates"]["planned"] == []


def test_losses_of_sources_against_the_alarm(make_run: Maker) -> None:
    run = make_run(ordinary(), dedup={"max_source_loss": 0.5})
    copies.publish(run.previous["dedup"])
    found = run.figures()["duplicates"]
    assert [(row["source"], row["documents"], row["near"]) for row in found["losses"]] == [
        ("books", 6, 5),
        ("web", 8, 0),
    ]
    page = (run.report() / "report.html").read_text()
    assert '<span class="miss">5</span><span class="sub">83.3' in page
    assert "Near copies above 50.0 % of a source stop the run." in words(run)


def test_largest_clusters_and_hot_buckets(made: Made) -> None:
    largest = made.figures()["duplicates"]["largest_clusters"]
    assert [(row["cluster"][:2], row["documents"], row["kept"], row["jaccard"]) for row in largest] == [
        ("61", 4, 1, 0.83), ("62", 2, 1, 0.9), ("63", 2, 2, None)]  # fmt: skip
    assert largest[0]["sources"] == [{"source": "web", "documents": 3}, {"source": "books", "documents": 1}]
    shown = words(made)
    assert "616161616161… 4 1 0.83 web 3 , books 1" in shown and "48,211 " + "ab" * 16 in shown


def test_cut_spans_are_those_of_this_stage(make_run: Maker) -> None:
    docs = [
        Doc("a#0", LONG, edits=[("dedup.lines", 0, 5), ("dedup.lines", 10, 5), ("dedup.substrings", 40, 9)]),
        Doc("a#1", LONG + "x", "books", edits=[("dedup.lines", 0, 5)]),
    ]
    run = make_run([docs], stages=("ingest", "dedup"))
    cuts = run.figures()["duplicates"]["cuts"]
    assert (cuts["spans"], cuts["documents"]) == (4, 2)
    kinds: list[dict[str, Any]] = cuts["kinds"]
    assert [(one["kind"], one["spans"], one["sources"]) for one in kinds] == [
        ("dedup.lines", 3, {"books": 1, "web": 2}), ("dedup.substrings", 1, {"web": 1})]  # fmt: skip
    assert "4 repeated spans cut from 2 documents" in words(run)


@pytest.mark.parametrize(
    ("params", "promised"), [({}, 0.95), ({"recall": 0.99}, 0.99), ({"bands": 5, "rows": 4}, None),
                             ({"preset": "datatrove"}, None)],
)  # fmt: skip
def test_what_was_promised(make_run: Maker, params: dict[str, Any], promised: float | None) -> None:
    assert make_run(ordinary(), dedup=params).figures()["duplicates"]["promised"] == promised


@pytest.mark.browser
@pytest.mark.parametrize("corpus", [ordinary, hostile], ids=["ordinary", "hostile"])
def test_fits_in_a_browser(browser: Browser, make_run: Maker, corpus: Any) -> None:
    run = make_run(corpus())
    copies.publish(run.previous["dedup"])
    file = run.report() / "report.html"
    check_page(browser, file, scripts=1)
    page = browser.new_page(viewport={"width": 360, "height": 900})
    page.goto(file.as_uri())
    outside = """[...document.querySelectorAll('#duplicates svg.chart text')].filter(t => {
        const box = t.closest('svg').getBoundingClientRect(), own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
            || own.bottom > box.bottom + 1;
    }).map(t => t.textContent)"""
    assert page.evaluate(outside) == []
    page.close()
