"""What the top of the page warns of beside losses that end a run: sources that delivered nothing, of which nothing is left, or of
which one stage took most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from corpusmill.common.format import number, share
from corpusmill.pipeline.report.survey import Survey
from corpusmill.schemas.manifest import Counts, SourceLost, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import KEPT, OUTCOMES, QUARANTINED, REMOVED

MOST: Final = 0.5  # share of a source's documents in a stage
FEW: Final = 20  # documents; of fewer, what a stage takes says little
Row = dict[str, Any]


def warnings(
    recipe: Recipe, stages: Mapping[str, StageManifest], found: Survey, losses: list[SourceLost]
) -> list[Row]:
    """The warnings, sources that are empty first. `stages`: the local ones, in order; `losses` are alarms of their own."""
    first, *_ = stages.values()
    delivered = {source for source, _ in found.outcomes}
    # The documents of another run come with the names of its sources.
    declared = set(recipe.sources) if set(first.per_source) <= set(recipe.sources) else set()
    alarmed = {loss.source for loss in losses}
    rows = [_warning("nothing", name, None, 0, 0, None, 0) for name in sorted(declared - delivered)]
    emptied, taken = [], []
    for name in sorted(delivered - alarmed):
        records = sum(found.outcomes[name, outcome] for outcome in OUTCOMES)
        kept = found.outcomes[name, KEPT]
        least = recipe.sources[name].min_kept if name in declared else 0.0
        lost = {
            stage: _Lost(stage, counts.docs_in - counts.kept, counts)
            for stage, manifest in stages.items()
            if (counts := manifest.per_source.get(name, Counts())).docs_in
        }
        if not lost:
            continue
        worst = max(lost.values(), key=lambda one: one.documents)
        if not kept or kept < least * records:
            rule, by_rule = _rule(found, name, worst.stage, (REMOVED, QUARANTINED))
            emptied.append(_warning("emptied", name, worst.stage, records - kept, records, rule, by_rule))
            continue
        # What ingest removes is no document, such as the redirects of a wiki: there, what could not be read counts.
        lost[first.stage] = _Lost(first.stage, lost[first.stage].counts.quarantined, lost[first.stage].counts)
        worst = max(lost.values(), key=lambda one: one.documents)
        if worst.counts.docs_in >= FEW and worst.documents >= MOST * worst.counts.docs_in:
            outcomes = (QUARANTINED,) if worst.stage == first.stage else (REMOVED, QUARANTINED)
            rule, by_rule = _rule(found, name, worst.stage, outcomes)
            taken.append(
                _warning("stage", name, worst.stage, worst.documents, worst.counts.docs_in, rule, by_rule)
            )
    return [*rows, *emptied, *sorted(taken, key=lambda row: (-row["documents"] / row["of"], row["source"]))]


class _Lost(NamedTuple):
    """Documents of one source that a stage took, and its counts of it."""

    stage: str
    documents: int
    counts: Counts


def _rule(found: Survey, source: str, stage: str, outcomes: tuple[str, ...]) -> tuple[str | None, int]:
    """The rule that took most of a source in a stage."""
    by: Counter[str] = Counter()
    for (rule, outcome, where), count in found.first.items():
        if rule.stage == stage and where == source and outcome in outcomes:
            by[rule.rule] += count
    return min(by.items(), key=lambda entry: (-entry[1], entry[0])) if by else (None, 0)


def _warning(
    kind: str, source: str, stage: str | None, documents: int, of: int, rule: str | None, by_rule: int
) -> Row:
    because = f", most of it by {rule} ({number(by_rule)})" if rule else ""
    message = {
        "nothing": "Nothing was found at its paths, or its files hold no record.",
        "emptied": f"{number(of - documents)} of {number(of)} records are kept; {stage} took most{because}.",
        "stage": f"{stage} took {share(documents, of)} of what it got of it: {number(documents)} of {number(of)} documents"
        f"{because}.",
    }[kind]
    return {
        "kind": kind, "source": source, "stage": stage, "documents": documents, "of": of, "rule": rule,
        "by_rule": by_rule, "message": message,
    }  # fmt: skip
