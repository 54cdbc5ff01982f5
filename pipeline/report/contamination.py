"""The section on evaluation sets: what `decontaminate` found of each, per source, and the items found most."""

from __future__ import annotations

from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.report.sections import loose_json

TABLE = "contamination.json"
DONE = {"remove": "removed", "cut": "cut", "report": "reported"}


def contamination(folder: Folder | None) -> dict[str, Any] | None:
    """`contamination.json` as the stage published it, with totals; None when the stage did not run."""
    table = loose_json(folder, TABLE)
    if table is None:
        return None
    sets = sorted(table["sets"], key=lambda row: (-row["documents"], -row["contaminated"], row["set"]))
    sources = sorted({source["source"] for row in sets for source in row["sources"]})
    for row in sets:
        row["by_source"] = {entry["source"]: entry["documents"] for entry in row["sources"]}
        row["share"] = row["contaminated"] / row["items"] if row["items"] else 0.0
    return {
        **table,
        "sets": sets,
        "sources": sources,
        "done": DONE.get(table["action"], table["action"]),
        "total": sum(table["documents"].values()),
        "contaminated": sum(row["contaminated"] for row in sets),
        "items": sum(row["items"] for row in sets),
    }
