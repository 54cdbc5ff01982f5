"""The answer of `what-if`: every partition compared, the counts put together as JSON, and in words of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from corpusmill.common.errors import WorkError
from corpusmill.common.format import compact
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.token_rates import TokenRates, token_rates
from corpusmill.pipeline.inspect.what_if.compare import BACK, GONE, Compare, Tally
from corpusmill.pipeline.inspect.what_if.question import Question, shown
from corpusmill.schemas.tables import KEPT

Answer = dict[str, Any]


def answer(question: Question, scheduler: Scheduler, examples: int = 5) -> Answer:
    """Judge every partition on both sides; the answer as JSON. Raises `WorkError` where files disagree."""
    run = question.run
    ledger = run.manifest("ledger")
    checksums = {file.path: file.xxh3 for file in ledger.files}
    stages = run.recipe.stage_names
    later = stages[stages.index("filter") + 1 :]
    deduped = run.dedup if "dedup" in later else None
    compare = Compare(run.filter, run.ledger, checksums, question.before, question.after, deduped, examples)
    tally = Tally(examples={BACK: [], GONE: []})
    for part in scheduler.map(compare, question.partitions, "what-if"):
        tally.add(part, examples)
    counts, manifest = _sums(tally.documents), run.manifest("filter")
    if (counts["in"], counts["before"]) != (manifest.counts.docs_in, manifest.counts.kept):
        raise WorkError(f"{run.filter}: files and manifest disagree; run `corpusmill verify`")
    rates = token_rates(run.shards, run.tokenizer)
    sources = sorted({source for source, _ in tally.documents})
    rows = [_row(tally, source, rates) for source in sources]
    total = {key: _total([row[key] for row in rows]) for key in (rows[0] if rows else ()) if key != "source"}
    return {
        "kind": "corpusmill-what-if-v1",
        "stage": "filter",
        "changes": {key: {"run": old, "asked": new} for key, (old, new) in question.changes.items()},
        "tokens": _tokens(rates),
        "total": total,
        "sources": rows,
        "rules": _rules(tally, [rule.name for rule in (*question.before.rules, *question.after.rules)]),
        "back": {**_moved(tally, BACK), "examples": tally.examples[BACK]},
        "gone": {
            **_moved(tally, GONE),
            "kept_in_the_end": tally.ends[KEPT, ""],
            "with_copies": tally.survivors,
            "ended": [
                {"outcome": outcome, "stage": stage, "documents": n}
                for (outcome, stage), n in sorted(tally.ends.items())
                if outcome != KEPT
            ],
            "examples": tally.examples[GONE],
        },
        "later_stages": later,
    }


def _sums(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found = dict.fromkeys(("in", "before", "after", BACK, GONE), 0)
    for (_, what), number in counts.items():
        found[what] += number
    return found


def _row(tally: Tally, source: str, rates: TokenRates | None) -> Answer:
    """One source: documents in, and on both sides documents, bytes of text as ingested, tokens."""
    row: Answer = {"source": source, "documents_in": tally.documents[source, "in"]}
    for side in ("before", "after"):
        size = tally.text[source, side]
        row[side] = {
            "documents": tally.documents[source, side],
            "text_bytes": size,
            "tokens": None if rates is None else rates.estimate(source, size),
        }
    row["back"], row["gone"] = tally.documents[source, BACK], tally.documents[source, GONE]
    return row


def _total(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _total([value[name] for value in values]) for name in values[0]}
    return None if values[0] is None else sum(values)


def _tokens(rates: TokenRates | None) -> Answer | None:
    if rates is None:
        return None
    known = "every document kept in the end" if rates.measured == "shards" else "the tokenizer stage's sample"
    return {
        "how": f"bytes of text times each source's tokens per byte, measured on {known}",
        "measured_on": rates.measured,
        "kept_in_the_end": sum(rates.exact.values()) if rates.exact else None,
    }


def _rules(tally: Tally, names: Sequence[str]) -> list[Answer]:
    """Rules whose counts differ, in the order of judging: documents removed first, failed, removed by it alone."""
    rows = []
    for name in dict.fromkeys(names):
        kinds = (("first", "first"), ("failed", "failed"), ("alone", "only"))
        sides = [
            {shown: tally.rules[side, name, what] for shown, what in kinds} for side in ("before", "after")
        ]
        if sides[0] != sides[1]:
            rows.append({"rule": name, "before": sides[0], "after": sides[1]})
    return rows


def _moved(tally: Tally, kind: str) -> Answer:
    return {"documents": _sums(tally.documents)[kind], "text_bytes": _sums(tally.text)[kind]}


RULES_SHOWN: Final = 12
DECIDING: Final = ("dedup", "decontaminate", "redact")  # stages that remove documents or change their text


def show(answer: Answer) -> str:
    """The answer for a terminal."""
    return "\n".join(_lines(answer))


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    for key, pair in answer["changes"].items():
        yield f"{key}: {shown(pair['run'])} -> {shown(pair['asked'])}"
    yield ""
    yield f"{'source':<14}{'in':>9} {'kept':>9} {'then':>9} {'change':>8} {'text':>7} {'then':>7}" + (
        f" {'tokens~':>8}{'then':>8}" if answer["tokens"] else ""
    )
    for row in [*answer["sources"], {"source": "all", **answer["total"]}] if answer["sources"] else ():
        yield _source(row)
    yield ""
    if answer["rules"]:
        yield from _rule_lines(answer["rules"])
    yield from _moved_lines(answer)
    yield from _unknown(answer)


def _source(row: dict[str, Any]) -> str:
    before, after = row["before"], row["after"]
    line = (
        f"{_cut(row['source'], 14):<14}{row['documents_in']:>9,} {before['documents']:>9,} {after['documents']:>9,}"
        f" {after['documents'] - before['documents']:>+8,} {compact(before['text_bytes']):>7} {compact(after['text_bytes']):>7}"
    )
    if before["tokens"] is None:
        return line
    return f"{line} {compact(before['tokens']):>8}{compact(after['tokens']):>8}"


def _rule_lines(rules: list[dict[str, Any]]) -> Iterator[str]:
    """Those whose counts differ most."""
    order = sorted(rules, key=lambda r: (-abs(r["after"]["failed"] - r["before"]["failed"]), r["rule"]))
    yield f"{'documents removed by rule':<35}{'first':>15}{'failed':>15}{'it alone':>15}"
    for row in order[:RULES_SHOWN]:
        before, after, name = row["before"], row["after"], row["rule"]
        if len(name) > 34:
            yield name
            name = ""
        yield f"{name:<35}" + "".join(f"{f'{before[what]:,} -> {after[what]:,}':>15}" for what in before)
    if len(rules) > RULES_SHOWN:
        yield f"and {len(rules) - RULES_SHOWN} further rules: --json has them all"
    yield ""


def _moved_lines(answer: dict[str, Any]) -> Iterator[str]:
    for kind, what, word in (("back", "would come back", "was removed by"), ("gone", "would go", "by")):
        moved = answer[kind]
        yield f"{moved['documents']:,} documents {what}, {compact(moved['text_bytes'])}B of text"
        for row in moved["examples"]:
            value = "" if row["value"] is None else f" (value {row['value']:.4g}"
            limit = "" if row["threshold"] is None else f", threshold {row['threshold']:.4g}"
            detail = f", {row['detail']}" if row["detail"] else ""
            ended = ""
            if kind == "gone":
                ended = "; now kept" if row["outcome"] == KEPT else f"; {row['outcome']} at {row['stage']}"
            yield f"  {row['doc_id']}  {row['source']}  {row['locator']}"
            yield f"      {word} {row['rule']}{value}{limit}{')' if value else ''}{detail}{ended}"


def _unknown(answer: dict[str, Any]) -> Iterator[str]:
    later = [stage for stage in answer["later_stages"] if stage in DECIDING]
    gone, back, tokens = answer["gone"], answer["back"], answer["tokens"]
    notes = ["Text is counted as ingested, before any stage cut or replaced some of it."]
    if tokens:
        notes.append(f"Tokens: {tokens['how']}.")
        if tokens["kept_in_the_end"] is not None:
            notes.append(f"Exactly {tokens['kept_in_the_end']:,} are kept in the end now.")
    if later:
        notes.append(f"Not known without running them: what {', '.join(later)} would then do.")
        if count := gone["documents"]:
            kept = f"{gone['kept_in_the_end']:,} are kept in the end now"
            notes.append(f"Of the {count:,} documents that would go, {kept}.")
        if count := gone["with_copies"]:
            notes.append(f"Of {count:,} dedup removed copies, one of which may stay in its place.")
        if count := back["documents"]:
            notes.append(f"Each of the {count:,} that would come back may still be removed there.")
    yield ""
    yield from wrap(" ".join(notes), 80)


def _cut(name: str, width: int) -> str:
    return name if len(name) < width else f"{name[: width - 2]}…"
