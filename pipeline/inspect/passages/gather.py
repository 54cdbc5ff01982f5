"""Passages of documents and the items that they hold, side by side.

A run keeps no text of an evaluation set: the items are read from the evaluation files again, which must be where the recipe names
them, or are given. Passages come from the documents as `decontaminate` read them, with personal data replaced as in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.ids import named_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.evalsets import EvalFile, find_files
from corpusmill.pipeline.decontaminate.index import TABLES, load_record
from corpusmill.pipeline.decontaminate.items import Item, read_file
from corpusmill.pipeline.engine.layout import folders_of, recipe_of
from corpusmill.pipeline.engine.publish import parse_table, read_table
from corpusmill.pipeline.inspect.why import why
from corpusmill.pipeline.report.excerpts import MARGIN, cut, marked, masked
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import MATCHES

STAGE: Final = "decontaminate"
CHARS: Final = 1200  # of a passage or an item
Row = dict[str, Any]


class _Where(NamedTuple):
    """A finished run: its recipe, the stage's folder, and those before it, the nearest first."""

    recipe: Recipe
    folder: Folder
    before: list[Folder]
    redacted: Folder | None


def gather(
    run: str, document: str | None = None, set_: str | None = None, limit: int = 50, against: Sequence[str] = ()
) -> Row:  # fmt: skip
    """The matches that count, of one document or set if wanted, each with `passage` and `text` of the item, and both as runs of
    (differs, words) in `left` and `right`; at most `limit`, those of most words first.

    Raises `UserError` if the run has no such stage, document or set, or its evaluation files are not in reach.
    """
    where = _where(run)
    found = _matches(where.folder, Folder(run), document, set_)
    total = len(found)
    found = sorted(
        found, key=lambda row: (row["set"], -row["value"], -row["words"], row["doc_id"], row["unit"])
    )
    shown = found[:limit]
    items = _items(where, against, [row["unit"] for row in shown])
    texts = _passages(where, shown)
    rows = []
    for row, item, passage in zip(shown, items, texts, strict=True):
        text = part_text(item, row["part"], passage or "")
        left, right = marked(passage or "", text)
        rows.append(
            {
                "doc_id": row["doc_id"].hex(), "set": row["set"], "item": row["item"], "items": row["items"], "part": row["part"],
                "source": row["source"], "near": row["near"], "value": row["value"], "words": row["words"], "of": row["of"],
                "passage": passage, "text": text, "left": left, "right": right,
            }
        )  # fmt: skip
    params = where.recipe.decontaminate
    return {
        "run": run, "threshold": params.threshold, "near": params.near_share, "total": total, "passages": rows,
    }  # fmt: skip


def _where(run: str) -> _Where:
    recipe, alone = recipe_of(run)
    stages = list(recipe.stage_names)
    if STAGE not in stages:
        raise UserError(f"{run}: no {STAGE} there; give a run whose recipe has it, or its own output")
    folders = folders_of(Folder(run), stages, alone)
    before = [folders[name] for name in reversed(stages[: stages.index(STAGE)])]
    return _Where(recipe, folders[STAGE], before, None if alone else folders.get("redact"))


def _matches(folder: Folder, run: Folder, document: str | None, set_: str | None) -> list[Row]:
    """Rows of `matches/` that count, each with the name of its partition."""
    wanted = None
    if document is not None:
        raw = named_id(document)
        ids = [raw] if raw is not None else [bytes.fromhex(row["doc_id"]) for row in why(run, document)]
        wanted = pa.array(ids, MATCHES.field("doc_id").type)
    rows: list[Row] = []
    sets: set[str] = set()
    for entry in (folder / "matches").list():
        table = parse_table((folder / "matches" / entry.path).read()).cast(MATCHES)
        sets |= set(table["set"].unique().to_pylist())
        table = table.filter(table["acts"])
        if wanted is not None:
            table = table.filter(pc.is_in(table["doc_id"], value_set=wanted))
        if set_ is not None:
            table = table.filter(pc.equal(table["set"], set_))
        partition = entry.path.removesuffix(".parquet")
        rows += [{**row, "partition": partition} for row in table.to_pylist()]
    if not rows and document is not None:
        raise UserError(f"{document}: holds nothing of an evaluation set in {run}, or is no document there")
    if not rows and set_ is not None and set_ not in sets:
        raise UserError(
            f"{set_}: nothing of such a set in {run}; found: {', '.join(sorted(sets)) or 'nothing'}"
        )
    return rows


def _items(where: _Where, against: Sequence[str], units: Sequence[int]) -> list[Item]:
    """The first item of each unit, read from its file."""
    record = load_record(where.folder)
    if record is None:
        raise UserError(f"{where.folder}: its index is missing; run the stage again")
    tables = {
        name: read_table(where.folder / record.files[name].path, record.files[name].xxh3).cast(TABLES[name])
        for name in ("units", "items")
    }
    first = pc.list_element(tables["units"]["items"].take(pa.array(units, pa.uint32())), 0)
    places = tables["items"].take(first).select(["file", "record"]).to_pylist()
    if not places:
        return []
    try:
        files = {file.file.name: file for file in find_files(against or where.recipe.decontaminate.against)}
    except UserError as error:
        raise UserError(f"{error}; give the files with --against") from None
    read: dict[str, list[Item]] = {}
    return [_record(place, files, read, where.recipe.decontaminate.fields) for place in places]


def _record(
    place: Row, files: dict[str, EvalFile], read: dict[str, list[Item]], fields: Sequence[str]
) -> Item:
    name = place["file"]
    if name not in files:
        raise UserError(f"{name}: not among the evaluation files; give it with --against")
    if name not in read:
        read[name] = read_file(files[name], 0, fields)[0]
    record = int(place["record"])
    if record > len(read[name]):
        raise UserError(f"{files[name].file}: has no record {record}: it is another file now")
    return read[name][record - 1]


def part_text(item: Item, part: str, passage: str) -> str:
    """The text of an item's part; of the answers, the one most like the passage; of a question, all that is printed with it if that is
    more like it."""
    if part == "passage":
        return cut(item.passage, CHARS)
    if part == "text":
        return cut(item.text, CHARS)
    if part == "answer":
        texts = [*item.answers, *item.others] or [""]
    else:
        with_passage = " ".join(filter(None, (item.passage, item.question)))
        answered = [f"{item.question}\n{answer}" for answer in item.answers]
        texts = [item.question, with_passage, *answered, "\n".join((item.question, *item.choices))]
    return cut(max(texts, key=lambda text: _likeness(text, passage)), CHARS)


def _likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a.lower().split(), b.lower().split(), autojunk=False).ratio()


def _passages(where: _Where, rows: Sequence[Row]) -> list[str | None]:
    """The text from the first to the last matched word of each row, as `decontaminate` read it; None where it is deleted or
    holds too much personal data to be shown."""
    texts: dict[bytes, str] = {}
    by_partition: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        by_partition.setdefault(row["partition"], []).append(place)
    for partition, places in by_partition.items():
        for folder in where.before:
            file = folder / f"documents/{partition}.parquet"
            if not file.exists():
                continue
            table = parse_table(file.read(), ["doc_id", "text"])
            ids = {row: place for place, row in enumerate(table["doc_id"].to_pylist())}
            for place in places:
                row = rows[place]
                if row["doc_id"] in ids:
                    spans = row["spans"]
                    start = spans[0]["offset"]
                    stop = max(span["offset"] + span["length"] for span in spans)
                    text = table["text"][ids[row["doc_id"]]].as_py()
                    while stop < len(text) and not text[stop].isspace() and not text[stop].isalnum():
                        stop += 1  # the full stop or quotation mark after the last word
                    texts[place.to_bytes(16, "big")] = text[start : min(stop, start + CHARS + MARGIN)]
            break
    shown = masked(where.recipe, where.redacted, texts, CHARS)
    return [shown.get(place.to_bytes(16, "big")) for place in range(len(rows))]
