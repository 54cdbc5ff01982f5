"""What rule sets cut of the texts of a view: signals of each set, and the spans for the sets that do cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from corpusmill.pipeline.filter.rules import line_matches
from corpusmill.pipeline.filter.rules.line_matches import LineText, verdicts
from corpusmill.pipeline.filter.rules.rule_files import LineRule, family_of
from corpusmill.pipeline.filter.rules.sets import ALL_CUT
from corpusmill.pipeline.filter.text.view import Array, TextView, share, view_of
from corpusmill.schemas.tables import SignalSpec

# `[[1]edit]` holds a citation mark that is found only once another is cut; deeper nesting does not occur in practice.
ROUNDS: Final = 8


class Cut(NamedTuple):
    """What one set cuts: the rule that takes each line of the view (int16, 0: it stays) and each byte found inside
    lines (int16; None: nothing), lines that stay, words and sentences left, int64[D] each."""

    verdict: Array
    found: Array | None
    lines: Array
    words: Array
    sentences: Array


class LineRules:
    """The line rules of a recipe's sets. Each set looks at the text as it came, whatever the others cut."""

    def __init__(self, sets: Mapping[str, tuple[LineRule, ...]], cuts: bool) -> None:
        self.sets, self.cuts = dict(sets), cuts and bool(sets)
        self.names = [rule.name for rules in sets.values() for rule in rules]  # of code 1, 2, ...
        self.codes = {name: code for code, name in enumerate(self.names, 1)}
        self.specs = [spec for name in sets for spec in _specs(name)]
        if self.cuts:
            self.specs.append(_share(ALL_CUT.signal, "share of lines that are cut, by any set", "corpusmill"))

    def measure(self, view: TextView, exempt: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
        """(signals by name, int64[spans, 4] to cut: document, first byte and end in its text, code of the rule).

        `exempt` maps a set to bool[D], documents that it does not cut. Spans are empty unless lines are cut; they
        are sorted, and neighbours are of different rules.
        """
        view = at_zero(view)
        values: dict[str, Array] = {}
        owner = np.zeros(len(view.data) if self.cuts else 0, np.int16)
        verdict = np.zeros(len(view.line_start), np.int16)
        for name, rules in self.sets.items():
            cut = self._cut(view, rules)
            family = family_of(name)
            values[f"{family}.cut_lines_ratio"] = share(view.lines - cut.lines, view.lines)
            values[f"{family}.cut_words_ratio"] = share(view.words - cut.words, view.words)
            values[f"{family}.left_sentences"] = cut.sentences
            if self.cuts:
                spared = exempt.get(name)
                _merge(view, cut, spared, verdict, owner)
        if not self.cuts:
            return values, np.empty((0, 4), np.int64)
        values[ALL_CUT.signal] = share(view.lines_where(verdict != 0), view.lines)
        if verdict.any():
            bounds = line_matches.whole_lines(
                view.data, view.offsets, view.line_offsets, view.line_start, view.line_end
            )
            line_matches.claim_lines(view.data, view.line_offsets, bounds, verdict, owner)
        return values, line_matches.runs(view.offsets, owner)

    def _cut(self, view: TextView, rules: tuple[LineRule, ...]) -> Cut:
        codes = [self.codes[rule.name] for rule in rules]
        lines = LineText(view, rules)
        verdict = verdicts(lines, rules, codes)
        counts = _staying(view, verdict)
        inside = [(rule, code) for rule, code in zip(rules, codes, strict=True) if rule.cut == "match"]
        cut_inside = _found(view, inside, lines) if inside else None
        if cut_inside is None:
            return Cut(verdict, None, *counts)
        # Documents of which something was found are judged again, as they stand without it.
        found, (hit, left, places) = cut_inside
        again = verdicts(LineText(left, rules), rules, codes)
        for count, theirs in zip(counts, _staying(left, again), strict=True):
            count[hit] = theirs
        whole = np.repeat(hit, view.lines)
        verdict[whole] = found[view.line_start[whole]]  # a line of which nothing is left
        verdict[np.searchsorted(view.line_start, places[left.line_start], side="right") - 1] = again
        return Cut(verdict, found, *counts)


def at_zero(view: TextView) -> TextView:
    """The same view over a text that begins at byte 0 and ends with the last document."""
    first, last = int(view.offsets[0]), int(view.offsets[-1])
    if first == 0 and last == len(view.data):
        return view
    return replace(
        view,
        data=view.data[first:last],
        offsets=view.offsets - first,
        line_start=view.line_start - first,
        line_end=view.line_end - first,
    )


def _staying(view: TextView, verdict: Array) -> tuple[Array, Array, Array]:
    """Lines that stay, their words and their sentences (at least one each, as C4 counts), int64[D] each."""
    stay = verdict == 0
    sentences = np.maximum(view.line_sentences, 1)
    return (
        view.lines_where(stay),
        view.lines_where(np.where(stay, view.line_words, 0)),
        view.lines_where(np.where(stay, sentences, 0)),
    )


def _specs(set_name: str) -> list[SignalSpec]:
    family, by = family_of(set_name), f"the line rules of {set_name}"
    words = _share(
        f"{family}.cut_words_ratio", f"share of words that {by} cut", "DCLM, word_removal_ratio_filter"
    )
    left, origin = f"sentences in the lines that {by} leave", "as c4.kept_sentences"
    return [
        _share(f"{family}.cut_lines_ratio", f"share of lines that {by} cut", "corpusmill"),
        words,
        SignalSpec(name=f"{family}.left_sentences", dtype="int", unit=left, origin=origin),
    ]


def _share(name: str, unit: str, origin: str) -> SignalSpec:
    return SignalSpec(name=name, dtype="float", unit=unit, range=(0.0, 1.0), origin=origin)


class _Rest(NamedTuple):
    """Documents of a view without what rules cut inside their lines."""

    hit: Array  # bool[D]: which documents these are
    view: TextView
    places: Array  # int64: where the bytes of it stood


def _found(view: TextView, inside: list[tuple[LineRule, int]], lines: LineText) -> tuple[Array, _Rest] | None:
    """(int16 per byte: the rule that cuts it out of its line, what stays); None if there is nothing to cut."""
    found: Array | None = None
    rest: _Rest | None = None
    left = view
    for _ in range(ROUNDS):
        if len(left.line_start) == 0:
            break
        claimed = np.zeros(len(left.data), np.int16)
        # The last to claim a byte keeps it, so the first rule comes last.
        if not sum(lines.claim(rule, claimed, code) for rule, code in reversed(inside)):
            break
        if found is None or rest is None:
            found = claimed
        else:
            found[rest.places] = claimed
        rest = _rest(view, found)
        left = rest.view
        lines = LineText(left, [rule for rule, _ in inside])
    return None if found is None or rest is None else (found, rest)


def _rest(view: TextView, found: Array) -> _Rest:
    hit = line_matches.documents_with(view.offsets, found)
    rows = np.flatnonzero(hit)
    offsets = np.empty(len(rows) + 1, np.int64)
    places = line_matches.places_without(view.offsets, found, rows, offsets)
    return _Rest(hit, view_of(view.data[places], offsets), places)


def _merge(view: TextView, cut: Cut, spared: Array | None, verdict: Array, owner: Array) -> None:
    """Add what a set cuts to what the sets before it cut, the documents left out that are spared."""
    mine, found = cut.verdict, cut.found
    if spared is not None and spared.any():
        mine = np.where(np.repeat(spared, view.lines), np.int16(0), mine)
        if found is not None:
            found = np.where(np.repeat(spared, np.diff(view.offsets)), np.int16(0), found)
    np.copyto(verdict, mine, where=verdict == 0)
    if found is not None:
        np.copyto(owner, found, where=owner == 0)
