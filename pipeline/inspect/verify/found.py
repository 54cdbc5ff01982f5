"""What verification found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from corpusmill.schemas.manifest import Counts


@dataclass
class Verified:
    """What was checked, and what is wrong: `problems` is empty if all is well."""

    files: int = 0
    bytes: int = 0
    stages: dict[str, Counts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be checked, and why
    unfinished: bool = False  # the run did not finish: what is there may be right, but is not all
    decoded: int = 0  # documents of shards, compared with their cleaned text
    signed_by: str = ""  # public key (base64) whose signature of the record is valid
    # Rows of the ledger by (source, outcome, stage); the stage of a kept document is left out.
    ledger: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    named: set[str] = field(default_factory=set)  # paths below the folder that a manifest or the record names
    weak: int = 0  # files whose manifest has no SHA-256
