"""The stage's `prepare`: index, scan of every partition, boilerplate, judgement, table; and the check of texts after a cut.

The result of each step is stored with its key and reused while that is unchanged.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate import summary
from corpusmill.pipeline.decontaminate.evalsets import EvalFile
from corpusmill.pipeline.decontaminate.index import Index, IndexRecord, build, load
from corpusmill.pipeline.decontaminate.judge import judge, matches_table
from corpusmill.pipeline.decontaminate.scan import HITS, NUMBERS, Job, find_hits, scan
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table, read_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.text.word_hashes import most_words, place_words
from corpusmill.pipeline.text.word_rule import RULE, rule
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.stages import DecontaminateParams

DROPPED = "dropped.parquet"
_INDEXED = ("fields", "ngram", "min_words", "answer_within", "max_items")  # what the index depends on


def index_key(version: str, sources: Sequence[EvalFile], params: DecontaminateParams) -> str:
    """The key of the index, and with a partition's bytes of its hits: no threshold is in it."""
    own = params.model_dump(mode="json", include=set(_INDEXED))
    files = [[source.file.name, source.xxh3] for source in sources]
    return hash_json([version, RULE, unicodedata.unidata_version, own, files])


def run(
    context: Context, params: DecontaminateParams, sources: Sequence[EvalFile], version: str
) -> tuple[list[PublishedFile], dict[str, int]]:
    """Everything below `context.folder` that the transforms need, the table, and the counters."""
    folder = context.folder
    key = index_key(version, sources, params)
    record = build(folder, key, sources, params)
    index = load(folder, key, params)
    job = Job(folder, key, params)
    sizes = [part.text_bytes for part in context.partitions]
    scanned = context.scheduler.map(partial(scan, job), context.partitions, "decontaminate: scan", sizes)
    files = [*record.files.values(), *(file for pair in scanned for file in pair)]
    dropped, dropped_file = _boilerplate(folder, [pair[0] for pair in scanned], index, params)
    files.append(dropped_file)
    jobs = [
        (part.name, pair[0].xxh3, dropped_file.xxh3)
        for part, pair in zip(context.partitions, scanned, strict=True)
    ]
    matches = context.scheduler.map(partial(judge_partition, job), jobs, "decontaminate: judge")
    found = summary.Found()
    for file in matches:
        found.add(read_table(folder / file.path, file.xxh3))
    table = summary.contamination(found, index, record, params, int(dropped.sum()))
    files += [*matches, *_publish(folder, table, found, index, params)]
    return files, _counters(table, record)


def _publish(
    folder: Folder, table: dict[str, object], found: summary.Found, index: Index, params: DecontaminateParams
) -> list[PublishedFile]:
    import orjson

    shown = orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    touched = b"".join(summary.touched_lines(found, index, params))
    return [
        publish_bytes(folder, summary.TABLE, shown),
        publish_bytes(folder, summary.TOUCHED, touched),
    ]


def _counters(table: dict[str, object], record: IndexRecord) -> dict[str, int]:
    sets: list[dict[str, int]] = table["sets"]  # type: ignore[assignment]
    total = {name: sum(row[name] for row in sets) for name in ("items", "unused", "touched", "contaminated")}
    return {
        **{f"items_{name}" if name != "items" else name: count for name, count in total.items()},
        "ngrams": sum(counts.ngrams for counts in record.sets.values()),
        "ngrams_boilerplate": sum(counts.boilerplate for counts in record.sets.values()),
        "ngrams_no_letter": sum(counts.no_letter for counts in record.sets.values()),
        "ngrams_dropped_by_documents": int(table["dropped_by_documents"]),  # type: ignore[call-overload]
    }


def _boilerplate(
    folder: Folder, hits: Sequence[PublishedFile], index: Index, params: DecontaminateParams
) -> tuple[npt.NDArray[np.bool_], PublishedFile]:
    """bool[G]: grams in more than `max_documents` documents of the corpus, and the file that lists them."""
    documents = np.zeros(len(index.table.keys), np.int64)
    if params.max_documents is not None:
        for file in hits:
            found = read_table(folder / file.path, file.xxh3, ["row", "gram"])
            pairs = np.unique(np.stack([found["gram"].to_numpy(), found["row"].to_numpy()], 1), axis=0)
            np.add.at(documents, pairs[:, 0].astype(np.int64), 1)
    dropped = documents > (params.max_documents or 0)
    rows = np.flatnonzero(dropped)
    table = pa.table({"gram": pa.array(rows, pa.uint32()), "documents": pa.array(documents[rows])})
    return dropped, publish_table(folder, DROPPED, table)


def read_dropped(folder: Folder, xxh3: str, grams: int) -> npt.NDArray[np.bool_]:
    """bool[G] of `dropped.parquet`."""
    dropped = np.zeros(grams, bool)
    dropped[read_table(folder / DROPPED, xxh3)["gram"].to_numpy()] = True
    return dropped


def judge_partition(job: Job, task: tuple[str, str, str]) -> PublishedFile:
    """Publish the matches of a partition: (its name, checksum of its hits, checksum of the dropped grams)."""
    name, hits_xxh3, dropped_xxh3 = task
    index = load(job.folder, job.key, job.params)
    dropped = read_dropped(job.folder, dropped_xxh3, len(index.table.keys))
    hits = read_table(job.folder / f"hits/{name}.parquet", hits_xxh3).cast(HITS)
    judged = judge({n: hits[n].to_numpy() for n in NUMBERS}, index, job.params, dropped)
    return publish_table(job.folder, f"matches/{name}.parquet", matches_table(hits, judged, index))


@dataclass(frozen=True)
class Recheck:
    """The index and the n-grams that count nowhere, read when they are first asked for."""

    folder: Folder
    key: str
    params: DecontaminateParams

    @cached_property
    def _index(self) -> Index:
        return load(self.folder, self.key, self.params)

    @cached_property
    def _dropped(self) -> npt.NDArray[np.bool_]:
        return read_dropped(self.folder, "", len(self._index.table.keys))

    def clean(self, text: str) -> bool:
        """Whether nothing in the text counts."""
        hits = find_hits(pa.array([text], pa.large_string()), self._index.table)
        return not judge(hits, self._index, self.params, self._dropped)["acts"].any()

    def words(self, text: str) -> int:
        """How many words the text has."""
        data = np.frombuffer(text.encode(), np.uint8)
        most = most_words(len(data))
        return int(
            place_words(
                data, 0, len(data), rule(), np.empty(most, np.uint64), np.empty(most, np.int64),
                np.empty(most, np.int64), np.empty(most, np.int32),
            )
        )  # fmt: skip
