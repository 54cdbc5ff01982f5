"""The stage's `prepare`: index, scan of every partition, boilerplate, judgement, and the table of the report.

The result of each step is stored with its key and used again while that is unchanged. The table reports what was found of
which evaluation set, where, and which of its items to leave out.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.decontaminate.evalsets import EvalFile
from corpusmill.pipeline.decontaminate.index import RECORD, Index, build, load
from corpusmill.pipeline.decontaminate.judgement import boilerplate, judge_partition
from corpusmill.pipeline.decontaminate.matches import Job, scan
from corpusmill.pipeline.engine.publish import described, publish_bytes, read_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.text.word_rule import RULE
from corpusmill.schemas.decontamination import MOSTLY, EvaluationIndex
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.stages import PARTS, DecontaminateParams

WORST = 10  # items shown per set
EXAMPLES = 3  # documents shown of an item
TABLE = "contamination.json"
TOUCHED = "touched_items.jsonl"
_INDEXED = (
    "fields",
    "ngram",
    "min_words",
    "min_letters",
    "answer_within",
    "max_items",
)  # what the index depends on


@dataclass
class _Unit:
    """What was found of a unit."""

    touched: int = 0  # documents with an n-gram of it
    found: int = 0  # documents with enough of it
    best: float = 0.0
    near: bool = False  # whether the best was found with words changed
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
        acting = matches.filter(matches["acts"])
        acted = acting.group_by(["doc_id", "source"], use_threads=False).aggregate([])
        for entry in pc.value_counts(acted["source"]).to_pylist():
            self.documents[entry["values"]] += entry["counts"]
        names = ["unit", "doc_id", "source", "value", "words", "of", "found", "near"]
        for batch in matches.select(names).to_batches(max_chunksize=1 << 16):
            for unit, doc, source, value, words, of, counts, near in zip(
                *(batch[name].to_pylist() for name in names), strict=True
            ):
                mine = self.units.setdefault(unit, _Unit())
                mine.touched += 1
                mine.found += counts
                if value > mine.best:
                    mine.best, mine.near = value, near
                mine.examples.append((-value, doc.hex(), source, words, of))
                if len(mine.examples) > 4 * EXAMPLES:
                    mine.examples = sorted(mine.examples)[:EXAMPLES]


def contamination(
    found: Found, index: Index, record: EvaluationIndex, params: DecontaminateParams, dropped: int
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
        "near": params.near_share,
        "index": {
            "grams": len(index.table.keys), "bytes_per_gram": round(index.bytes_per_gram, 1),
            "seeds": len(index.seeds.keys), "bytes": index.bytes,
        },
        "read": [one.model_dump() for one in record.read],
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
        "item": item["id"], "file": item["file"], "record": item["record"], "part": part, "near": unit.near,
        "documents": unit.found,
        "share": round(unit.best, 4),
        "examples": [
            {"doc_id": doc, "source": source, "value": round(-value, 4), "words": words, "of": of}
            for value, doc, source, words, of in sorted(unit.examples)[:EXAMPLES]
        ],
    }  # fmt: skip


def touched_lines(found: Found, index: Index, params: DecontaminateParams) -> Iterable[bytes]:
    """The lines of `touched_items.jsonl`: every record of which something was found, in the order of the files, records of one item
    together; `drop` where that is enough, so that a score without these items can be reported."""
    touched = _by_item(found, index)
    concerned = index.records.filter(pc.is_in(index.records["item"], pa.array(list(touched), pa.uint32())))
    for record in concerned.to_pylist():
        name, parts = touched[record["item"]]
        value = {
            "set": name, "id": record["id"], "file": record["file"], "record": record["record"],
            "drop": _drop(parts, params),
            "parts": {
                part: {"share": round(parts[part].best, 4), "documents": parts[part].found, "touched": parts[part].touched}
                for part in PARTS
                if part in parts
            },
        }  # fmt: skip
        yield orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def mostly_unused(record: EvaluationIndex) -> list[str]:
    """A line for each set of which most items are not searched for, with the fields that were read."""
    lines = []
    for name, counts in record.sets.items():
        if counts.unused < MOSTLY * counts.items:
            continue
        lines.append(
            f"decontaminate: {counts.unused:,} of {counts.items:,} items of {name} are not searched for: too short, or of words"
            " that many items share; the files' fields were read as "
            + "; ".join(
                f"{one.file}: {', '.join(f'{role} {field!r}' for role, field in one.roles.items())}"
                + (f", not used {', '.join(map(repr, one.unknown))}" if one.unknown else "")
                for one in record.read
                if one.file.partition(".")[0] == name or len(record.read) == 1
            )
        )
    return [line.removesuffix("; the files' fields were read as ") for line in lines]


def index_key(version: str, sources: Sequence[EvalFile], params: DecontaminateParams) -> str:
    """The key of the index, and with a partition's bytes of its hits: no threshold is in it."""
    own = {**params.model_dump(mode="json", include=set(_INDEXED)), "near": params.near_share > 0}
    files = [[source.file.name, source.xxh3] for source in sources]
    return hash_json([version, RULE, unicodedata.unidata_version, own, files])


def run(
    context: Context, params: DecontaminateParams, sources: Sequence[EvalFile], version: str
) -> tuple[list[PublishedFile], dict[str, int]]:
    """Everything below `context.folder` that the transforms need, the table, and the counters."""
    folder = context.folder
    key = index_key(version, sources, params)
    record = build(folder, key, sources, params)
    for warning in mostly_unused(record):
        context.log(f"warning: {warning}")
    index = load(folder, key, params)
    job = Job(folder, key, params)
    sizes = [part.text_bytes for part in context.partitions]
    scanned = context.scheduler.map(partial(scan, job), context.partitions, "decontaminate: scan", sizes)
    files = [described(RECORD, (folder / RECORD).read()), *record.files.values()]
    files += [file for found_files in scanned for file in found_files]
    dropped, dropped_file = boilerplate(folder, scanned, index, params)
    files.append(dropped_file)
    jobs = [
        (part.name, grams.xxh3, near.xxh3, dropped_file.xxh3)
        for part, (grams, near, _) in zip(context.partitions, scanned, strict=True)
    ]
    matches = context.scheduler.map(partial(judge_partition, job), jobs, "decontaminate: judge")
    found = Found()
    for file in matches:
        found.add(read_table(folder / file.path, file.xxh3))
    table = contamination(found, index, record, params, int(dropped.sum()))
    shown = orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    touched = b"".join(touched_lines(found, index, params))
    files += [*matches, publish_bytes(folder, TABLE, shown), publish_bytes(folder, TOUCHED, touched)]
    return files, _counters(table, record)


def _counters(table: dict[str, Any], record: EvaluationIndex) -> dict[str, int]:
    def total(name: str) -> int:
        return sum(row[name] for row in table["sets"])

    return {
        "items": total("items"),
        **{f"items_{name}": total(name) for name in ("unused", "touched", "contaminated")},
        "ngrams": sum(counts.ngrams for counts in record.sets.values()),
        "ngrams_boilerplate": sum(counts.boilerplate for counts in record.sets.values()),
        "ngrams_no_letter": sum(counts.no_letter for counts in record.sets.values()),
        "ngrams_dropped_by_documents": table["dropped_by_documents"],
    }
