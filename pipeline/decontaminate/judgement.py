"""The judgement of a partition's hits, what counts nowhere because too many documents hold it, and the check of texts after a cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.index import Index, load
from corpusmill.pipeline.decontaminate.matches import NEAR_NUMBERS, NUMBERS, Job, find_hits
from corpusmill.pipeline.decontaminate.near_matches import enough, judge_all, matches_table
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.text.word_hashes import most_words, place_words
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.stages import DecontaminateParams
from corpusmill.schemas.tables import HITS, NEAR_HITS

DROPPED = "dropped.parquet"


def boilerplate(
    folder: Folder, hits: Sequence[Sequence[PublishedFile]], index: Index, params: DecontaminateParams
) -> tuple[npt.NDArray[np.bool_], PublishedFile]:
    """bool[G]: grams in more than `max_documents` documents of the corpus, and the file that lists them, with the near units of which
    as many hold enough."""
    documents = np.zeros(len(index.table.keys), np.int64)
    near_documents, lengths = np.zeros(len(index.seeds.unit), np.int64), np.diff(index.seeds.starts)
    if params.max_documents is not None:
        for grams, near, *_ in hits:
            found = read_table(folder / grams.path, grams.xxh3, ["row", "gram"])
            _count(documents, found["gram"].to_numpy(), found["row"].to_numpy())
            found = read_table(folder / near.path, near.xxh3, ["row", "near", "words"])
            number, words = found["near"].to_numpy().astype(np.int64), found["words"].to_numpy()
            kept = enough(words, lengths[number], params.near_share)
            _count(near_documents, number[kept], found["row"].to_numpy()[kept])
    dropped = documents > (params.max_documents or 0)
    rows, near_rows = np.flatnonzero(dropped), np.flatnonzero(near_documents > (params.max_documents or 0))
    table = pa.table(
        {
            "gram": pa.concat_arrays([pa.array(rows, pa.uint32()), pa.nulls(len(near_rows), pa.uint32())]),
            "near_unit": pa.concat_arrays(
                [pa.nulls(len(rows), pa.uint32()), pa.array(near_rows, pa.uint32())]
            ),
            "documents": pa.array(np.r_[documents[rows], near_documents[near_rows]]),
        }
    )
    return dropped, publish_table(folder, DROPPED, table)


def _count(documents: npt.NDArray[np.int64], found: npt.NDArray[Any], row: npt.NDArray[Any]) -> None:
    """Add for each distinct value found the rows in which it is."""
    pairs = np.unique(np.stack([found, row], 1).astype(np.int64), axis=0)
    np.add.at(documents, pairs[:, 0], 1)


def read_dropped(
    folder: Folder, xxh3: str, index: Index
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(bool[G], bool[N]) of `dropped.parquet`."""
    table = read_table(folder / DROPPED, xxh3)
    both = np.zeros(len(index.table.keys), bool), np.zeros(len(index.seeds.unit), bool)
    for dropped, name in zip(both, ("gram", "near_unit"), strict=True):
        dropped[table[name].drop_null().to_numpy()] = True
    return both


def judge_partition(job: Job, task: tuple[str, str, str, str]) -> PublishedFile:
    """Publish the matches of a partition: (its name, checksums of its hits, of the near ones, and of what is dropped)."""
    name, hits_xxh3, near_xxh3, dropped_xxh3 = task
    index = load(job.folder, job.key, job.params)
    dropped = read_dropped(job.folder, dropped_xxh3, index)
    hits = read_table(job.folder / f"hits/{name}.parquet", hits_xxh3).cast(HITS)
    near = read_table(job.folder / f"hits/{name}.near.parquet", near_xxh3).cast(NEAR_HITS)
    columns = [
        {n: table[n].to_numpy() for n in names} for table, names in ((hits, NUMBERS), (near, NEAR_NUMBERS))
    ]
    judged = judge_all(columns[0], columns[1], index, job.params, *dropped)
    return publish_table(job.folder, f"matches/{name}.parquet", matches_table(hits, near, judged, index))


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
    def _dropped(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        return read_dropped(self.folder, "", self._index)

    def clean(self, text: str) -> bool:
        """Whether nothing in the text counts."""
        hits = find_hits(pa.array([text], pa.large_string()), self._index)
        return not judge_all(*hits, self._index, self.params, *self._dropped)["acts"].any()

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
