"""The shingles of the preset `short` in plain Python, by regular expressions: a second opinion on `text/short_shingles.py`."""

from __future__ import annotations

import re
from itertools import groupby

from corpusmill.pipeline.dedup.quality import plain

_WEB = re.compile(
    r"(?<![A-Za-z0-9_])(?:@[A-Za-z0-9_]+|&(?:#[A-Za-z0-9_]{0,8}|[A-Za-z0-9_]{1,9});|www\.[^\x00-\x20]*|https?://[^\x00-\x20]*)",
    re.I | re.A,
)


def shingles(text: str, ngram: int) -> set[tuple[str, ...]]:
    """The set of the runs of `ngram` characters that lie in one word and the spaces around it."""
    text = re.sub(r"[0-9]", "0", _WEB.sub(" ", text))
    found = plain.characters(text)
    if not found:
        return set()
    units = [unit for unit, _ in groupby([" ", *found, " "])]
    runs = [tuple(units[i : i + ngram]) for i in range(len(units) - ngram + 1)]
    inside = {run for run in runs if " " not in run[1:-1] and run != (" ",)}
    return inside or {tuple(units)}
