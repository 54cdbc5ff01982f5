"""Numbers of patients, social security, licences, orders, cases and the like, found by what stands before them: F1 per set, of any such
kind, beside Presidio's pattern recognisers of such numbers. Format of a labelled file: `_decide_pii`.
"""

from __future__ import annotations

from pathlib import Path

from bench import _decide_pii
from bench._decisions import Row

ENTITIES = (
    "US_SSN",
    "US_DRIVER_LICENSE",
    "US_PASSPORT",
    "US_BANK_NUMBER",
    "US_ITIN",
    "MEDICAL_LICENSE",
    "UK_NHS",
)


def rows(labelled: Path | None) -> list[Row]:
    """One row per labelled set."""
    kinds = _decide_pii.identifier_kinds()
    labels = frozenset({*kinds, "identifier"})
    task = _decide_pii.Task("identifiers F1", kinds, labels, ENTITIES, {"en": 0.60, "es": 0.75})
    return _decide_pii.rows(task, labelled)
