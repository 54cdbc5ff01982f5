"""Sentences that differ in the group of people that they name: which are likelier, and is what follows likelier?

Of an axis (gender, religion) with T templates and G groups, the bits and bytes of a group in a template are means over its terms.
Bits per byte of a group are bits over bytes of all templates. Intervals: bootstrap over templates, the same resamples for all
groups, so that what templates have in common cancels out of differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.fairness import TERM, Axis, Gap, TermGap, Terms
from corpusmill.train.evaluate.fairness.texts import token_losses
from corpusmill.train.evaluate.resampling import DRAWS, SEED, Floats, percentiles, resampled, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corpusmill.train.evaluate.scorer import Scorer

SHIPPED = Path(__file__).parents[3] / "configs/fairness/terms.yaml"


class Sentence(NamedTuple):
    """A template with a term in it; characters from `after` on follow the term."""

    template: int
    group: int
    text: str
    after: int


class Sums(NamedTuple):
    """Means over a group's terms, float64 [T, G] each: of whole sentences, and of what follows the term (NaN where a token belongs to both)."""

    bits: Floats
    bytes: Floats
    bits_after: Floats
    bytes_after: Floats


def read_terms(file: Path | None = None) -> Terms:
    """A file of terms, or the one that ships. Raises `UserError` naming the wrong key."""
    return load(Terms, file or SHIPPED)


def filled(template: str, term: str) -> tuple[str, int]:
    """The text, and the character after its term. The first letter of a text is a capital."""
    before, _, rest = template.partition(TERM)
    begin = before + term
    begin = begin[:1].upper() + begin[1:]  # which may be longer
    return begin + rest, len(begin)


def sentences(axis: Axis) -> list[Sentence]:
    """Every template with every term."""
    return [
        Sentence(number, group, *filled(template, term))
        for number, template in enumerate(axis.templates)
        for group, terms in enumerate(axis.groups.values())
        for term in terms
    ]


def term_gaps(scorer: Scorer, tokenizer: Tokenizer, eos: int, terms: Terms) -> dict[str, TermGap]:
    """The gaps of all axes."""
    rows = {name: sentences(axis) for name, axis in terms.axes.items()}
    everything = [row.text for own in rows.values() for row in own]
    encodings = tokenizer.encode_batch(everything, add_special_tokens=False)
    losses = token_losses(scorer, [encoding.ids for encoding in encodings], eos)
    found, place = {}, 0
    for name, axis in terms.axes.items():
        part = slice(place, place + len(rows[name]))
        place = part.stop
        begins = [
            np.array([begin for begin, _ in encoding.offsets], dtype=np.int64) for encoding in encodings[part]
        ]
        ends = [
            np.array([end for _, end in encoding.offsets], dtype=np.int64) for encoding in encodings[part]
        ]
        found[name] = gap_of(name, axis, summed(axis, rows[name], losses[part], begins, ends))
    return found


def summed(
    axis: Axis,
    rows: Sequence[Sentence],
    losses: Sequence[Floats],
    begins: Sequence[npt.NDArray[np.int64]],
    ends: Sequence[npt.NDArray[np.int64]],
) -> Sums:
    """Of sentences whose tokens have these losses in nats and stand for the characters from `begins` to `ends`."""
    shape = (len(axis.templates), len(axis.groups))
    bits, sizes, bits_after, sizes_after = (np.zeros(shape) for _ in range(4))
    for row, loss, begin, end in zip(rows, losses, begins, ends, strict=True):
        if not len(loss):
            raise UserError(f"--terms: '{row.text}' has no token")
        at = (row.template, row.group)
        bits[at] += loss.sum() / math.log(2)
        sizes[at] += len(row.text.encode())
        follows = begin >= row.after
        # A token of both, such as a term's end and its full stop: what follows cannot be separated.
        shared = bool((~follows & (end > row.after)).any())
        bits_after[at] += math.nan if shared else loss[follows].sum() / math.log(2)
        sizes_after[at] += len(row.text[row.after :].encode())
    # Means over terms: groups of many terms are interchanged with groups of few.
    count = np.array([len(terms) for terms in axis.groups.values()])
    return Sums(bits / count, sizes / count, bits_after / count, sizes_after / count)


def gap_of(name: str, axis: Axis, sums: Sums) -> TermGap:
    """What the sums of an axis show."""
    groups = list(axis.groups)
    terms = sum(map(len, axis.groups.values()))
    whole = measured_gap(groups, sums.bits, sums.bytes, terms)
    # Of a full stop alone nothing can be learnt.
    usable = np.isfinite(sums.bits_after).all(1) & (sums.bytes_after > 1).all(1)
    after = None
    if usable.sum() > 1:
        after = measured_gap(groups, sums.bits_after[usable], sums.bytes_after[usable], terms)
    return TermGap(
        templates=len(axis.templates), whole=whole, after=after, finding=_finding(name, whole, after)
    )


def measured_gap(groups: Sequence[str], bits: Floats, sizes: Floats, terms: int) -> Gap:
    """Of bits and bytes [T, G]; `terms`: of all groups, for the number of sentences."""
    templates, n = len(bits), len(bits) * terms
    value = bits.sum(0) / sizes.sum(0)
    drawn = resampled(bits) / resampled(sizes)  # [DRAWS, G], of the same templates
    others = (value.sum() - value) / (len(value) - 1)
    drawn_others = (drawn.sum(1, keepdims=True) - drawn) / (len(value) - 1)
    chance = by_chance(bits, sizes)
    gap = float(value.max() - value.min())

    def interval(found: float, draws: Floats) -> Estimate:
        return percentiles(float(found), draws, n, templates)

    return Gap(
        groups={g: interval(value[i], drawn[:, i]) for i, g in enumerate(groups)},
        against_others={
            g: interval(value[i] - others[i], drawn[:, i] - drawn_others[:, i]) for i, g in enumerate(groups)
        },
        lowest=groups[int(value.argmin())],
        highest=groups[int(value.argmax())],
        gap=interval(gap, drawn.max(1) - drawn.min(1)),
        ratio=interval(value.max() / value.min(), drawn.max(1) / drawn.min(1)),
        chance=float(np.quantile(chance, 0.95)),
        p=float((1 + (chance >= gap - 1e-12).sum()) / (1 + len(chance))),
    )


def by_chance(bits: Floats, sizes: Floats, draws: int = DRAWS, seed: int = SEED) -> Floats:
    """Gaps with the groups of each template interchanged at random, float64 [draws]: what a model has that prefers none."""
    rng = np.random.default_rng([seed, *bits.shape])
    order = rng.permuted(np.broadcast_to(np.arange(bits.shape[1]), (draws, *bits.shape)), axis=2)
    at = np.arange(len(bits))[:, None]
    value = bits[at, order].sum(1) / sizes[at, order].sum(1)  # [draws, G]
    found: Floats = value.max(1) - value.min(1)
    return found


def _finding(name: str, whole: Gap, after: Gap | None) -> str:
    parts = []
    for what, gap in (("whole sentences", whole), ("what follows the term", after)):
        if gap is None:
            continue
        figures = f"{shown(gap.gap)} bits per byte between {gap.highest} and {gap.lowest}"
        if gap.beyond_chance:
            parts.append(
                f"{what}: {figures}, beyond chance (p {'< 0.001' if gap.p < 0.001 else f'= {gap.p:.3f}'})"
            )
        else:
            parts.append(f"{what}: {figures}, no more than chance gives ({gap.chance:.3f}, p = {gap.p:.2f})")
    return f"{name}: {'; '.join(parts)}"
