"""The index of evaluation sets that `decontaminate` searches for, the tables in it, and `contamination.json`."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import Field

from corpusmill.schemas.manifest import PublishedFile, Strict

# `index/items.parquet`: a row an item of an evaluation set.
ITEMS = pa.schema(
    [
        pa.field("set", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),  # the file's own, or the record's number
        pa.field("file", pa.string(), nullable=False),  # its name
        pa.field("record", pa.int64(), nullable=False),  # counted from 1
        pa.field("used", pa.bool_(), nullable=False),  # false: too short, or nothing left to look for
        pa.field("why", pa.string()),  # of one that is not used: TOO_SHORT or NOTHING_LEFT
    ]
)
TOO_SHORT = "too short"
NOTHING_LEFT = "only words that many items share, or none with a letter"
# `index/records.parquet`: a row a record of the files, in the order of the items. Records of one question are one item.
RECORDS = pa.schema(
    [
        pa.field("item", pa.uint32(), nullable=False),  # row of ITEMS
        pa.field("id", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("record", pa.int64(), nullable=False),
        pa.field(
            "question", pa.string(), nullable=False
        ),  # `question_hash` of `corpusmill.schemas.evaluation`
    ]
)
# `index/units.parquet`: a row a distinct text (question, answer) of an item.
UNITS = pa.schema(
    [
        pa.field("set", pa.string(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("items", pa.list_(pa.uint32()), nullable=False),  # rows of ITEMS
        pa.field("words", pa.int64(), nullable=False),
        pa.field("grams", pa.int64(), nullable=False),  # distinct n-grams that are searched for
        pa.field("covered", pa.int64(), nullable=False),  # words of the unit in one of these
    ]
)
# `index/grams.parquet`: an n-gram, and the units that hold it.
GRAMS = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("check", pa.uint64(), nullable=False),
        pa.field("length", pa.uint8(), nullable=False),  # words: `ngram`, or those of a short item
        pa.field("units", pa.list_(pa.uint32()), nullable=False),
        pa.field("places", pa.list_(pa.uint32()), nullable=False),  # word of each unit at which it begins
    ]
)
# `index/answers.parquet`: answers that must follow short questions, and (unit null) prefixes by which short items are found.
ANSWERS = pa.schema(
    [
        pa.field("unit", pa.uint32()),
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("check", pa.uint64(), nullable=False),
        pa.field("length", pa.uint8(), nullable=False),
    ]
)
# `index/near_units.parquet`: a row a text that is searched for with words changed.
NEAR_UNITS = pa.schema(
    [
        pa.field("unit", pa.uint32(), nullable=False),  # row of UNITS
        pa.field("words", pa.list_(pa.uint16()), nullable=False),  # 16 bits of each word's hash
        pa.field(
            "own", pa.list_(pa.bool_()), nullable=False
        ),  # of each, whether it belongs to no template; half must be found
    ]
)
# `index/seeds.parquet`: runs of words by which near units are found, by key; then (near unit null) those with which n-grams and
# short items begin.
SEEDS = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("near_unit", pa.uint32()),  # row of NEAR_UNITS
        pa.field("place", pa.uint32(), nullable=False),  # word of the near unit at which it begins
    ]
)


MOSTLY = 0.5  # share of a set's items from which a warning says that they are not searched for


class SetCounts(Strict):
    """Items and n-grams of one evaluation set."""

    items: int = 0
    unused: int = 0  # items too short, or with nothing left to look for
    ngrams: int = 0  # distinct runs that are searched for
    boilerplate: int = 0  # distinct runs left out: in more than `max_items` units
    no_letter: int = 0  # n-grams left out: no word with a letter


class FileReading(Strict):
    """How an evaluation file was read."""

    file: str
    roles: dict[str, str] = Field(description="role -> its field, or fields joined by +")
    unknown: list[str] = Field(description="fields of no known name, those that may hold texts first")
    texts: int = Field(description="of `unknown`, how many may hold texts")


class EvaluationIndex(Strict):
    """`index/index.json`: names the files of the index of evaluation sets; written after them."""

    key: str
    read: list[FileReading]
    files: dict[str, PublishedFile]
    sets: dict[str, SetCounts]


class HitsRecord(Strict):
    """`hits/<partition>.json`: what the files of hits were made from; written after them."""

    key: str
    file: PublishedFile
    near: PublishedFile


class ContaminatedSource(Strict):
    """Documents of one source that hold items of one evaluation set."""

    source: str
    touched: int = Field(description="documents with any n-gram of an item")
    found: int = Field(description="documents that hold enough of an item")
    documents: int = Field(description="documents removed, cut or reported for it")


class ContaminationExample(Strict):
    """A document that holds an item: `words` of the item's `of` words, a share of `value`."""

    doc_id: str
    source: str
    value: float
    words: int
    of: int


class ContaminatedItem(Strict):
    """One of the items found in most documents. `near`: the best of them with words changed."""

    item: str
    file: str
    record: int
    part: str
    near: bool
    documents: int
    share: float = Field(description="largest share of the item that one document holds")
    examples: list[ContaminationExample]


class ContaminatedSet(SetCounts):
    """What was found of one evaluation set."""

    set: str
    touched: int = Field(description="items of which any n-gram was found")
    contaminated: int = Field(description="items to leave out of the evaluation")
    passages: int
    documents: int
    sources: list[ContaminatedSource]
    worst: list[ContaminatedItem]


class IndexSize(Strict):
    """Size of the index in memory."""

    grams: int
    bytes_per_gram: float
    seeds: int = Field(description="runs of words by which items with changed words are found")
    bytes: int


class Contamination(Strict):
    """`contamination.json`: what `decontaminate` found of each evaluation set."""

    kind: Literal["corpusmill-contamination-v1"]
    action: str
    ngram: int
    measure: str
    threshold: float
    parts: list[str]
    dropped_by_documents: int = Field(description="n-grams ignored because they are in too many documents")
    near: float = Field(description="share of an item's words where others were changed; 0: not searched for")
    index: IndexSize
    read: list[FileReading]
    documents: dict[str, int] = Field(description="source -> documents removed, cut or reported")
    sets: list[ContaminatedSet]


class ContaminationRow(ContaminatedSet):
    """An evaluation set in the report. `share`: contaminated items of all."""

    by_source: dict[str, int]
    share: float


class ContaminationSection(Contamination):
    """`contamination.json` in the report, with totals; the sets with most documents first."""

    sets: list[ContaminationRow]  # type: ignore[assignment]  # a list of a subclass, never changed
    sources: list[str]
    done: str
    total: int
    contaminated: int
    items: int


class TouchedPart(Strict):
    """One part of a touched item: the largest share found, and in how many documents."""

    share: float
    documents: int = Field(description="documents that hold enough of it")
    touched: int = Field(description="documents with any n-gram of it")


class TouchedItem(Strict):
    """A line of `touched_items.jsonl`: a record of an item of which something was found."""

    set: str
    id: str
    file: str
    record: int
    drop: bool = Field(description="whether to leave it out of the evaluation")
    parts: dict[str, TouchedPart]
