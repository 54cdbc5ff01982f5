"""The `ingest` stage: files of any supported format to document partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.pipeline.engine.stage import Outcome, SourceStage
from corpusmill.pipeline.ingest.discover import InputFile, Known, discover, hash_inputs
from corpusmill.pipeline.ingest.text_cleaning import codec_name
from corpusmill.schemas.recipe import Recipe

# What turns bytes into text: another version may give another text.
LIBRARIES = ("resiliparse", "ftfy")
# Settings of a source that change its documents. Its paths do not: the content of its files does.
READ_SETTINGS = ("format", "text_column", "id_column", "url_column", "date_column", "encoding")


@dataclass(frozen=True)
class Unit:
    """Files of one source that one task reads: a big one alone, small ones together."""

    index: int
    source: str
    files: tuple[InputFile, ...]

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return sum(file.size for file in self.files)


class Ingest(SourceStage):
    """Discover, read, decode, clean; quarantine what cannot be read. See `corpusmill.pipeline.engine.stage.SourceStage`."""

    name = "ingest"
    version = "3"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        # "<source>/<path>" -> (bytes, change tag, xxh3) of an earlier run: files that still look the same are
        # not hashed again. After `inputs()` it holds the present files.
        self.known_inputs: Known = {}

    def key_params(self) -> dict[str, Any]:
        """Parameters, what each source is read with, and the versions of the libraries that make text."""
        libraries = LIBRARIES + (("trafilatura",) if self.params.html_extractor == "trafilatura" else ())
        if "trafilatura" in libraries:
            from corpusmill.pipeline.ingest.readers.html import require

            require("trafilatura")
        return {
            **super().key_params(),
            "sources": [
                [name, {key: getattr(source, key) for key in READ_SETTINGS}]
                for name, source in self.recipe.sources.items()
            ],
            "libraries": {name: version(name) for name in libraries},
        }

    @cached_property
    def files(self) -> list[InputFile]:
        """Every input file, source by source; raises `UserError` for a path where nothing is, and an unknown encoding."""
        for name, source in self.recipe.sources.items():
            if source.encoding is not None and codec_name(source.encoding) is None:
                raise UserError(
                    f"sources.{name}.encoding: '{source.encoding}' is not the name of an encoding; allowed: names of the"
                    " WHATWG standard or of Python, such as utf-8, cp1252, koi8-r, gb18030; without one it is detected"
                )
        return [file for name, source in self.recipe.sources.items() for file in discover(name, source)]

    def inputs(self) -> dict[str, str]:
        """ "<source>/<path>" -> xxh3_128 of the file's bytes."""
        return hash_inputs(self.files, self.known_inputs)

    def units(self) -> Sequence[Unit]:
        """Files in order, grouped within a source up to `partition_mb` of stored size."""
        limit = self.params.partition_mb * 2**20
        groups: list[list[InputFile]] = []
        held = 0
        for file in self.files:
            if not groups or groups[-1][0].source != file.source or held + file.size > limit:
                groups.append([])
                held = 0
            groups[-1].append(file)
            held += file.size
        return [Unit(index, files[0].source, tuple(files)) for index, files in enumerate(groups)]

    def read(self, unit: Unit) -> Iterator[tuple[str, Outcome, int]]:
        """Partitions of a unit, each as soon as it is full; one at least, so that every unit shows."""
        from corpusmill.pipeline.ingest.builder import PartitionBuilder
        from corpusmill.pipeline.ingest.readers import read_file
        from corpusmill.pipeline.ingest.records import Reading

        builder = PartitionBuilder(self.params)
        done = reported = 0  # bytes of input read, and bytes already reported
        chunk = 0
        for file in unit.files:
            reading = Reading(file, self.recipe.sources[unit.source], self.params, builder.counters)

            def outcomes(reading: Reading = reading) -> Iterator[Outcome]:
                for event in read_file(reading):
                    yield from builder.add(event, reading)
                yield from builder.flush_batch(reading)

            for outcome in outcomes():
                now = done + reading.consumed
                yield f"{unit.index:05d}-{chunk:03d}", outcome, now - reported
                chunk, reported = chunk + 1, now
            done += file.size
        if not (chunk and builder.empty):
            yield f"{unit.index:05d}-{chunk:03d}", builder.take(), done - reported


STAGE = Ingest
