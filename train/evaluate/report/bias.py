"""The bias figures of `evaluation.html`: all that `corpusmill fairness` found, as tables of figures with their interval, their number
and the value of a model without a preference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.fairness import (
    FairnessResults,
    Figure,
    Gap,
    ItemBias,
    TermGap,
    TextGroup,
    Toxicity,
)
from corpusmill.train.evaluate.resampling import figure

GROUP_FIGURES = {
    "mean": "Toxicity of a continuation",
    "expected_maximum": "Highest toxicity of a prompt's continuations",
    "above": "Share of continuations at the threshold or above",
    "any_above": "Share of prompts with such a continuation",
    "amplification": "Toxicity of a continuation less its prompt's",
}


class Row(NamedTuple):
    """`chance`: the value without a preference, or "" where none is known; `beyond`: whether the figure differs from it, None without
    either; `n`: of how many items, templates, texts or prompts."""

    name: str
    estimate: Estimate
    n: int
    chance: str = ""
    beyond: bool | None = None
    note: str = ""


class Table(NamedTuple):
    """`unit`: what `n` counts."""

    title: str
    unit: str
    rows: list[Row]


class Part(NamedTuple):
    """`findings` in words, `main` always to be seen, `more` on demand, `notes` on what the figures cannot show."""

    title: str
    findings: list[str]
    main: Table
    more: list[Table]
    notes: list[str]


def parts(found: FairnessResults) -> list[Part]:
    """Everything that was measured, in the order of the file."""
    made = [_task(name, one) for name, one in found.tasks.items()]
    if found.terms:
        made.append(_terms(found.terms))
    for title, groups, unit in (
        ("Validation text, by source", found.sources, "documents"),
        ("Texts by group", found.texts, "texts"),
    ):
        if groups:
            made.append(_texts(title, groups, unit))
    if found.toxicity:
        made.append(_toxicity(found.toxicity))
    return made


def _task(name: str, task: ItemBias) -> Part:
    # Winogender's slices are its occupations, which have too few sentences each.
    slices = {} if task.kind == "winogender" else task.slices
    more = [
        Table(value, "Items", [_row(key, one) for key, one in figures.items()])
        for value, figures in slices.items()
    ]
    return Part(
        name, task.findings, Table("Of all items", "Items", [_row(key, one) for key, one in task.overall.items()]),
        more, task.notes,
    )  # fmt: skip


def _row(name: str, one: Figure, n: int | None = None) -> Row:
    chance = "" if one.chance is None else f"{one.chance:.3g}"
    return Row(name, one.estimate, one.estimate.n if n is None else n, chance, one.beyond_chance)


def _terms(axes: Mapping[str, TermGap]) -> Part:
    rows, more = list[Row](), list[Table]()
    for axis, one in axes.items():
        for what, gap in (("whole sentences", one.whole), ("what follows the term", one.after)):
            if gap is None:
                continue
            rows.append(_gap(f"{axis}, {what}", gap))
            groups = [Row(group, each, each.clusters) for group, each in gap.groups.items()]
            others = [
                _row(f"{group}, less the others", figure(each, 0.0), each.clusters)
                for group, each in gap.against_others.items()
            ]
            ratio = Row(f"{gap.highest} over {gap.lowest}", gap.ratio, gap.ratio.clusters)
            more.append(Table(f"{axis}, {what}: bits per byte", "Templates", [*groups, *others, ratio]))
    main = Table("Bits per byte of the highest group less the lowest", "Templates", rows)
    return Part("Swapped terms", [], main, more, [])


def _gap(name: str, gap: Gap) -> Row:
    p = "p < 0.001" if gap.p < 0.001 else f"p = {gap.p:.2g}"
    note = f"{gap.highest} less {gap.lowest}, {p}"
    return Row(name, gap.gap, gap.gap.clusters, f"up to {gap.chance:.3g}", gap.beyond_chance, note)


def _texts(title: str, groups: Mapping[str, TextGroup], unit: str) -> Part:
    rows = [Row(name, one.bits_per_byte, one.texts) for name, one in groups.items()]
    return Part(title, [], Table("Bits per byte", unit.capitalize(), rows), [], [])


def _toxicity(toxic: Toxicity) -> Part:
    def row(name: str, key: str, estimate: Estimate) -> Row:
        return _row(name, figure(estimate, 0.0 if key == "amplification" else None))

    overall = [row(title, key, getattr(toxic.overall, key)) for key, title in GROUP_FIGURES.items()]
    more = [
        Table(title, "Prompts", [row(name, key, getattr(one, key)) for name, one in toxic.groups.items()])
        for key, title in GROUP_FIGURES.items()
        if toxic.groups
    ]
    for axis, groups in toxic.disparity.items():
        rows = [_row(name, figure(one, 0.0)) for name, one in groups.items()]
        more.append(Table(f"{axis}: toxicity less that of the other groups", "Templates", rows))
    of = "" if toxic.available is None else f" of {toxic.available:,}"
    notes = [
        f"{toxic.samples:,} continuations of each of {toxic.overall.prompts:,}{of} prompts, of {toxic.max_tokens:,} tokens at most;"
        f" threshold {toxic.threshold:g}; classifier {toxic.model}. Intervals: prompts of one template are not independent."
    ]
    for error in toxic.errors:
        figures = [
            "–" if one is None else f"{one:.3g}"
            for one in (error.precision, error.recall, error.false_positive_rate)
        ]
        notes.append(
            f"The classifier on {error.name} ({error.texts:,} texts): precision {figures[0]}, recall {figures[1]}, false positives"
            f" {figures[2]}."
        )
    return Part(
        "Toxicity of continuations", [toxic.finding], Table("Of all prompts", "Prompts", overall), more, notes
    )
