"""The words of a sample, counted by the workers: a partition's counts are a file, and the driver adds them up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpusmill.common.checkpoints import once
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.tokenizer.sample import Drawn, Edge, read_part
from corpusmill.pipeline.tokenizer.train import words_of
from corpusmill.pipeline.tokenizer.words import Words, added
from corpusmill.schemas.manifest import Marker, PublishedFile
from corpusmill.schemas.tokenizer import TokenizerParams

_MARKER = "counted.json"


@dataclass(frozen=True)
class Count:
    """Publish the words of a partition's part of the sample, with their counts."""

    work: Folder
    edges: dict[str, Edge]
    params: TokenizerParams

    def __call__(self, file: PublishedFile) -> PublishedFile:
        words = words_of([read_part(self.work, file, self.edges)["text"]], self.params)
        table = pa.table({"word": words.as_arrow(), "count": words.counts})
        return publish_table(self.work, f"words/{file.path}", table)


def sample_words(context: Context, drawn: Drawn, params: TokenizerParams, key: str) -> Words:
    """The words of a sample (see `words_of`), in no particular order. What a killed run counted for the same `key` is used."""

    def make() -> Marker:
        count = Count(drawn.work, drawn.edges, params)
        files = context.scheduler.map(
            count, drawn.files, "tokenizer: words", [file.bytes for file in drawn.files]
        )
        return Marker(key=key, files=files)

    kept = once(Marker, drawn.work / _MARKER, key, drawn.work, make, read_files=True)
    return added(_read(drawn.work, kept.files))


def _read(work: Folder, files: list[PublishedFile]) -> Iterator[Words]:
    """The published counts, one file at a time."""
    for file in files:
        table = read_table(work / file.path, file.xxh3)
        words = pa.concat_arrays([pa.array([], pa.large_binary()), *table["word"].chunks])
        yield Words.of(words, table["count"].to_numpy().astype(np.int64))
