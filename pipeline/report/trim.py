"""What of the figures a page of bounded size shows: lists cut to their first entries, which know how many more there are, and long
names and texts shortened. `report.json` has all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from corpusmill.pipeline.report.excerpts import cut

Facts = dict[str, Any]
TEXTS: Final = ("text", "before", "after", "message", "description", "attribution", "sentence")  # not names
BY_NAME: Final = ("sources", "languages", "scripts", "revisions")  # mappings whose keys are data
WHOLE: Final = ("recipe", "counters", "grid", "edges")  # written elsewhere, or numbers that a chart needs


@dataclass(frozen=True)
class Detail:
    """How much is shown."""

    rows: int  # of a table
    columns: int  # sources that have a column each
    samples: int  # texts of a rule or a source
    chars: int  # of a text
    name: int  # characters of a name
    spread: int  # sources below a distribution
    unjudged: int  # distributions of signals that no rule judges
    recipe: int  # characters


LEVELS: Final = (
    Detail(120, 16, 50, 2_000, 160, 8, 80, 100_000),
    Detail(60, 12, 10, 1_000, 100, 6, 40, 40_000),
    Detail(40, 10, 4, 500, 80, 4, 20, 20_000),
    Detail(25, 8, 2, 240, 60, 2, 10, 10_000),
    Detail(10, 5, 1, 120, 40, 1, 0, 2_000),
)


class Part(list[Any]):
    """The first of some entries, and how many more there are."""

    def __init__(self, entries: Iterable[Any], more: int) -> None:
        super().__init__(entries)
        self.more = more


class PartOf(dict[str, Any]):
    """The same of a mapping."""

    def __init__(self, entries: Iterable[tuple[str, Any]], more: int) -> None:
        super().__init__(entries)
        self.more = more


def total(entries: Any) -> int:
    """How many there are, with those that are not shown."""
    return len(entries) + getattr(entries, "more", 0)


class _Names(dict[str, str]):
    """Long name -> a short one, the same wherever it stands, and no other name's."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.used = limit, set[str]()

    def __missing__(self, name: str) -> str:
        half = self.limit // 2
        short, again = f"{name[:half]}…{name[-half:]}", 1
        while short in self.used:
            again += 1
            short = f"{name[:half]}…{name[-half:]} ({again})"
        self.used.add(short)
        self[name] = short
        return short

    def short(self, name: str) -> str:
        """The name, if it is short enough."""
        return name if len(name) <= self.limit else self[name]


def trim(facts: Facts, detail: Detail) -> Facts:
    """The figures as a page shows them. Equal figures give equal ones."""
    chosen = {**facts, "sources": _largest(facts["sources"], detail.rows)}
    if facts["pii"]:
        chosen["pii"] = {**facts["pii"], "sources": _part(facts["pii"]["sources"], detail.columns)}
    if facts["contamination"]:
        columns = _part(facts["contamination"]["sources"], detail.columns)
        chosen["contamination"] = {**facts["contamination"], "sources": columns}
    chosen["samples"] = {**facts["samples"], **_samples(facts["samples"], detail)}
    names = _Names(detail.name)
    return {name: _short(value, detail, names, name) for name, value in chosen.items()}


def letters(samples: Any) -> int:
    """Characters of all samples: a page of them is no smaller."""
    if isinstance(samples, str):
        return len(samples)
    below = (
        samples.values()
        if isinstance(samples, dict)
        else samples
        if isinstance(samples, list | tuple)
        else ()
    )
    return sum(map(letters, below))


def _part(entries: list[Any], count: int) -> list[Any]:
    return Part(entries[:count], len(entries) - count) if len(entries) > count else entries


def _largest(sources: list[Facts], count: int) -> list[Facts]:
    """Sources with most records, where not all can be shown."""
    if len(sources) <= count:
        return sources
    return _part(sorted(sources, key=lambda row: (-row["records"], row["source"])), count)


def _samples(samples: Facts, detail: Detail) -> Facts:
    by_source: dict[str, list[Facts]] = {}
    for row in samples["kept"]:
        by_source.setdefault(row["source"], []).append(row)
    few = [row for rows in list(by_source.values())[: detail.rows] for row in rows[: detail.samples]]
    near = [
        {**rule, "removed": rule["removed"][: detail.samples], "kept": rule["kept"][: detail.samples]}
        for rule in samples["near"]
    ]
    pairs = [
        {**pair, **{side: _marked(pair[side], detail.chars) for side in ("removed_text", "kept_text")}}
        for pair in samples["pairs"][: detail.rows]
    ]
    return {
        "kept": Part(few, len(by_source) - detail.rows if len(by_source) > detail.rows else 0),
        "removed": [{**rule, "texts": rule["texts"][: detail.samples]} for rule in samples["removed"]],
        "near": near,
        "pairs": pairs,
        "tags": samples["tags"],
    }


def _marked(parts: list[Any], chars: int) -> list[tuple[bool, str]]:
    """The first characters of runs of (differs, text)."""
    found: list[tuple[bool, str]] = []
    left = chars
    for differs, text in parts:
        if left <= 0:
            return [*found, (False, " …")]
        found.append((differs, text[:left]))
        left -= len(text)
    return found


def _short(value: Any, detail: Detail, names: _Names, key: str) -> Any:
    """A value and all below it; lists of numbers stay."""
    if key in WHOLE:
        return value
    if isinstance(value, str):
        return cut(value, detail.chars) if key in TEXTS else names.short(value)
    if isinstance(value, dict):
        pairs = list(value.items())[: detail.rows if key in BY_NAME else None]
        short = [(names.short(k), _short(v, detail, names, k)) for k, v in pairs]
        more = len(value) - len(pairs)
        return PartOf(short, more) if more else dict(short)
    if isinstance(value, list | tuple):
        if key.endswith("_text"):
            return value
        few = value if _numbers(value) else value[: detail.rows]
        entries = [_short(entry, detail, names, key if isinstance(entry, str) else "") for entry in few]
        more = getattr(value, "more", 0) + len(value) - len(entries)
        return Part(entries, more) if more else entries
    return value


def _numbers(value: Any) -> bool:
    return bool(value) and isinstance(value[0], int | float | list)
