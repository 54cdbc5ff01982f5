"""Occurrences of the index's n-grams in a partition: measured once, judged again whenever thresholds change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate import ngram_kernels
from corpusmill.pipeline.decontaminate.index import load
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.documents import ID
from corpusmill.schemas.manifest import PublishedFile, Strict, hash_json
from corpusmill.schemas.stages import DecontaminateParams

HITS = pa.schema(
    [
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the document in its partition
        pa.field("unit", pa.uint32(), nullable=False),
        pa.field("gram", pa.uint32(), nullable=False),
        pa.field(
            "place", pa.int64(), nullable=False
        ),  # the word of the unit with which the gram begins there
        pa.field("start", pa.int64(), nullable=False),  # characters, from the first of the gram's words
        pa.field("stop", pa.int64(), nullable=False),  # to the end of its last
        pa.field("paragraph", pa.int64(), nullable=False),  # that holds all its words, or -1
        pa.field("of", pa.int64(), nullable=False),  # n-grams of that paragraph
    ]
)
NUMBERS = HITS.names[2:]


class HitsRecord(Strict):
    """Records what a file of hits was made from; written after it."""

    key: str
    file: PublishedFile


@dataclass(frozen=True)
class Job:
    """Settings shared by all tasks."""

    folder: Folder
    key: str  # of the index
    params: DecontaminateParams


def find_hits(text: pa.Array, table: ngram_kernels.Table) -> dict[str, Any]:
    """The hits in a large_string array, as the numeric columns of `HITS`, in the order of the texts' words."""
    offsets, data = view(text)
    rows = np.flatnonzero(ngram_kernels.candidates(offsets, data, rule(), table))
    found = ngram_kernels.matches(offsets, data, rows, rule(), table)
    columns = dict(zip(NUMBERS, found.T, strict=True))
    for row in np.unique(columns["row"]).tolist():
        own = data[offsets[row] : offsets[row + 1]]
        first, last = np.searchsorted(columns["row"], [row, row + 1])
        # Characters before each byte: bytes that continue one are none.
        before = np.r_[0, np.cumsum((own & 0xC0) != 0x80)]
        for name in ("start", "stop"):
            columns[name][first:last] = before[columns[name][first:last]]
    return columns


def scan(job: Job, partition: Partition) -> list[PublishedFile]:
    """Publish the hits of a partition, unless they are there; their file and its record."""
    key = hash_json([job.key, partition.name, partition.xxh3])
    place = job.folder / f"hits/{partition.name}.json"
    known = _load(place)
    if known is None or known.key != key or not _there(job.folder, known.file):
        index = load(job.folder, job.key, job.params)
        docs = partition.read(["doc_id", "source", "text"])
        tables, first = [HITS.empty_table()], 0
        for chunk in docs["text"].chunks:
            columns = find_hits(chunk, index.table)
            if len(columns["row"]):
                columns["row"] = columns["row"] + first
                where = pa.array(columns["row"])
                arrays = [one_array(docs[name].take(where)) for name in ("doc_id", "source")]
                numbers = [pa.array(columns[name]).cast(HITS.field(name).type) for name in NUMBERS]
                tables.append(pa.Table.from_arrays([*arrays, *numbers], schema=HITS))
            first += len(chunk)
        file = publish_table(job.folder, f"hits/{partition.name}.parquet", pa.concat_tables(tables))
        known = HitsRecord(key=key, file=file)
        publish_bytes(job.folder, f"hits/{partition.name}.json", _json(known))
    record = _json(known)
    return [
        known.file,
        PublishedFile(path=f"hits/{partition.name}.json", bytes=len(record), xxh3=checksum(record)),
    ]


def _json(record: HitsRecord) -> bytes:
    return (record.model_dump_json(indent=1) + "\n").encode()


def _load(place: Folder) -> HitsRecord | None:
    try:
        return HitsRecord.model_validate_json(place.read())
    except (FileNotFoundError, ValueError):
        return None


def _there(folder: Folder, file: PublishedFile) -> bool:
    try:
        return (folder / file.path).entry().size == file.bytes
    except FileNotFoundError:
        return False
