"""Sources of which a stage keeps nothing, or less than their `min_kept`: found in the manifests, explained from the ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.schemas.manifest import Counts, SourceLost, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import KEPT

SHOWN = 5  # sources named in the message of a command
# Where a record stands is no part of its reason: details that differ in it alone are counted as one.
_PLACE = re.compile(r"[,;:]? ?(?:the )?(?:line )?(?:from |at |before |of )?byte \d+(?: on)?")
_SUGGESTED = re.compile(r"; did you mean '([^']+)'\?")
_MADE_FOR = re.compile(r"made for (.+); language (\S+)")
_LISTED = re.compile(r" \((?:fields|columns): .*\)")


class LostSources(WorkError):
    """Sources lost (nearly) everything in a stage; the accounts of the run are written up to the report."""

    def __init__(self, losses: list[SourceLost], manifests: list[StageManifest]) -> None:
        lines = [loss.message for loss in losses[:SHOWN]]
        if len(losses) > SHOWN:
            lines.append(f"... and {len(losses) - SHOWN} more sources")
        super().__init__("\n".join(lines))
        self.losses, self.manifests = losses, manifests


class _Reason(NamedTuple):
    rule: str
    detail: str
    records: int


def lost_sources(
    recipe: Recipe, manifests: Mapping[str, StageManifest], ledger: Folder, command: bool
) -> list[SourceLost]:
    """Each source with the first local stage that kept less of it than its `min_kept`, in the recipe's order.

    `manifests` are those of the local stages, in order. `command`: the run is of one stage's command, so advice
    names its options instead of keys of a recipe.
    """
    found: list[tuple[str, str, Counts]] = []
    whole = _of_other_runs(recipe, manifests)
    for name in list(recipe.sources)[: 1 if whole else None]:
        least = recipe.sources[name].min_kept
        for stage, manifest in manifests.items():
            counts = manifest.counts if whole else manifest.per_source.get(name, Counts())
            if counts.docs_in and least and (not counts.kept or counts.kept < least * counts.docs_in):
                found.append((name, stage, counts))
                break
    losses = []
    for name, stage, counts in found:
        reason = _reason(manifests["ingest"].partitions, ledger, stage, None if whole else name)
        message = _message(name, stage, counts.docs_in, counts.kept, reason, recipe, command)
        losses.append(
            SourceLost(
                source=name, stage=stage, records=counts.docs_in, kept=counts.kept,
                min_kept=recipe.sources[name].min_kept, rule=reason.rule if reason else None,
                by_rule=reason.records if reason else 0, message=message,
            )
        )  # fmt: skip
    return losses


def _of_other_runs(recipe: Recipe, manifests: Mapping[str, StageManifest]) -> bool:
    """Whether documents come with the names of another run's sources: then they are judged together, as the first source."""
    return not set(manifests["ingest"].per_source) <= set(recipe.sources)


def _reason(partitions: list[str], ledger: Folder, stage: str, source: str | None) -> _Reason | None:
    """The rule that took most in a stage, of one source or of all, with its most frequent detail."""
    rules: Counter[str] = Counter()
    details: dict[str, Counter[str]] = {}
    for partition in partitions:
        rows = read_table(
            ledger / f"{partition}.parquet", columns=["source", "stage", "outcome", "rule", "detail"]
        )
        here = pc.and_(pc.equal(rows["stage"], stage), pc.not_equal(rows["outcome"], KEPT))
        if source is not None:
            here = pc.and_(here, pc.equal(rows["source"], source))
        counted = (
            rows.filter(here).group_by(["rule", "detail"], use_threads=False).aggregate([([], "count_all")])
        )
        for row in counted.to_pylist():
            rules[row["rule"]] += row["count_all"]
            detail = _PLACE.sub("", row["detail"] or "")
            details.setdefault(row["rule"], Counter())[detail] += row["count_all"]
    if not rules:
        return None
    rule, records = rules.most_common(1)[0]
    return _Reason(rule, details[rule].most_common(1)[0][0], records)


def _message(
    source: str, stage: str, records: int, kept: int, reason: _Reason | None, recipe: Recipe, command: bool
) -> str:
    what = "records" if stage == "ingest" else "documents"
    named = "" if command else f" of source '{source}'"
    lost = f"{stage} kept {kept:,} of {records:,} {what}{named}"
    key = f"sources.{source}.min_kept"
    allow = f"(to allow such a loss: {f'--set {key}=0' if command else f'{key}: 0'})"
    if reason is None:
        return f"{lost} {allow}"
    because = _LISTED.sub("", _SUGGESTED.sub("", reason.detail))
    because = f"{because} in {reason.records:,} of {records:,} ({reason.rule})" if because else reason.rule
    if not reason.detail:
        because += f" in {reason.records:,} of {records:,}"
    suggested = _SUGGESTED.search(reason.detail)
    hint = suggested[0] if suggested else ""
    advice = _ADVICE.get(reason.rule, _languages)(source, reason, recipe, command)
    return f"{lost}: {because}{hint}{'' if hint or not advice else ';'} {advice}{allow}"


Advice = Callable[[str, _Reason, Recipe, bool], str]


def _languages(source: str, reason: _Reason, recipe: Recipe, command: bool) -> str:
    """For a rule that was judged on text of a language it is not made for: how to leave that text to the other rules."""
    found = _MADE_FOR.match(reason.detail)
    if not found:
        return ""
    setting = f"[{found[1]}, {found[2]}]"
    key = f"--set 'filter.language.keep={setting}'" if command else f"filter.language.keep: {setting}"
    return f"to keep {found[2]} and leave it to the other rules: {key} "


def _text_column(source: str, reason: _Reason, recipe: Recipe, command: bool) -> str:
    suggested = _SUGGESTED.search(reason.detail)
    column = suggested[1] if suggested else "NAME"
    return f"--text-column {column} " if command else f"sources.{source}.text_column: {column} "


_ADVICE: dict[str, Advice] = {"ingest.no_text": _text_column, "ingest.text_type": _text_column}
