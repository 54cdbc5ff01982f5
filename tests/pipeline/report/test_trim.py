"""The page is of bounded size, whatever the run holds, and says what it leaves out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.report.page import LIMIT, render
from corpusmill.pipeline.report.trim import LEVELS, trim
from tests.browser import check_page
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import HOSTILE, ordinary
from tests.pipeline.report.test_page import check

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SOURCES = 300
LONG = "a-source-with-a-long-name-" * 8
TEXT = "".join(HOSTILE) * 20  # some 150,000 characters, many of which become 30


def large(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run with 300 sources, 600 rules, 200 signals, excerpts of 150,000 characters and long names."""
    names = [f"{LONG}{n}" for n in range(SOURCES)]
    every = dict.fromkeys(names, 7)
    source, rule, curve = figures["sources"][0], figures["rules"][0], figures["curves"][0]
    one, sample = figures["distributions"][0], figures["samples"]["kept"][0]
    near, pair, tag = (figures["samples"][name][0] for name in ("near", "pairs", "tags"))
    bins = one["documents"]
    sample = {**sample, "text": TEXT, "locator": LONG * 20, "detail": TEXT}
    rules = [f"set_{n}.{LONG}" for n in range(600)]
    excerpt = {**near["kept"][0], "text": TEXT, "locator": LONG * 20}
    return {
        **figures,
        "sources": [
            {**source, "source": name, "records": n, "description": TEXT, "attribution": TEXT, "license": TEXT}
            for n, name in enumerate(names)
        ],
        "alarms": [{**alarm(), "source": name} for name in names],
        "warnings": [{**alarm(), "kind": "stage", "documents": 1, "of": 2, "source": name} for name in names],
        "rules": [{**rule, "rule": name, "sources": every} for name in rules],
        "cuts": [{"rule": name, "spans": 1, "characters": 2, "sources": every} for name in rules],
        "curves": [{**curve, "rule": LONG} for _ in range(12)],
        "distributions": [
            {**one, "signal": f"family.value_{n}", "rules": one["rules"] if n < 100 else [], "sources": dict.fromkeys(names, bins)}
            for n in range(200)
        ],
        "pii": {**figures["pii"], "sources": [{"source": name, "email": 1} for name in names]},
        "quarantine": [
            {"stage": "ingest", "rule": name, "records": 1, "examples": [{**sample, "detail": TEXT}] * 50} for name in rules
        ],
        "reproduce": {**figures["reproduce"], "recipe": {"sources": {name: {"paths": [LONG] * 50} for name in names}}},
        "samples": {
            "kept": [{**sample, "source": name} for name in names for _ in range(50)],
            "removed": [{"stage": "filter", "rule": name, "texts": [sample] * 50} for name in rules],
            "near": [{**near, "rule": name, "kept": [excerpt] * 50, "removed": [excerpt] * 50} for name in rules],
            "pairs": [{**pair, "removed_text": [[True, TEXT]] * 40, "kept_text": [[False, TEXT]] * 40}] * 100,
            "tags": [{**tag, "before": TEXT, "after": TEXT}] * 200,
        },
    }  # fmt: skip


def alarm() -> dict[str, Any]:
    return {
        "source": "", "stage": "filter", "records": 9, "kept": 0, "min_kept": 0.1, "rule": "r", "by_rule": 9, "message": TEXT,
    }  # fmt: skip


@pytest.fixture
def figures(make_run: Maker) -> dict[str, Any]:
    """Those of a run in which every section has something to show."""
    return make_run(ordinary()).figures()


def test_a_large_page_is_small_and_says_what_is_missing(figures: dict[str, Any]) -> None:
    page = render(large(figures))
    assert 500_000 < len(page.encode()) <= LIMIT
    words = " ".join("".join(check(page).words).split())
    assert re.search(r"And \d+ more sources, with fewer records; all are in report.json", words)
    assert re.search(r"And \d+ more rules; all are in report.json", words)
    assert "292 more sources are lost" in words and "292 more warnings are in report.json" in words
    assert re.search(r"And \d+ more sources\.", words) and "a-source-with-a-long-name-…" not in words
    assert page == render(large(figures))


def test_the_last_level_is_far_below_the_limit(figures: dict[str, Any]) -> None:
    page = render(large(figures), limit=0)
    assert len(page.encode()) < LIMIT / 2
    check(page)


def test_an_ordinary_run_is_shown_whole(figures: dict[str, Any]) -> None:
    shown = trim(figures, LEVELS[0])
    assert json.loads(json.dumps(shown)) == json.loads(json.dumps(figures))


def test_sources_with_most_records_are_shown(figures: dict[str, Any]) -> None:
    shown = trim(large(figures), LEVELS[-1])["sources"]
    assert [row["records"] for row in shown] == list(range(299, 289, -1)) and shown.more == 290


@given(st.sets(st.text("ab", min_size=1, max_size=12), max_size=60))
def test_short_names_stay_apart(names: set[str]) -> None:
    """Names that are alike but for their middle are not confused, neither as values nor as keys."""
    long = [f"{'x' * 60}{name}{'y' * 60}" for name in sorted(names)]
    figures: dict[str, Any] = {
        "sources": [{"source": name, "records": 1} for name in long], "pii": None, "contamination": None,
        "samples": {name: [] for name in ("kept", "removed", "near", "pairs", "tags")}, "counts": dict.fromkeys(long, 1),
    }  # fmt: skip
    shown = trim(figures, replace(LEVELS[0], name=40))
    assert len(shown["counts"]) == len(long)
    assert [row["source"] for row in shown["sources"]] == list(shown["counts"])


@pytest.mark.browser
def test_a_large_page_fits_a_phone(browser: Browser, figures: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(large(figures)))
    check_page(browser, file, scripts=1)
