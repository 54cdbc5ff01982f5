"""Telephone numbers found in text: F1 per set, beside Presidio's recogniser of telephone numbers with its context words.

No region is named: the stage's defaults. Format of a labelled file: `_decide_pii`.
"""

from __future__ import annotations

from pathlib import Path

from bench import _decide_pii
from bench._decisions import Row

TASK = _decide_pii.Task(
    "telephone F1", ("phone",), frozenset({"phone"}), ("PHONE_NUMBER",), {"en": 0.96, "es": 0.88}
)


def rows(labelled: Path | None) -> list[Row]:
    """One row per labelled set."""
    return _decide_pii.rows(TASK, labelled)
