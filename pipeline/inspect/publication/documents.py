"""The documents of a publication: which partitions make which file, and the files written, a partition in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard

from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import VALIDATION, split_of
from corpusmill.pipeline.engine.publish import Checked, read_table, write_tables
from corpusmill.pipeline.engine.stage import Partition, Scheduler
from corpusmill.pipeline.engine.takedown_log import left
from corpusmill.pipeline.engine.tasks import text_bytes
from corpusmill.pipeline.inspect.publication.destination import Written, make_file
from corpusmill.pipeline.inspect.publication.finished import SHARD, SPLIT, Finished
from corpusmill.pipeline.inspect.publication.lines import hex_ids, json_lines
from corpusmill.pipeline.inspect.publication.private import Cleaning
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.publication import (
    PUBLISHED_DOCUMENTS,
    DocumentFormat,
    DocumentSet,
    PublishedDocuments,
)
from corpusmill.schemas.tables import DOCUMENTS

VERSION = "1"  # raised with every change that may change a byte of a file
TRAIN, VALIDATION_SPLIT = "train", "validation"
MOST_PARTITIONS = 64  # of a file: a task reads them one after the other
LEVEL = 3  # of zstd, for JSON lines
SUFFIX: dict[DocumentFormat, str] = {"parquet": "parquet", "jsonl": "jsonl.zst"}
Key = tuple[str, str]  # source, split


@dataclass(frozen=True)
class Reader:
    """Reads what of a partition may go out. Small and picklable."""

    split: Folder | None  # of the stage that chose the validation documents
    groups: str  # xxh3_128 of the file that names them
    shards: Folder | None  # that know what was taken down
    cleaning: Cleaning

    def count(self, partition: Partition) -> Counter[Key]:
        """Documents by source and split."""
        with (partition.folder / f"documents/{partition.name}.parquet").open() as stream:
            docs = pq.ParquetFile(stream, pre_buffer=False).read(
                ["doc_id", "source", "cluster_id"], use_threads=False
            )
        docs = self._present(docs)
        sides = self._sides(docs)
        rows = pa.table({"source": docs["source"], "validation": sides})
        found: Counter[Key] = Counter()
        for row in (
            rows.group_by(["source", "validation"], use_threads=False)
            .aggregate([([], "count_all")])
            .to_pylist()
        ):
            found[row["source"], VALIDATION_SPLIT if row["validation"] else TRAIN] += row["count_all"]
        return found

    def read(self, partition: Partition, source: str, split: str) -> pa.Table:
        """The documents of a source and split, with the columns that are published."""
        docs = self._present(partition.read(DOCUMENTS.names))
        sides = self._sides(docs)
        mine = sides if split == VALIDATION_SPLIT else pc.invert(sides)
        docs = self.cleaning.table(docs.filter(pc.and_(pc.equal(docs["source"], source), mine)))
        columns = [
            hex_ids(docs["doc_id"]) if field.name == "doc_id" else docs[field.name]
            for field in PUBLISHED_DOCUMENTS
        ]
        return pa.table(columns, schema=PUBLISHED_DOCUMENTS)

    def _present(self, docs: pa.Table) -> pa.Table:
        return docs if self.shards is None else left(self.shards, docs)

    def _sides(self, docs: pa.Table) -> pa.Array:
        """Whether each document is validation; without a split none is."""
        if self.split is None:
            return pa.repeat(False, len(docs))
        return pa.array(split_of(docs, _groups(self.split, self.groups)))


@lru_cache(maxsize=1)
def _groups(split: Folder, xxh3: str) -> pa.Array:
    """The sorted groups of validation: read once by each process, whatever its partitions."""
    return read_table(split / VALIDATION, xxh3)["group"].combine_chunks()


@dataclass(frozen=True)
class File:
    """A file of documents, planned."""

    source: str
    split: str
    number: int
    of: int
    partitions: tuple[Partition, ...]

    def path(self, form: DocumentFormat) -> str:
        return f"data/{self.source}/{self.split}-{self.number:05}-of-{self.of:05}.{SUFFIX[form]}"


def plan_files(partitions: list[Partition], counts: list[Counter[Key]], file_bytes: float) -> list[File]:
    """The files: of each source and split neighbouring partitions, as many as have about `file_bytes` of text."""
    groups: dict[Key, list[list[Partition]]] = {}
    sizes: dict[Key, float] = {}
    for partition, found in zip(partitions, counts, strict=True):
        for key in sorted(found):
            size = partition.text_bytes * found[key] / max(1, partition.rows)
            mine = groups.setdefault(key, [])
            if not mine or len(mine[-1]) == MOST_PARTITIONS or sizes[key] + size > file_bytes:
                mine.append([])
                sizes[key] = 0.0
            mine[-1].append(partition)
            sizes[key] += size
    return [
        File(*key, number, len(files), tuple(file))
        for key, files in sorted(groups.items())
        for number, file in enumerate(files)
    ]


def publish_documents(
    found: Finished,
    dest: Folder,
    form: DocumentFormat,
    file_mb: float,
    cleaning: Cleaning,
    scheduler: Scheduler,
) -> tuple[PublishedDocuments, list[Written]]:
    """Write the final documents that were not taken down, and count them.

    Raises `WorkError` if there are not as many as the run counts.
    """
    shards = found.folders[SHARD] if found.taken else None
    split = checksum(found.read(SPLIT, VALIDATION)) if SPLIT in found.folders else ""
    reader = Reader(found.folders.get(SPLIT), split, shards, cleaning)
    partitions = found.partitions()
    counts = scheduler.map(reader.count, partitions, "publish: count")
    files = plan_files(partitions, counts, file_mb * 2**20)
    common = hash_json(
        [VERSION, form, PUBLISHED_DOCUMENTS.names, split, [i.hex() for i in found.taken], cleaning.key]
    )
    sizes = [sum(part.text_bytes for part in file.partitions) for file in files]
    written = scheduler.map(partial(_write, dest, reader, form, common), files, "publish: documents", sizes)
    sets: dict[Key, DocumentSet] = {}
    for file, one in zip(files, written, strict=True):
        before = sets.get((file.source, file.split))
        sets[file.source, file.split] = DocumentSet(
            source=file.source, split=file.split,
            documents=one.rows + (before.documents if before else 0),
            text_bytes=one.text_bytes + (before.text_bytes if before else 0),
            files=[*(before.files if before else ()), one.path],
        )  # fmt: skip
    total, planned = sum(one.rows for one in written), sum(sum(each.values()) for each in counts)
    if total != planned:
        raise WorkError(
            f"{dest}: {quantity(planned, 'document was', 'documents were')} counted, {total:,} written; run `corpusmill verify {found.run}`"
        )
    return PublishedDocuments(
        format=form, columns=PUBLISHED_DOCUMENTS.names, sets=list(sets.values())
    ), written


def _write(dest: Folder, reader: Reader, form: DocumentFormat, common: str, file: File) -> Written:
    key = hash_json([common, file.source, file.split, [[part.name, part.xxh3] for part in file.partitions]])
    bytes_of_text = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal bytes_of_text
        for partition in file.partitions:
            docs = reader.read(partition, file.source, file.split)
            bytes_of_text += text_bytes(docs)
            yield docs

    def fill(sink: Checked) -> tuple[int, int]:
        rows = (
            write_tables(sink, tables(), PUBLISHED_DOCUMENTS) if form == "parquet" else _lines(sink, tables())
        )
        return rows, bytes_of_text

    return make_file(dest, file.path(form), key, fill)


def _lines(sink: Any, tables: Iterator[pa.Table]) -> int:
    """Write tables as lines of JSON, compressed; the number of rows."""
    rows = 0
    with zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(sink, closefd=False) as out:
        for table in tables:
            rows += len(table)
            for lines in json_lines(table):
                out.write(lines)
    return rows
