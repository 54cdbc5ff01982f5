"""What each task of `bench decisions` hands over: one row a decision and labelled set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table.

    `decision` names the figure ("toxicity AUC", "telephone F1"), `judged_on` the labelled set and how many items it has;
    `ours` and `peers` are that figure, measured in this run on the same items; `wanted` is the goal, where one is set;
    `note` says in a few words what else a reader must know (what was learned from, what was left out).
    """

    decision: str
    judged_on: str
    ours: float
    peers: Mapping[str, float]
    wanted: float | None = None
    note: str = ""


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table: ours, the best peer by name, the goal."""
    lines = ["| decision | judged on | ours | best peer | wanted | |", "|---|---|---:|---:|---:|---|"]
    for row in rows:
        best = max(row.peers.items(), key=lambda peer: peer[1]) if row.peers else None
        cells = [
            row.decision,
            row.judged_on,
            f"{row.ours:.3f}",
            f"{best[1]:.3f} ({best[0]})" if best else "-",
            f"{row.wanted:g}" if row.wanted is not None else "-",
            row.note,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
