"""What ratings show: win rates, scores, agreement of the raters, and whether the left text had an advantage."""

from __future__ import annotations

import json
from collections.abc import Sequence

from corpusmill.common.ids import checksum
from corpusmill.schemas.judging import Agreement, Comparison, Judgement, JudgeReport
from corpusmill.train.evaluate.judge.agreement import agreement
from corpusmill.train.evaluate.judge.ranking import groups, ranked, win_rate
from corpusmill.train.evaluate.judge.ratings import labelled, latest, latest_of_texts
from corpusmill.train.evaluate.resampling import shown
from corpusmill.train.evaluate.statistics import estimate


def report(rows: Sequence[Judgement]) -> JudgeReport:
    """Of all ratings of some files, at least one."""
    every, versions = labelled(rows)
    kept = latest(every)
    raters: dict[str, int] = {}
    for row in kept:
        raters[row.rater] = raters.get(row.rater, 0) + 1
    comparisons = [_comparison(own) for own in _by_models(kept).values()]
    units: dict[str, list[str]] = {}
    for row in latest_of_texts(kept):
        units.setdefault(row.pair, []).append(_preferred(row))
    both = [unit for unit in units.values() if len(unit) > 1]
    sided = [row for row in kept if row.choice in ("a", "b")]
    left = None
    if sided:
        left = estimate([float(row.choice == row.left) for row in sided], [row.pair for row in sided])
    found = JudgeReport(
        ratings=len(kept), pairs=len({(row.pair, row.models) for row in kept}), raters=raters, replaced=len(rows) - len(kept),
        comparisons=comparisons, scores=ranked(kept), groups=groups(kept),
        agreement=Agreement(raters=len(raters), pairs=len(both), alpha=agreement(both)), left=left, findings=[],
    )  # fmt: skip
    lines = [*map(_words, comparisons), *_notes(found)]
    for name, labels in versions.items():
        lines.append(
            f"{name}: ratings of {len(labels)} versions of its weights are counted apart: {', '.join(labels)}"
        )
    return found.model_copy(update={"findings": lines})


def _preferred(row: Judgement) -> str:
    """Which of the two texts a rating is for, in the same words for all raters and whichever models the texts are of: the first text is
    the one with the lower hash, as one that sorts first, such as an empty one, may be the worse one throughout."""
    if row.choice not in ("a", "b"):
        return row.choice
    chosen, other = (row.text_a, row.text_b) if row.choice == "a" else (row.text_b, row.text_a)
    return "first" if _order(row.prompt, chosen) < _order(row.prompt, other) else "second"


def _order(prompt: str, text: str) -> str:
    return checksum(json.dumps([prompt, text]).encode())


def _by_models(rows: Sequence[Judgement]) -> dict[tuple[str, str], list[Judgement]]:
    found: dict[tuple[str, str], list[Judgement]] = {}
    for row in rows:
        found.setdefault((min(row.a, row.b), max(row.a, row.b)), []).append(row)
    return found


def _comparison(rows: Sequence[Judgement]) -> Comparison:
    a, b = sorted((rows[0].a, rows[0].b))
    names = [{"a": row.a, "b": row.b}.get(row.choice, row.choice) for row in rows]
    credit = [{a: 1.0, b: 0.0}.get(name, 0.5) for name in names]
    return Comparison(
        a=a, b=b, ratings=len(rows), wins_a=names.count(a), wins_b=names.count(b), ties=names.count("tie"),
        both_bad=names.count("both_bad"), win_rate=win_rate(credit, [row.prompt for row in rows]),
    )  # fmt: skip


def _words(found: Comparison) -> str:
    rate = found.win_rate
    if rate.low is None or rate.high is None:
        return f"{found.a} against {found.b}: too few prompts to tell"
    if rate.low <= 0.5 <= rate.high:
        return f"{found.a} against {found.b}: no difference beyond chance, win rate {shown(rate)}"
    better, worse = (found.a, found.b) if rate.value > 0.5 else (found.b, found.a)
    return f"{better} is preferred to {worse}: win rate of {found.a} {shown(rate)}"


def _notes(found: JudgeReport) -> list[str]:
    lines = []
    if len(found.groups) > 1:
        named = "; ".join(", ".join(group) for group in found.groups)
        lines.append(f"no Bradley-Terry scores: no rating compares models of different groups: {named}")
    elif not found.scores:
        lines.append("no Bradley-Terry scores: some models have only won or only lost against the others")
    alpha, left = found.agreement.alpha, found.left
    if alpha is not None and alpha.low is not None and alpha.low <= 0:
        lines.append(f"the raters agree no more than by chance: alpha {shown(alpha)}")
    if (
        left is not None
        and left.low is not None
        and left.high is not None
        and not left.low <= 0.5 <= left.high
    ):
        lines.append(f"position bias: of choices for one side, {shown(left)} were for the left text")
    return lines
