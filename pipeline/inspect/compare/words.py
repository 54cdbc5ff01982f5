"""The answer of `compare` for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from corpusmill.common.escape import spelled
from corpusmill.common.format import compact, count, head, quantity, tail
from corpusmill.pipeline.inspect.compare.join import ABSENT
from corpusmill.pipeline.inspect.what_if.question import shown
from corpusmill.schemas.tables import OUTCOMES

WIDTH: Final = 80
SHOWN: Final = 12  # keys, sources, rules, moves
Answer = dict[str, Any]


def show(answer: Answer) -> str:
    """The answer in words: what differs, then documents by outcome, source, rule and move."""
    lines = (*_runs(answer), *_outcomes(answer), *_sources(answer), *_rules(answer), *_moves(answer))
    return "\n".join(head(spelled(line), WIDTH).rstrip() for line in lines)


def fate(one: Answer) -> str:
    """`kept`, `absent`, or what took the document and where."""
    if one["stage"] is None:
        return str(one["outcome"])
    return f"{one['outcome']} by {one['rule']} ({one['stage']})"


def _runs(answer: Answer) -> Iterator[str]:
    for side in ("a", "b"):
        yield f"{side.upper()}: {tail(answer[side]['run'], WIDTH - 3)}"
    differ = [f"{row['stage']} ({row['differs']})" for row in answer["stages"] if row["differs"]]
    yield from wrap(f"stages that differ: {', '.join(differ) or 'none'}", WIDTH)
    yield from _first(
        [f"{key}: {shown(pair['a'])} -> {shown(pair['b'])}" for key, pair in answer["recipe"].items()], "keys"
    )
    yield ""


def _first(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"and {len(lines) - SHOWN:,} more {what}: --json has them all"


def _outcomes(answer: Answer) -> Iterator[str]:
    names = (*OUTCOMES, ABSENT)
    yield f"{'documents':<22}" + "".join(f"{f'B {name}':>14}" for name in names)
    for name in names:
        row = answer["outcomes"][name]
        yield f"{f'A {name}':<22}" + "".join(f"{row[other]:>14,}" for other in names)
    found = answer["documents"]
    if found["rewritten"]:
        yield f"{quantity(found['rewritten'], 'document is', 'documents are')} kept in both with another text"
    if found["rewritten"] is None:
        yield "texts were not compared: the last stage's documents are no longer there"
    if found["repeated_ids"]:
        yield f"{quantity(found['repeated_ids'], 'row repeats', 'rows repeat')} an id in their ledger; run `corpusmill verify`"
    tokens = [answer["tokens"][side]["kept"] for side in ("a", "b")]
    if None not in tokens:
        yield f"tokens kept: {tokens[0]:,} -> {tokens[1]:,} ({tokens[1] - tokens[0]:+,})"
    yield ""


def _sources(answer: Answer) -> Iterator[str]:
    yield (
        f"{'source':<14}{'records A':>10}{'B':>10}{'kept A':>10}{'B':>10}{'change':>9}{'tokens A':>9}{'B':>8}"
    )
    lines = []
    for row in answer["sources"]:
        a, b = row["a"], row["b"]
        tokens = [f"{compact(side['tokens']) if side['tokens'] is not None else '-'}" for side in (a, b)]
        lines.append(
            f"{head(row['source'], 13):<14}{_in(10, a['records'])}{_in(10, b['records'])}{_in(10, a['kept'])}"
            f"{_in(10, b['kept'])}{_in(9, b['kept'] - a['kept'], '+')}{tokens[0]:>9}{tokens[1]:>8}"
        )
    yield from _first(lines, "sources")
    yield ""


def _rules(answer: Answer) -> Iterator[str]:
    """Those whose counts, or whose documents, change."""
    changed = [row for row in answer["rules"] if row["change"] or row["took"] or row["gave_back"]]
    if not changed:
        return
    yield f"{'documents taken by rule':<36}{'A':>9}{'B':>9}{'change':>8}{'took':>8}{'gave back':>10}"
    lines = []
    for row in changed:
        lines.append(
            f"{head(row['rule'], 35):<36}{_in(9, row['a'])}{_in(9, row['b'])}{_in(8, row['change'], '+')}"
            f"{_in(8, row['took'])}{_in(10, row['gave_back'])}"
        )
    yield from _first(lines, "rules")
    yield "took: kept in A, taken by the rule in B; gave back: the reverse"
    yield ""


def _moves(answer: Answer) -> Iterator[str]:
    entered, left = answer["entered"], answer["left"]
    for what, side in (("entered (kept in B alone)", entered), ("left (kept in A alone)", left)):
        yield f"{what}: {quantity(side['documents'], 'document')}, {compact(side['text_bytes'])}B of text"
    for move in answer["moves"][:SHOWN]:
        count = f"{move['documents']:,}"
        one, other = fate(move["a"]), "kept with another text" if move["rewritten"] else fate(move["b"])
        yield ""
        if len(line := f"{count}  {one} -> {other}") <= WIDTH:
            yield line
        else:
            yield f"{count}  {one}"
            yield f"{'->':>{len(count)}}  {other}"
        for one in move["examples"]:
            row = one["b"] or one["a"]
            yield f"  {one['doc_id']}  {head(row['source'], 12)}  {tail(row['locator'], 30)}"
            values = [f"{side.upper()} {_value(one[side])}" for side in ("a", "b") if _value(one[side])]
            if values:
                yield f"      {'; '.join(values)}"
    if len(answer["moves"]) > SHOWN:
        yield f"and {len(answer['moves']) - SHOWN:,} more kinds of change: --json has them all"


def _value(row: Answer | None) -> str:
    if row is None or row["value"] is None:
        return ""
    limit = "" if row["threshold"] is None else f", threshold {row['threshold']:.4g}"
    return f"value {row['value']:.4g}{limit}"


def _in(width: int, value: int, sign: str = "") -> str:
    """A count in a column, with a blank before it; three digits of one that is too long. `sign`: `+` is written too."""
    whole = f"{value:{sign},}"
    if len(whole) >= width:
        whole = f"{'-' if value < 0 else sign}{count(abs(value)).replace(' ', '')}"
    return f"{whole:>{width}}"
