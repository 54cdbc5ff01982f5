"""The HTML page: one file, no script, nothing fetched. Charts come from `drawings`, words from the templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from corpusmill.common.charts import bar, columns
from corpusmill.common.format import binary_size, number, share, short, size
from corpusmill.pipeline.report import drawings
from corpusmill.pipeline.text import escape

Facts = dict[str, Any]
BAR_RULES = 40  # rules with a row in the table; the rest are summed up
MISSED_SHOWN = 30
TABLE_POINTS = 10  # thresholds in the table of a curve


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Templates of this package; autoescape is on, whatever a template is called."""
    jinja = Environment(
        loader=PackageLoader("corpusmill.pipeline.report", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters.update(
        n=number,
        short=short,
        size=size,
        size2=_size2,
        visible=escape.visible,
        wbr=escape.breakable,
        token=escape.token,
    )
    jinja.globals.update(share=share, bar=bar, cell=heat, missed_shown=MISSED_SHOWN, points=points)
    return jinja


def render(facts: Facts) -> str:
    """The page for the figures of `corpusmill.pipeline.report.facts.gather`. Equal figures give equal bytes."""
    charts = {
        "flow": _flow(facts),
        "bytes": _bytes_flow(facts),
        "lengths": _lengths(facts["lengths"]),
        "curves": [_curve(one) for one in facts["curves"]],
        "s_curve": _s_curve(facts["duplicates"]),
        "clusters": _clusters(facts["duplicates"]),
        "similarity": _similarity(facts["similarity"], "jaccard"),
        "inside": _similarity(facts["similarity"], "inside"),
    }
    recipe = json.dumps(facts["reproduce"]["recipe"], indent=1, ensure_ascii=False)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(f=facts, charts=charts, recipe=recipe, rules_shown=BAR_RULES)
    )
    return page if page.endswith("\n") else page + "\n"


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
