"""The table of the report: what was found of which evaluation set, where, and which of its items to leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.decontaminate.index import Index, IndexRecord
from corpusmill.schemas.stages import PARTS, DecontaminateParams

WORST = 10  # items shown per set
EXAMPLES = 3  # documents shown of an item
TABLE = "contamination.json"
TOUCHED = "touched_items.jsonl"


@dataclass
class _Unit:
    """What was found of a unit."""

    touched: int = 0  # documents with an n-gram of it
    found: int = 0  # documents with enough of it
    best: float = 0.0
    examples: list[tuple[float, str, str, int, int]] = field(default_factory=list)


@dataclass
class Found:
    """What was found in all partitions: counters by set and source, and the units."""

    units: dict[int, _Unit] = field(default_factory=dict)
    touched: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    acted: Counter[tuple[str, str]] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)  # source -> documents acted upon

    def add(self, matches: pa.Table) -> None:
        """Add a partition's matches; its documents are in no other."""
        for name, rows in (
            ("touched", matches),
            ("found", matches.filter(matches["found"])),
            ("acted", matches.filter(matches["acts"])),
        ):
            pairs = rows.group_by(["doc_id", "set", "source"], use_threads=False).aggregate([])
            for entry in pairs.group_by(["set", "source"], use_threads=False).aggregate([([], "count_all")]).to_pylist():  # fmt: skip
                getattr(self, name)[entry["set"], entry["source"]] += entry["count_all"]
        acted = (
            matches.filter(matches["acts"]).group_by(["doc_id", "source"], use_threads=False).aggregate([])
        )
        for entry in pc.value_counts(acted["source"]).to_pylist():
            self.documents[entry["values"]] += entry["counts"]
        names = ["unit", "doc_id", "source", "value", "words", "of", "found"]
        for batch in matches.select(names).to_batches(max_chunksize=1 << 16):
            for unit, doc, source, value, words, of, enough in zip(
                *(batch[name].to_pylist() for name in names), strict=True
            ):
                mine = self.units.setdefault(unit, _Unit())
                mine.touched += 1
                mine.found += enough
                mine.best = max(mine.best, value)
                mine.examples.append((-value, doc.hex(), source, words, of))
                if len(mine.examples) > 4 * EXAMPLES:
                    mine.examples = sorted(mine.examples)[:EXAMPLES]


def contamination(
    found: Found, index: Index, record: IndexRecord, params: DecontaminateParams, dropped: int
) -> dict[str, Any]:
    """The value of `contamination.json`. Documents that hold items of several sets count in each."""
    items = _by_item(found, index)
    sets = []
    for name, counts in record.sets.items():
        mine = {number: parts for number, (own, parts) in items.items() if own == name}
        sources = sorted({source for own, source in found.touched if own == name})
        sets.append(
            {
                "set": name,
                **counts.model_dump(),
                "touched": len(mine),
                "contaminated": sum(1 for parts in mine.values() if _drop(parts, params)),
                "passages": sum(1 for parts in mine.values() if "passage" in parts and parts["passage"].found),
                "documents": sum(found.acted[name, source] for source in sources),
                "sources": [
                    {
                        "source": source, "touched": found.touched[name, source], "found": found.found[name, source],
                        "documents": found.acted[name, source],
                    }
                    for source in sources
                ],
                "worst": [_worst(index, number, mine[number]) for number in _first(mine)],
            }
        )  # fmt: skip
    return {
        "kind": "corpusmill-contamination-v1",
        "action": params.action, "ngram": params.ngram, "measure": params.measure, "threshold": params.threshold,
        "parts": list(params.parts), "dropped_by_documents": dropped,
        "index": {"grams": len(index.table.keys), "bytes_per_gram": round(index.bytes_per_gram, 1)},
        "documents": dict(sorted(found.documents.items())),
        "sets": sets,
    }  # fmt: skip


def _by_item(found: Found, index: Index) -> dict[int, tuple[str, dict[str, _Unit]]]:
    """Item -> (its set, the unit most found of each part)."""
    units = sorted(found.units)
    rows = index.units.take(pa.array(units, pa.uint32())).to_pylist()
    items: dict[int, tuple[str, dict[str, _Unit]]] = {}
    for unit, row in zip(units, rows, strict=True):
        for number in row["items"]:
            parts = items.setdefault(number, (row["set"], {}))[1]
            before = parts.get(row["part"])
            if before is None or found.units[unit].best > before.best:
                parts[row["part"]] = found.units[unit]
    return dict(sorted(items.items()))


def _drop(parts: dict[str, _Unit], params: DecontaminateParams) -> bool:
    return any(unit.found for part, unit in parts.items() if part in params.parts)


def _first(mine: dict[int, dict[str, _Unit]]) -> list[int]:
    """The items found in most documents, then most whole; none that was only touched."""

    def order(number: int) -> tuple[int, float, int]:
        parts = mine[number].values()
        return -max(unit.found for unit in parts), -max(unit.best for unit in parts), number

    found = (number for number, parts in mine.items() if any(unit.found for unit in parts.values()))
    return sorted(found, key=order)[:WORST]


def _worst(index: Index, number: int, parts: dict[str, _Unit]) -> dict[str, Any]:
    item = index.items.slice(number, 1).to_pylist()[0]
    part = max(parts, key=lambda name: (parts[name].found, parts[name].best, -PARTS.index(name)))
    unit = parts[part]
    return {
        "item": item["id"], "file": item["file"], "record": item["record"], "part": part, "documents": unit.found,
        "share": round(unit.best, 4),
        "examples": [
            {"doc_id": doc, "source": source, "value": round(-value, 4), "words": words, "of": of}
            for value, doc, source, words, of in sorted(unit.examples)[:EXAMPLES]
        ],
    }  # fmt: skip


def touched_lines(found: Found, index: Index, params: DecontaminateParams) -> Iterable[bytes]:
    """The lines of `touched_items.jsonl`: every item of which something was found, in the order of the files; `drop`
    where that is enough, so that a score without these items can be reported."""
    for number, (_, parts) in _by_item(found, index).items():
        item = index.items.slice(number, 1).to_pylist()[0]
        value = {
            "set": item["set"], "id": item["id"], "file": item["file"], "record": item["record"],
            "drop": _drop(parts, params),
            "parts": {
                part: {"share": round(parts[part].best, 4), "documents": parts[part].found, "touched": parts[part].touched}
                for part in PARTS
                if part in parts
            },
        }  # fmt: skip
        yield orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
