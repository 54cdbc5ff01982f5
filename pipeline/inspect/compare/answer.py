"""The answer of `compare` as one JSON value: counts by source, by rule and by move, with examples, from the ranges' tallies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from corpusmill.common.format import masked
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.compare.join import ABSENT, Fate, Join, Move, Place, Side, Tally, read
from corpusmill.pipeline.inspect.compare.runs import Compared, changed_keys, stages, thresholds
from corpusmill.schemas.tables import KEPT, OUTCOMES, readable

ROWS: Final = 4_000_000  # of both ledgers in a range of ids: what a worker holds at once
SHOWN: Final = ["source", "locator", "outcome", "stage", "rule", "value", "threshold", "detail"]
Answer = dict[str, Any]


def compare(a: Compared, b: Compared, scheduler: Scheduler, examples: int = 3, rows: int = ROWS) -> Answer:
    """Read both ledgers, `rows` rows at a time, and put the answer together. `examples`: documents of each move."""
    ranges = max(1, -(-(a.rows + b.rows) // rows))
    tally = Tally()
    for part in scheduler.map(Join(a.side, b.side, ranges, examples), range(ranges), "compare"):
        tally.add(part, examples)
    moves = _by_move(tally)
    documents: Counter[Move] = Counter({move: sum(of.values()) for move, of in moves.items()})
    both = _sum(documents, lambda move: ABSENT not in (move.a.outcome, move.b.outcome))
    texts = a.side.documents is not None and b.side.documents is not None
    return {
        "kind": "corpusmill-compare-v1",
        "a": {"run": masked(a.url), "name": a.recipe.name},
        "b": {"run": masked(b.url), "name": b.recipe.name},
        "recipe": changed_keys(a, b),
        "stages": stages(a, b),
        "documents": {
            "a": _sum(documents, lambda move: move.a.outcome != ABSENT),
            "b": _sum(documents, lambda move: move.b.outcome != ABSENT),
            "both": both,
            "only_a": _sum(documents, lambda move: move.b.outcome == ABSENT),
            "only_b": _sum(documents, lambda move: move.a.outcome == ABSENT),
            "same_fate": _sum(documents, lambda move: move.a == move.b),
            "rewritten": _sum(documents, lambda move: move.rewritten) if texts else None,
            "repeated_ids": tally.repeated,
        },
        "tokens": {
            side: {"kept": _total(_tokens(run, source, None) for source in run.tokens), "measured": _measured(run)}
            for side, run in (("a", a), ("b", b))
        },
        "outcomes": _outcomes(documents),
        "entered": _side_of_change(tally, moves, lambda move: move.b.outcome == KEPT != move.a.outcome, "b"),
        "left": _side_of_change(tally, moves, lambda move: move.a.outcome == KEPT != move.b.outcome, "a"),
        "sources": _sources(tally, moves, a, b),
        "rules": _rules(moves, a, b),
        "moves": _moves(tally, moves, a.side, b.side),
    }  # fmt: skip


def _by_move(tally: Tally) -> dict[Move, Counter[str]]:
    """Move -> source -> documents."""
    found: dict[Move, Counter[str]] = {}
    for (move, source), count in tally.documents.items():
        found.setdefault(move, Counter())[source] += count
    return found


def _sum(documents: Counter[Move], wanted: Callable[[Move], bool]) -> int:
    return sum(count for move, count in documents.items() if wanted(move))


def _outcomes(documents: Counter[Move]) -> dict[str, dict[str, int]]:
    """Outcome in A -> outcome in B -> documents."""
    names = (*OUTCOMES, ABSENT)
    found = {one: dict.fromkeys(names, 0) for one in names}
    for move, count in documents.items():
        found[move.a.outcome][move.b.outcome] += count
    return found


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _measured(run: Compared) -> str | None:
    return run.rates.measured if run.rates else None


def _tokens(run: Compared, source: str, kept_bytes: int | None) -> int | None:
    """Tokens kept of a source: exact where there are shards, else estimated from the bytes as ingested."""
    if run.rates is None:
        return None
    if run.tokens or kept_bytes is None:
        return run.tokens.get(source, 0)
    return run.rates.estimate(source, kept_bytes)


def _fate(fate: Fate) -> Answer:
    return {"outcome": fate.outcome, "stage": fate.stage or None, "rule": fate.rule or None}


def _side_of_change(
    tally: Tally, moves: dict[Move, Counter[str]], wanted: Callable[[Move], bool], side: str
) -> Answer:
    """What is kept on one side alone: documents, bytes of text as ingested there, by source, and by its fate on the other."""
    text = tally.text_b if side == "b" else tally.text_a
    sources: Counter[str] = Counter()
    reasons: Counter[Fate] = Counter()
    size = 0
    for move, of in moves.items():
        if wanted(move):
            sources.update(of)
            reasons[move.a if side == "b" else move.b] += sum(of.values())
            size += sum(text[move, source] for source in of)
    order = sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    return {
        "documents": sum(sources.values()),
        "text_bytes": size,
        "sources": dict(sorted(sources.items())),
        "reasons": [{**_fate(fate), "documents": count} for fate, count in order],
    }


def _sources(tally: Tally, moves: dict[Move, Counter[str]], a: Compared, b: Compared) -> list[Answer]:
    """A row for every source of either run, those that change most first."""
    rows: dict[str, Answer] = {}
    for name in sorted({*a.recipe.sources, *b.recipe.sources, *(source for _, source in tally.documents)}):
        rows[name] = {
            "source": name,
            **{side: dict.fromkeys(("records", *OUTCOMES, "kept_bytes"), 0) for side in ("a", "b")},
            **dict.fromkeys(("entered", "left", "rewritten"), 0),
        }
    for move, of in moves.items():
        for name, count in of.items():
            row = rows[name]
            for side, fate, text in (("a", move.a, tally.text_a), ("b", move.b, tally.text_b)):
                if fate.outcome != ABSENT:
                    row[side]["records"] += count
                    row[side][fate.outcome] += count
                if fate.outcome == KEPT:
                    row[side]["kept_bytes"] += text[move, name]
            row["entered"] += count if move.b.outcome == KEPT != move.a.outcome else 0
            row["left"] += count if move.a.outcome == KEPT != move.b.outcome else 0
            row["rewritten"] += count if move.rewritten else 0
    for name, row in rows.items():
        for side, run in (("a", a), ("b", b)):
            row[side]["tokens"] = _tokens(run, name, row[side]["kept_bytes"])
    return sorted(rows.values(), key=lambda row: (-row["entered"] - row["left"], row["source"]))


def _rules(moves: dict[Move, Counter[str]], a: Compared, b: Compared) -> list[Answer]:
    """Every rule that took a document in either run. `took`: kept in A, taken by it in B; `gave_back`: taken by it in A,
    kept in B. Those whose counts change most first."""
    limits = thresholds(a), thresholds(b)
    rows: dict[Fate, Answer] = {}

    def row(fate: Fate) -> Answer:
        sides = {side: limit.get((fate.stage, fate.rule)) for side, limit in zip("ab", limits, strict=True)}
        empty = {"a": 0, "b": 0, "took": 0, "gave_back": 0, "sources": {}}
        return rows.setdefault(fate, {**_fate(fate), "threshold": sides, **empty})

    for move, of in moves.items():
        for side, fate in (("a", move.a), ("b", move.b)):
            if fate.rule:
                found = row(fate)
                found[side] += sum(of.values())
                for source, count in of.items():
                    found["sources"].setdefault(source, {"a": 0, "b": 0})[side] += count
        if move.a.outcome == KEPT and move.b.rule:
            row(move.b)["took"] += sum(of.values())
        if move.b.outcome == KEPT and move.a.rule:
            row(move.a)["gave_back"] += sum(of.values())
    for found in rows.values():
        found["change"] = found["b"] - found["a"]
        found["sources"] = dict(sorted(found["sources"].items()))
    return sorted(rows.values(), key=lambda r: (-abs(r["change"]), -r["a"] - r["b"], r["stage"], r["rule"]))


def _moves(tally: Tally, moves: dict[Move, Counter[str]], a: Side, b: Side) -> list[Answer]:
    """The moves that change something, each with its examples' rows of both ledgers: those first that change what is kept,
    and of these those of most documents."""
    wanted = [one for examples in tally.examples.values() for one in examples]
    rows_a = _rows(a, {one.a for one in wanted if one.a is not None})
    rows_b = _rows(b, {one.b for one in wanted if one.b is not None})
    found = []
    for move, of in moves.items():
        if move.a == move.b and not move.rewritten:
            continue
        examples = [
            {"doc_id": one.doc_id, "a": rows_a.get(one.a) if one.a else None, "b": rows_b.get(one.b) if one.b else None}
            for one in tally.examples.get(move, [])
        ]  # fmt: skip
        found.append(
            {
                "a": _fate(move.a), "b": _fate(move.b), "rewritten": move.rewritten, "documents": sum(of.values()),
                "sources": dict(sorted(of.items())), "examples": examples,
            }
        )  # fmt: skip

    def order(move: Answer) -> tuple[Any, ...]:
        beside = (move["a"]["outcome"] == KEPT) == (move["b"]["outcome"] == KEPT) and not move["rewritten"]
        return beside, -move["documents"], str(move["a"]), str(move["b"])

    return sorted(found, key=order)


def _rows(side: Side, places: set[Place]) -> dict[Place, Answer]:
    """What the ledger says at these places; each partition is read once."""
    found: dict[Place, Answer] = {}
    for number in sorted({partition for partition, _ in places}):
        rows = sorted(row for partition, row in places if partition == number)
        table = read(side.ledger / f"{side.partitions[number]}.parquet", SHOWN).take(rows)
        found |= {(number, at): readable(row) for at, row in zip(rows, table.to_pylist(), strict=True)}
    return found
