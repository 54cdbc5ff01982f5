"""The answer of `what-if` in words, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any, Final

from corpusmill.common.format import compact
from corpusmill.pipeline.inspect.what_if.changes import shown
from corpusmill.schemas.ledger import KEPT

RULES_SHOWN: Final = 12
DECIDING: Final = ("dedup", "decontaminate", "redact")  # stages that remove documents or change their text


def show(answer: dict[str, Any]) -> str:
    """Every line of it."""
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
        yield from _rules(answer["rules"])
    yield from _moved(answer)
    yield from _unknown(answer)


def _source(row: dict[str, Any]) -> str:
    before, after = row["before"], row["after"]
    line = (
        f"{_cut(row['source'], 14):<14}{row['documents_in']:>9,} {before['documents']:>9,} {after['documents']:>9,}"
        f" {after['documents'] - before['documents']:>+8,} {compact(before['text_bytes']):>7} {compact(after['text_bytes']):>7}"
    )
    return (
        line
        if before["tokens"] is None
        else line + f" {compact(before['tokens']):>8}{compact(after['tokens']):>8}"
    )


def _rules(rules: list[dict[str, Any]]) -> Iterator[str]:
    """Those whose counts differ most."""
    order = sorted(rules, key=lambda r: (-abs(r["after"]["failed"] - r["before"]["failed"]), r["rule"]))
    yield f"{'documents removed by rule':<35}{'first':>15}{'failed':>15}{'it alone':>15}"
    for row in order[:RULES_SHOWN]:
        pairs = [
            f"{row['before'][what]:,} -> {row['after'][what]:,}" for what in ("first", "failed", "alone")
        ]
        name = row["rule"]
        if len(name) > 34:
            yield name
            name = ""
        yield f"{name:<35}" + "".join(f"{pair:>15}" for pair in pairs)
    if len(rules) > RULES_SHOWN:
        yield f"and {len(rules) - RULES_SHOWN} further rules: --json has them all"
    yield ""


def _moved(answer: dict[str, Any]) -> Iterator[str]:
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
    said = ["Text is counted as ingested, before any stage cut or replaced some of it."]
    if tokens:
        said.append(f"Tokens: {tokens['how']}.")
        if tokens["kept_in_the_end"] is not None:
            said.append(f"Exactly {tokens['kept_in_the_end']:,} are kept in the end now.")
    if later:
        said.append(f"Not known without running them: what {', '.join(later)} would then do.")
        if gone["documents"]:
            said.append(
                f"Of the {gone['documents']:,} documents that would go, {gone['kept_in_the_end']:,} are kept in the end now."
            )
        if gone["with_copies"]:
            said.append(
                f"Of {gone['with_copies']:,} dedup removed copies, one of which may stay in its place."
            )
        if back["documents"]:
            said.append(f"Each of the {back['documents']:,} that would come back may still be removed there.")
    yield ""
    yield from wrap(" ".join(said), 80)


def _cut(name: str, width: int) -> str:
    return name if len(name) < width else f"{name[: width - 2]}…"
