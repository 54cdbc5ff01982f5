"""The HTML page: one file, nothing fetched, of bounded size; its one script searches ids on the page. Charts come from `drawings`,
words from the templates, and what is left out of a large page is decided in `trim`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from corpusmill.common import pages
from corpusmill.common.charts import columns, tick
from corpusmill.common.format import binary_size, head, number, share, size
from corpusmill.pipeline.report import drawings
from corpusmill.pipeline.report.trim import LEVELS, Detail, letters, total, trim

Facts = dict[str, Any]
LIMIT = 2_000_000  # bytes of the page
ALARMS = 8  # and so many warnings
OPEN = 9  # distributions that are not folded away
MISSED_SHOWN = 30
TABLE_POINTS = 10  # thresholds in the table of a curve
NAME = 24  # characters of a name that fit into a drawing


@lru_cache(maxsize=4)
def environment(*packages: str) -> Environment:
    """Templates of the packages, then those of this one, whose macros they may import."""
    jinja = pages.environment(*packages, "corpusmill.pipeline.report")
    jinja.filters.update(size2=_size2, total=total)
    jinja.globals.update(cell=heat, missed_shown=MISSED_SHOWN, points=points)
    return jinja


def render(facts: Facts, limit: int = LIMIT, public: bool = False) -> str:
    """The page for the figures of `corpusmill.pipeline.report.facts.gather`. Equal figures give equal bytes: the most detailed
    page of at most `limit` bytes, or else the least detailed one. A `public` one does not refer to the run's folder, and has no search,
    as it shows no documents."""
    page = ""
    for detail in LEVELS:
        shown = trim(facts, detail)
        if letters(shown["samples"]) > limit and detail != LEVELS[-1]:
            continue
        page = _page(facts, shown, detail, public)
        if len(page.encode()) <= limit:
            break
    return page


def _page(facts: Facts, shown: Facts, detail: Detail, public: bool) -> str:
    judged, unjudged = (
        [one for one in facts["distributions"] if bool(one["rules"]) == on] for on in (True, False)
    )
    spreads = [*judged[: detail.rows], *unjudged[: detail.unjudged]]
    charts = {
        "flow": _flow(shown),
        "bytes": _bytes_flow(shown),
        "lengths": _lengths(shown["lengths"]),
        "curves": [_curve(one) for one in shown["curves"]],
        "distributions": [_distribution(one, detail) for one in spreads],
        "s_curve": _s_curve(shown["duplicates"]),
        "clusters": _clusters(shown["duplicates"]),
        "similarity": _similarity(shown["similarity"], "jaccard"),
        "inside": _similarity(shown["similarity"], "inside"),
    }
    recipe = json.dumps(facts["reproduce"]["recipe"], indent=1, ensure_ascii=False)
    if len(recipe) > detail.recipe:
        recipe = f"{recipe[: detail.recipe]} …\n\nThe rest is in report.json."
    script = _script()
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            f=shown, charts=charts, recipe=recipe, alarms_shown=ALARMS, open=OPEN, script=Markup(script), script_hash=_hash(script),
            unjudged=max(0, len(unjudged) - detail.unjudged), public=public,
        )
    )  # fmt: skip
    return page if page.endswith("\n") else page + "\n"


@lru_cache(maxsize=1)
def _script() -> str:
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), "search.js")[0]


def _hash(script: str) -> str:
    """What the page's policy names its script by: no other one runs."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


SIGNS = {"at_least": "≥", "at_most": "≤", "more_than": ">", "less_than": "<"}


def _distribution(one: Facts, detail: Detail) -> Facts:
    """The chart of a signal; `more`: sources without a histogram of their own."""
    sources = [
        drawings.Spread(head(name, NAME), counts)
        for name, counts in list(one["sources"].items())[: detail.spread]
    ]
    marks = [
        (rule["threshold"], f"{SIGNS[rule['comparison']]} {tick(rule['threshold'])}") for rule in one["rules"]
    ]
    chart = drawings.distribution(
        one["edges"], one["log"], one["documents"], one["kept"], sources if len(one["sources"]) > 1 else (), marks,
        f"Distribution of {one['signal']}, in all and by source",
    )  # fmt: skip
    return {
        "signal": one["signal"],
        "judged": bool(one["rules"]),
        "chart": chart,
        "more": max(0, len(one["sources"]) - detail.spread),
    }


def _size2(low: int) -> str:
    return binary_size(low.bit_length() - 1)


def heat(count: int, most: int) -> Markup:
    """Style of a cell in a heat table: an opacity that grows with the square root of the count."""
    strength = (count / most) ** 0.5 if most else 0.0
    return Markup(f"--heat:{strength:.2f}")


def _flow(facts: Facts) -> Markup:
    totals, steps = facts["totals"], []
    for step in facts["flow"]:
        lines = []
        for what in ("removed", "quarantined"):
            if step[what]:
                lines.append(f"− {number(step[what])} {what}, {share(step[what], step['docs_in'])}")
        if step["stage"] == "redact" and facts["pii"]:
            lines.append(f"{number(facts['pii']['spans'])} spans replaced")
        if not lines:
            lines.append("nothing removed")
        steps.append(
            drawings.Step(step["stage"], step["removed"], step["quarantined"], step["kept"], tuple(lines))
        )
    head = (f"{number(totals['records'])} records", "read from the sources")
    foot = (f"{number(totals['kept'])} documents kept", share(totals["kept"], totals["records"]))
    label = f"Documents through the stages: {totals['records']} in, {totals['kept']} kept"
    return drawings.flow(totals["records"], head, steps, foot, label)


def _bytes_flow(facts: Facts) -> Markup:
    """The same in bytes of text. Ingest begins it: what it read is no text yet."""
    first, *rest = facts["flow"]
    steps = []
    for step in rest:
        lost = max(0, step["bytes_in"] - step["bytes_kept"])
        what = f"− {size(lost)}, {share(lost, step['bytes_in'])}" if lost else "nothing removed"
        steps.append(drawings.Step(step["stage"], lost, 0, step["bytes_kept"], (what,)))
    head = (f"{size(first['bytes_kept'])} of text", f"from {size(first['bytes_in'])} of files")
    totals = facts["totals"]
    foot = [f"{size(totals['kept_bytes'])} of text kept"]
    if totals["tokens"] is not None:
        foot.append(f"{number(totals['tokens'])} tokens")
    label = f"Text through the stages: {first['bytes_kept']} bytes in, {totals['kept_bytes']} kept"
    return drawings.flow(first["bytes_kept"], head, steps, foot, label)


def _lengths(lengths: Facts) -> Markup | None:
    if not lengths["documents"]:
        return None
    labels = [binary_size(low.bit_length() - 1) for low in lengths["from_bytes"]]
    titles = [
        f"{label} to twice that: {number(n)} documents, {number(kept)} kept"
        for label, n, kept in zip(labels, lengths["documents"], lengths["kept"], strict=True)
    ]
    return columns(
        labels, lengths["documents"], lengths["kept"], "length of the text as ingested",
        "Documents by length, all and kept", titles,
    )  # fmt: skip


def _curve(one: Facts) -> Markup:
    """Documents and text: the line of tokens would lie on that of text but for the mixture of sources."""
    removals = [
        drawings.Removal(name, name, one[name]["failed"], one[name]["marginal"], one[name]["of"])
        for name in ("documents", "bytes")
    ]
    return drawings.threshold_curve(
        one["grid"], removals, one["threshold"], one["log"], f"{one['signal']}: {one['comparison'].replace('_', ' ')} …",
        f"Removal by {one['rule']} by its threshold",
    )  # fmt: skip


def points(one: Facts) -> list[int]:
    """Places of the grid that a table shows: about ten, with the threshold in force among them."""
    grid, steps = one["grid"], TABLE_POINTS - 1
    last = len(grid) - 1
    return sorted({grid.index(one["threshold"]), *(last * step // steps for step in range(steps + 1))})


def _s_curve(found: Facts | None) -> Markup | None:
    if not found or not (found["s_curve"] or found["s_curve_measured"] or found["s_curve_planted"]):
        return None
    return drawings.s_curve(
        found["s_curve"], found["s_curve_measured"], found["s_curve_planted"], found["similarity"],
        found["promised"], "Probability that a pair of documents is found, by its similarity",
    )  # fmt: skip


def _clusters(found: Facts | None) -> Markup | None:
    rows: Sequence[Facts] = (found or {}).get("cluster_sizes") or ()
    if not rows:
        return None
    labels = [_range(row) for row in rows]
    titles = [
        f"{_range(row)} documents: {number(row['clusters'])} clusters, {number(row['documents'])} documents"
        for row in rows
    ]
    amounts = [row["clusters"] for row in rows]
    return columns(labels, amounts, None, "documents in the cluster", "Clusters by size", titles)


def _similarity(found: Facts | None, measure: str) -> Markup | None:
    """Validation documents by their highest similarity with a document of train."""
    if not found:
        return None
    what = {"jaccard": "Jaccard similarity", "inside": "share inside a document of train"}[measure]
    starts, amounts = found["histogram"]["from"], found["histogram"][measure]
    ends = [*starts[1:], 1.0]
    titles = [
        f"{low:g} to {high:g}: {number(n)} documents"
        for low, high, n in zip(starts, ends, amounts, strict=True)
    ]
    labels = [f"{low:g}" for low in starts]
    label = f"Validation documents by their highest {what}"
    return columns(labels, amounts, None, what, label, titles)


def _range(row: Facts) -> str:
    if row["to"] is None:
        return f"> {row['from'] - 1}"
    return str(row["from"]) if row["from"] == row["to"] else f"{row['from']}–{row['to']}"
