"""The texts that the report shows: kept, removed by each rule, pairs of copies, and tags in their context."""

from __future__ import annotations

from typing import Any

from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.report.survey import Places, Survey
from corpusmill.pipeline.report.texts import (
    MARGIN,
    PAIR_SEARCH,
    Wanted,
    cut,
    fetch,
    marked,
    masked,
    tag_in_context,
    window,
)
from corpusmill.schemas.ledger import KEPT, REMOVED
from corpusmill.schemas.stages import ReportParams

AROUND = 90  # characters of context on either side of a redacted span
Row = dict[str, Any]


def examples(
    context: Context, places: Places, partitions: list[str], found: Survey, params: ReportParams
) -> dict[str, Any]:
    """What `report.json` holds as `samples`. Chosen by doc_id, a hash: a fair draw, the same in every run."""
    kept = [row for (outcome, _, _), rows in sorted(found.picks.items()) if outcome == KEPT for row in rows]
    removed = {
        key: [row for row in rows if row["duplicate_of"] is None]
        for key, rows in sorted(found.picks.items())
        if key[0] == REMOVED and key[1] != "decontaminate"
    }
    pairs = {row["doc_id"]: row for row in [*found.pairs, *found.typical]}
    edited = [
        (kind, row)
        for (what, _, kind), rows in sorted(found.picks.items())
        if what == "edited"
        for row in rows
    ]

    excerpt = (0, params.sample_chars + MARGIN)
    final: Wanted = {row["doc_id"]: excerpt for row in kept}
    raw: Wanted = {row["doc_id"]: excerpt for rows in removed.values() for row in rows}
    copies: Wanted = {
        i: (0, PAIR_SEARCH) for row in pairs.values() for i in (row["doc_id"], row["duplicate_of"])
    }
    tags: Wanted = {row["doc_id"]: _around(row["offset"]) for _, row in edited}

    def texts(folder: Any, wanted: Wanted, chars: int) -> dict[bytes, str]:
        found = fetch(context.scheduler, folder, partitions, wanted, "samples")
        return masked(context.recipe, context.folder, found, chars)

    kept_texts = texts(places.kept, final, params.sample_chars)
    removed_texts = texts(places.ingested, raw, params.sample_chars)
    copy_texts = texts(places.ingested, copies, PAIR_SEARCH)
    tag_texts = fetch(context.scheduler, places.kept, partitions, tags, "samples")  # redacted as they stand
    return {
        "kept": _shown(kept, kept_texts),
        "removed": [
            {"stage": stage, "rule": rule, "texts": _shown(rows, removed_texts)}
            for (_, stage, rule), rows in removed.items()
            if rows
        ],
        "pairs": [
            _pair(row, copy_texts, params.sample_chars)
            for row in sorted(pairs.values(), key=lambda row: (row["jaccard"], row["doc_id"]))
            if {row["doc_id"], row["duplicate_of"]} <= copy_texts.keys()
        ],
        "tags": [
            _tag(kind, row, tag_texts[row["doc_id"]]) for kind, row in edited if row["doc_id"] in tag_texts
        ],
    }


def _around(offset: int) -> tuple[int, int]:
    return max(0, offset - AROUND), offset + 2 * AROUND


def _tag(kind: str, row: Row, text: str) -> Row:
    shown = tag_in_context(text, row["offset"] - _around(row["offset"])[0])
    place = {"kind": kind, "source": row["source"], "locator": row["locator"]}
    before = shown["before"]
    if (
        row["offset"] > AROUND
    ):  # the excerpt begins somewhere in the text: not in mid-word, if it can be helped
        before = "… " + before[before.find(" ") + 1 :]
    return {**place, **shown, "before": before, "after": cut(shown["after"], AROUND)}


def _shown(rows: list[Row], texts: dict[bytes, str]) -> list[Row]:
    """Rows with their texts; one whose text the redactor kept back is left out."""
    names = ("source", "locator", "value", "threshold", "detail")
    return [
        {"doc_id": row["doc_id"].hex(), **{name: row[name] for name in names}, "text": texts[row["doc_id"]]}
        for row in rows
        if row["doc_id"] in texts
    ]


def _pair(row: Row, texts: dict[bytes, str], chars: int) -> Row:
    left, right = window(texts[row["doc_id"]], texts[row["duplicate_of"]], chars)
    removed, kept = marked(left, right)
    return {
        "jaccard": row["jaccard"],
        "source": row["source"],
        "removed": row["doc_id"].hex(),
        "kept": row["duplicate_of"].hex(),
        "removed_text": removed,
        "kept_text": kept,
    }
