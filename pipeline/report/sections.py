"""The sections of the report that come from one stage's files (among them what `decontaminate` found of each evaluation
set), or straight from the survey."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.report.survey import Survey
from corpusmill.schemas.ledger import KEPT
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.shards import INDEX, ShardSet


def loose_json(folder: Folder | None, name: str) -> dict[str, Any] | None:
    """A JSON object that another stage published; None when there is none."""
    if folder is None:
        return None
    try:
        value = json.loads((folder / name).read())
    except FileNotFoundError:
        return None
    return value if isinstance(value, dict) else None


def pii(manifest: StageManifest | None, found: Survey) -> dict[str, Any] | None:
    """Spans that `redact` replaced, by kind and source."""
    if manifest is None:
        return None
    spans = {(source, kind): n for (stage, source, kind), n in found.edits.items() if stage == manifest.stage}
    kinds: Counter[str] = Counter()
    for (_, kind), count in spans.items():
        kinds[kind] += count
    wanted = manifest.params.get("kinds") or []
    return {
        "spans": sum(kinds.values()),
        "documents": sum(n for (stage, _), n in found.edited.items() if stage == manifest.stage),
        "replacement": manifest.params.get("replacement"),
        "kinds": [{"kind": kind, "spans": kinds[kind]} for kind in dict.fromkeys([*wanted, *sorted(kinds)])],
        "sources": [
            {"source": source, **{kind: spans.get((source, kind), 0) for kind in sorted(kinds)}}
            for source in sorted({source for source, _ in spans})
        ],
    }


def cuts(found: Survey) -> list[dict[str, Any]]:
    """Spans that the filter's rules on lines cut out of kept documents, those that cut most characters first."""
    spans: Counter[str] = Counter()
    chars: Counter[str] = Counter()
    sources: dict[str, dict[str, int]] = {}
    for (stage, source, kind), count in sorted(found.edits.items()):
        if stage == "filter":
            spans[kind] += count
            chars[kind] += found.edit_chars[stage, source, kind]
            sources.setdefault(kind, {})[source] = count
    rows = [
        {"rule": kind, "spans": n, "characters": chars[kind], "sources": sources[kind]}
        for kind, n in spans.items()
    ]
    return sorted(rows, key=lambda row: (-row["characters"], row["rule"]))


def languages(found: Survey) -> list[dict[str, Any]] | None:
    """Documents by language, as the filter identified it, most frequent first."""
    codes = sorted({code for _, code in found.languages})
    rows = [
        {
            "language": code,
            "documents": found.languages["in", code] or None,
            "kept": found.languages["kept", code],
            "kept_bytes": found.language_bytes[code],
        }
        for code in codes
    ]
    return sorted(rows, key=lambda r: (-(r["documents"] or 0), -r["kept"], r["language"])) or None


def lengths(found: Survey) -> dict[str, Any]:
    """Documents per power of two of their UTF-8 bytes, as ingested: all, and those kept in the end."""
    bins = sorted({place for _, place in found.lengths})
    span = range(bins[0], bins[-1] + 1) if bins else range(0)
    every: Counter[int] = Counter()
    for (_, place), count in found.lengths.items():
        every[place] += count
    return {
        "from_bytes": [2**place for place in span],
        "documents": [every[place] for place in span],
        "kept": [found.lengths[KEPT, place] for place in span],
    }


def tokenizer(folder: Folder | None, manifest: StageManifest | None) -> dict[str, Any] | None:
    """`stats.json` as the stage published it, with the vocabulary's size."""
    if folder is None or manifest is None:
        return None
    stats = loose_json(folder, "stats.json") or {}
    return {"vocab_size": manifest.params.get("vocab_size"), **stats}


def shards(folder: Folder | None) -> dict[str, Any] | None:
    """The shard set, a row per source and split; None when no shards were written."""
    if folder is None:
        return None
    try:
        index = ShardSet.model_validate_json((folder / INDEX).read())
    except FileNotFoundError:
        return None
    value: dict[str, Any] = index.model_dump(exclude={"kind"})
    return value


TABLE = "contamination.json"
DONE = {"remove": "removed", "cut": "cut", "report": "reported"}


def contamination(folder: Folder | None) -> dict[str, Any] | None:
    """`contamination.json` as the stage published it, with totals; None when the stage did not run."""
    table = loose_json(folder, TABLE)
    if table is None:
        return None
    sets = sorted(table["sets"], key=lambda row: (-row["documents"], -row["contaminated"], row["set"]))
    sources = sorted({source["source"] for row in sets for source in row["sources"]})
    for row in sets:
        row["by_source"] = {entry["source"]: entry["documents"] for entry in row["sources"]}
        row["share"] = row["contaminated"] / row["items"] if row["items"] else 0.0
    return {
        **table,
        "sets": sets,
        "sources": sources,
        "done": DONE.get(table["action"], table["action"]),
        "total": sum(table["documents"].values()),
        "contaminated": sum(row["contaminated"] for row in sets),
        "items": sum(row["items"] for row in sets),
    }
