"""The result of a comparison in 80 columns."""

from __future__ import annotations

from corpusmill.pipeline.filter.rules.files import Rule
from corpusmill.pipeline.inspect.parity.compare import Example, Parity, Tally

WIDTH = 80
SIGNS = {"at_least": ">=", "at_most": "<=", "more_than": ">", "less_than": "<"}


def shown(parity: Parity) -> str:
    """The table of decisions, then the rules that part the sides, the most frequent first, with examples."""
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
            lines.append(f"{_cut(tally.name, 33):<34}{tally.only_a:>10,}{tally.only_b:>10,}{tally.both:>10,}")
        for tally in parted:
            lines += _examples(tally)
    return "\n".join(lines)


def _share(parity: Parity) -> str:
    """Never rounded up to all of them."""
    agree = int(parity.table.trace())
    return f"{agree * 10_000 // parity.documents / 100 if parity.documents else 100:.2f} %"


def _examples(tally: Tally) -> list[str]:
    if not tally.examples:
        return []
    lines = ["", tally.name]
    for letter, rule in (("A", tally.a), ("B", tally.b)):
        lines.append(f"  {letter}: {_rule(rule)}")
    for example in tally.examples:
        lines += [
            _cut(f"  {_values(example)}  {_tail(example.locator, 40)}", WIDTH),
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
    return _cut(" ".join(plain.split()), WIDTH - 4)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[1 - width :]}"
