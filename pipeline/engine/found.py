"""What a stage found, in words for its line on the console: made of the counters that its manifest has."""

from __future__ import annotations

from collections.abc import Mapping

from corpusmill.schemas.manifest import Counts

SHOWN = 4  # of the most frequent kinds


def documents_removed(counts: Counts) -> str:
    """`118 of 1,351 documents removed, 2 quarantined`."""
    quarantined = f", {counts.quarantined:,} quarantined" if counts.quarantined else ""
    return f"{counts.removed:,} of {counts.docs_in:,} documents removed{quarantined}"


def kinds(counters: Mapping[str, int], prefix: str = "", suffix: str = "") -> dict[str, int]:
    """kind -> number, of the counters named `<prefix><kind><suffix>` that are not 0."""
    return {
        name[len(prefix) : len(name) - len(suffix)]: number
        for name, number in counters.items()
        if name.startswith(prefix) and name.endswith(suffix) and number
    }


def most(numbers: Mapping[str, int], shown: int = SHOWN) -> str:
    """`email 312, phone 40, 3 more`: the most frequent kinds first; empty if there are none."""
    ordered = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == shown + 1:
        shown += 1  # it takes no more space than to count it
    parts = [f"{kind} {number:,}" for kind, number in ordered[:shown]]
    return ", ".join([*parts, *([f"{len(ordered) - shown} more"] if len(ordered) > shown else [])])


def clause(what: str, listed: str) -> str:
    """`what: listed`, or `what` alone where nothing is listed."""
    return f"{what}: {listed}" if listed else what
