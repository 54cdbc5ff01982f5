"""Two rule sets over the same documents: both sides are judged on one table of signals and counted as documents stream by. How far
their decisions agree, and on which rules they differ, with examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.format import head, tail
from corpusmill.pipeline.filter.apply import Filtering
from corpusmill.pipeline.filter.rules.judge import failures
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.pipeline.filter.rules.sets import resolve
from corpusmill.schemas.filter import FilterParams

SHOWN_CHARS = 200  # of an example's text, line feeds and all


@dataclass(frozen=True)
class Example:
    """A document on which two rules of one name differ; a value is None where a side has no such rule, or did not
    measure it."""

    locator: str
    fails: str  # "a" or "b"
    value_a: float | None
    value_b: float | None
    text: str


@dataclass
class Tally:
    """How many documents fail the rules of one name."""

    name: str
    a: Rule | None
    b: Rule | None
    only_a: int = 0
    only_b: int = 0
    both: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def parted(self) -> int:
        """Documents that fail the rule on one side alone."""
        return self.only_a + self.only_b


class Parity:
    """Two sides, each the rules of one or more sets, and the counts so far.

    Rules of both sides that have the same name apart from their set's (`gopher_quality.word_count_min` and
    `gopher@nemo.word_count_min`) are compared with each other.
    """

    def __init__(self, a: Sequence[str], b: Sequence[str], settings: dict[str, Any], examples: int) -> None:
        """`settings` are those of `filter` for both sides, but for rules and models. Raises `UserError` for what is not a rule set."""
        self.a, self.b = list(a), list(b)
        self.limit = examples
        own = {**settings, "language": None, "toxicity": None, "quality": None, "quality_signals": None}
        sides = [resolve(FilterParams(**{**own, "rules": names})) for names in (self.a, self.b)]
        both = FilterParams(**{**own, "rules": list(dict.fromkeys([*self.a, *self.b]))})
        self.rules = list({rule.name: rule for side in sides for rule in side}.values())
        self.filtering = Filtering(both, self.rules, {})
        by_name = [{_bare(rule): rule for rule in side} for side in sides]
        self.tallies = [
            Tally(name, by_name[0].get(name), by_name[1].get(name))
            for name in dict.fromkeys([*by_name[0], *by_name[1]])
        ]
        self.sides = sides
        self.table = np.zeros((2, 2), np.int64)  # documents: [removed by a, removed by b]

    @property
    def documents(self) -> int:
        """How many were compared."""
        return int(self.table.sum())

    @property
    def agreement(self) -> float:
        """Share of the documents that both sides keep or both remove; 1 without documents."""
        return float(np.trace(self.table) / self.documents) if self.documents else 1.0

    def add(self, docs: pa.Table) -> None:
        """Count a table of documents."""
        signals = self.filtering.signals(docs)
        failed = {rule.name: failures(rule, signals) for rule in self.rules}
        nothing = np.zeros(len(docs), np.bool_)
        removed = [
            np.any([failed[rule.name] for rule in side], axis=0) if side else nothing for side in self.sides
        ]
        np.add.at(self.table, tuple(side.astype(np.intp) for side in removed), 1)
        for tally in self.tallies:
            one = failed[tally.a.name] if tally.a is not None else nothing
            other = failed[tally.b.name] if tally.b is not None else nothing
            tally.only_a += int((one & ~other).sum())
            tally.only_b += int((other & ~one).sum())
            tally.both += int((one & other).sum())
            for row in np.flatnonzero(one ^ other)[: self.limit - len(tally.examples)].tolist():
                tally.examples.append(self._example(tally, docs, signals, row, one[row]))

    def _example(self, tally: Tally, docs: pa.Table, signals: pa.Table, row: int, fails_a: bool) -> Example:
        def value(rule: Rule | None) -> float | None:
            found = None if rule is None else signals[rule.signal][row].as_py()
            return float(found) if isinstance(found, int | float) else None

        text = pc.utf8_slice_codeunits(docs["text"].slice(row, 1), 0, SHOWN_CHARS)[0].as_py()
        where = docs["source_id"][row].as_py() or docs["locator"][row].as_py()
        return Example(where, "a" if fails_a else "b", value(tally.a), value(tally.b), text)

    def as_json(self) -> dict[str, Any]:
        """The result as plain data."""

        def side(rule: Rule | None) -> dict[str, Any] | None:
            return None if rule is None else rule.as_json()

        return {
            "a": self.a,
            "b": self.b,
            "documents": self.documents,
            "agreement": self.agreement,
            "both_keep": int(self.table[0, 0]),
            "only_a_removes": int(self.table[1, 0]),
            "only_b_removes": int(self.table[0, 1]),
            "both_remove": int(self.table[1, 1]),
            "rules": [
                {
                    "name": tally.name, "a": side(tally.a), "b": side(tally.b), "only_a": tally.only_a,
                    "only_b": tally.only_b, "both": tally.both, "examples": [vars(e) for e in tally.examples],
                }
                for tally in self.tallies
            ],
        }  # fmt: skip


def _bare(rule: Rule) -> str:
    return rule.name.split(".", 1)[1]


WIDTH = 80
SIGNS = {"at_least": ">=", "at_most": "<=", "more_than": ">", "less_than": "<"}


def shown(parity: Parity) -> str:
    """The table of decisions, then the rules on which the sides differ, the most frequent first, with examples."""
    a, b = "+".join(parity.a), "+".join(parity.b)
    (keep, only_b), (only_a, remove) = parity.table
    lines = [
        f"A: {a}",
        f"B: {b}",
        "",
        f"{'':<10}{'B keeps':>12}{'B removes':>12}",
        f"{'A keeps':<10}{keep:>12,}{only_b:>12,}",
        f"{'A removes':<10}{only_a:>12,}{remove:>12,}",
        "",
        f"{parity.documents:,} documents; the sides agree on {_share(parity)}.",
    ]
    parted = sorted((t for t in parity.tallies if t.parted), key=lambda t: -t.parted)
    if parted:
        lines += ["", f"{'documents that fail':<34}{'only A':>10}{'only B':>10}{'both':>10}"]
        for tally in parted:
            lines.append(f"{head(tally.name, 33):<34}{tally.only_a:>10,}{tally.only_b:>10,}{tally.both:>10,}")
        for tally in parted:
            lines += _examples(tally)
    return "\n".join(lines)


def _share(parity: Parity) -> str:
    """The share in percent, rounded down, so that 100 means all."""
    agree = int(parity.table.trace())
    return f"{agree * 10_000 // parity.documents / 100 if parity.documents else 100:.2f} %"


def _examples(tally: Tally) -> list[str]:
    if not tally.examples:
        return []
    lines = ["", tally.name, f"  A: {_rule(tally.a)}", f"  B: {_rule(tally.b)}"]
    for example in tally.examples:
        lines += [
            head(f"  {_values(example)}  {tail(example.locator, 40)}", WIDTH),
            f"    {_text(example.text)}",
        ]
    return lines


def _rule(rule: Rule | None) -> str:
    if rule is None:
        return "no such rule"
    return f"{rule.signal} {SIGNS[rule.comparison]} {rule.threshold:g}"


def _values(example: Example) -> str:
    a, b = (f"{value:.4g}" if value is not None else "-" for value in (example.value_a, example.value_b))
    fails = example.fails
    return f"A {a}{' fails' if fails == 'a' else ''}, B {b}{' fails' if fails == 'b' else ''}"


def _text(text: str) -> str:
    """One line of it, printable, cut to the width."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return head(" ".join(plain.split()), WIDTH - 4)
