"""The `ingest` stage: files of any supported format to document partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import xxhash

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.common.traffic import PAGE
from corpusmill.pipeline.engine.found import clause, kinds, most
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Shape, Work, manifests
from corpusmill.pipeline.engine.stage import MANY_BYTES, Outcome, Scheduler, SourceStage
from corpusmill.pipeline.ingest.decoding import codec_name
from corpusmill.pipeline.ingest.discover import (
    ARCHIVES,
    UNKNOWN,
    InputFile,
    Known,
    Part,
    can_be_cut,
    check_apart,
    compressed,
    text_share,
)
from corpusmill.pipeline.ingest.file_lists import find_inputs
from corpusmill.pipeline.ingest.raw_file import named_by_content
from corpusmill.schemas.manifest import StageManifest, hash_json
from corpusmill.schemas.recipe import Recipe

# What turns bytes into text: another version may give another text.
LIBRARIES = ("resiliparse", "ftfy", "chardet")
PDF_LIBRARY = "pypdfium2"
# Settings of a source that change its documents. Its paths do not: the content of its files does.
READ_SETTINGS = (
    "format", "text_column", "text_join", "id_column", "url_column", "date_column", "encoding", "csv",
)  # fmt: skip
# Options of one format each: part of a key where they are set, so that a new format changes no key of the others.
FORMAT_SETTINGS = ("pdf", "epub", "docx", "members", "conversations")


# Of `partition_mb`: what the files of a unit come to on average, as stored, where they are smaller, and what a part of a larger
# one has.
UNIT_SHARE = 0.25
LEAST_PART = 4 << 20  # bytes of a part
READ_BYTES, FILE_BYTES = 4 << 20, 1500  # of a request for input; that the driver holds for each input file
NAME_CHARS = 60  # of the path of a unit's first file, in the unit's name


@dataclass(frozen=True)
class Unit:
    """Files of one source that one task reads: a big one alone, or a part of it; small ones together.

    See `corpusmill.pipeline.engine.stage.SourceUnit`. `hashes`: of each one's content, as planned.
    """

    name: str
    key: str
    source: str
    files: tuple[InputFile, ...]
    hashes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return sum(file.stored for file in self.files)


class Ingest(SourceStage):
    """Discover, read, decode, clean; quarantine what cannot be read. See `corpusmill.pipeline.engine.stage.SourceStage`."""

    name = "ingest"
    version = "6"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        # "<source>/<path>" -> (bytes, change tag, xxh3) of an earlier run: files that still look the same are
        # not hashed again. After `inputs()` it holds the present files.
        self.known_inputs: Known = {}
        self.known_parts: dict[
            str, list[tuple[int, int, str]]
        ] = {}  # likewise, of files that are read in parts
        self.part_bytes = int(max(LEAST_PART, UNIT_SHARE * self.params.partition_mb * 2**20))

    def key_params(self) -> dict[str, Any]:
        """Parameters, what each source is read with, and the versions of the libraries that make text."""
        task = self.task_params()
        return {
            **task,
            "sources": [[name, self._settings(name)] for name in self.recipe.sources],
            "libraries": {**task["libraries"], **_libraries_of(self.files)},
        }

    def task_params(self) -> dict[str, Any]:
        """Without the sources and libraries for some files: a unit's key has those of its own."""
        from corpusmill.pipeline.ingest.readers.main_text.trees import shipped_model

        libraries = LIBRARIES + (("trafilatura",) if self.params.html_extractor == "trafilatura" else ())
        if "trafilatura" in libraries:
            from corpusmill.pipeline.ingest.readers.html import require

            require("trafilatura")
        return {
            **super().key_params(),
            "libraries": {name: version(name) for name in libraries},
            **({"main_text": shipped_model()} if self.params.html_extractor == "main_text" else {}),
        }

    def _settings(self, source: str) -> dict[str, Any]:
        settings = self.recipe.sources[source]
        defaults = type(settings).model_fields
        changed = {name for name in FORMAT_SETTINGS if getattr(settings, name) != defaults[name].default}
        return settings.model_dump(mode="json", include={*READ_SETTINGS, *changed})

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counts, counters = manifest.counts, manifest.counters
        parts = [quantity(counts.docs_in, "record")]
        for number, outcome in ((counts.removed, "removed"), (counts.quarantined, "quarantined")):
            if number:
                parts.append(
                    clause(f"{number:,} {outcome}", most(kinds(counters, f"{outcome}/{self.name}.")))
                )
        return "; ".join(parts)

    def check_apart(self, output: Folder) -> None:
        for name, source in self.recipe.sources.items():
            for path in source.paths:
                check_apart(f"sources.{name}.paths", path, output)

    def text_bytes(self) -> int:
        return int(sum(file.size * text_share(file.format, file.path) for file in self.files))

    def unread_bytes(self) -> int:
        known = {key: entry[:2] for key, entry in self.known_inputs.items()}
        unknown = (file for file in self.files if known.get(file.key) != (file.size, file.tag))
        return sum(file.size for file in unknown if not (file.problem or named_by_content(file.tag)))

    def shape(self) -> Shape:
        """Units as `units` makes them: a file of less than `UNIT_SHARE` of a partition is a share of one, others are one
        each, or as many as they are cut in."""
        limit = self.params.partition_mb * 2**20
        stored = text = units = partitions = 0.0
        for file in self.files:
            share = text_share(file.format, file.path)
            size, mine = float(file.size), file.size * share
            whole = compressed(file.path) or not can_be_cut(file, self.part_bytes)
            cut = 0.0 if whole else size / self.part_bytes
            own = max(cut, min(1.0, size / (UNIT_SHARE * limit)))
            units, partitions = units + own, partitions + max(own, mine / limit)
            stored, text = stored + size, text + mine
        return Shape(stored, text, float(len(self.files)), units, partitions)

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Two passes over the input: one for its hashes, on the driver unless it is much, one to read it."""
        from corpusmill.pipeline.ingest.content import TOGETHER

        shape, own = flow.shape, known.of(self.name)
        asked = shape.files + shape.input_bytes / READ_BYTES
        much = shape.input_bytes >= MANY_BYTES
        tasks = max(1.0, min(shape.files, shape.input_bytes / TOGETHER)) if much else 1
        written = flow.text_bytes * known.stored + flow.documents * own.row_bytes
        hashing = Work(
            "hash of the input", tasks, {"input_mb": shape.input_bytes / 1e6}, read_bytes=shape.input_bytes, gets=asked,
            lists=shape.files / PAGE, driver_bytes=shape.files * FILE_BYTES, one_core=not much,
            worker_bytes=own.base_bytes if much else 0.0,
        )  # fmt: skip
        reading = Work(
            self.name, shape.units, {"mb": flow.megabytes}, read_bytes=shape.input_bytes, written_bytes=written,
            kept_bytes=written, gets=asked + shape.units, puts=3 * shape.partitions + shape.units + 1,
            worker_bytes=own.base_bytes + own.held * flow.partition_bytes,
            driver_bytes=shape.files * FILE_BYTES + shape.units * known.task_bytes
            + shape.partitions * known.manifest_bytes,
        )  # fmt: skip
        after = flow.kept(flow.documents, flow.text_bytes, self.name)
        return Forecast([hashing, reading, manifests(flow, known, 2)], after)

    def samples(self) -> list[tuple[str, Folder]]:
        first = {file.source: Folder(file.url) for file in reversed(self.files)}
        return [(f"sources.{source}.paths", file) for source, file in sorted(first.items())]

    @cached_property
    def files(self) -> list[InputFile]:
        """Every input file, source by source; raises `UserError` for a path where nothing is, an unknown encoding, and files
        for which a library is missing."""
        for name, source in self.recipe.sources.items():
            if source.encoding is not None and codec_name(source.encoding) is None:
                raise UserError(
                    f"sources.{name}.encoding: '{source.encoding}' is not the name of an encoding; allowed: names of the"
                    " WHATWG standard or of Python, such as utf-8, cp1252, koi8-r, gb18030; without one it is detected"
                )
        files = [
            file
            for name, source in self.recipe.sources.items()
            for file in find_inputs(name, source, self.revisions, self.lists)
        ]
        if pdf := next((file for file in files if file.format == "pdf"), None):
            from corpusmill.pipeline.ingest.readers.pdf import require

            require(f"sources.{pdf.source}: {pdf.path}")
        return files

    def inputs(self, scheduler: Scheduler | None = None) -> dict[str, str]:
        """ "<source>/<path>" -> xxh3_128 of the file's bytes, and of what a list says of it."""
        from corpusmill.pipeline.ingest.content import hash_inputs

        sources = self.recipe.sources
        hashes = hash_inputs(
            self.files, self.known_inputs, self.known_parts, sources, self.part_bytes, scheduler
        )
        about = {file.key: hash_json(extra) for file in self.files if (extra := _listed(file))}
        return {key: f"{digest}+{about[key]}" if key in about else digest for key, digest in hashes.items()}

    def units(self) -> Sequence[Unit]:
        """Files in order, grouped within a source up to `partition_mb` of stored size.

        Where a group begins is also decided by the paths of its files, as in content-defined chunking: a file that is
        added or removed changes the groups next to it, and no other.
        """
        if any(file.key not in self.known_inputs for file in self.files):
            self.inputs()
        limit = self.params.partition_mb * 2**20
        units: list[Unit] = []
        group: list[tuple[InputFile, str]] = []
        held = 0
        for file in self.files:
            begins = xxhash.xxh64_intdigest(file.path.encode()) * UNIT_SHARE * limit < file.size * 2**64
            parts = self._parts(file)
            if group and (group[0][0].source != file.source or held + file.size > limit or begins or parts):
                units.append(self._unit(group))
                group, held = [], 0
            if parts:
                units += [self._unit([part]) for part in parts]
            else:
                group.append((file, self.known_inputs[file.key][2]))
                held += file.size
        return [*units, *([self._unit(group)] if group else [])]

    def _parts(self, file: InputFile) -> list[tuple[InputFile, str]]:
        """The parts that a file is read in, with the hash of each; none if it is read by one task."""
        known = self.known_parts.get(file.key)
        if not known:
            return []
        ends = [*(begin for begin, _, _ in known[1:]), file.size]
        kind = "jsonl" if file.format in ("json", UNKNOWN) else file.format
        return [
            (replace(file, format=kind, part=Part(number, begin, end, record)), digest)
            for number, ((begin, record, digest), end) in enumerate(zip(known, ends, strict=True))
        ]

    def _unit(self, planned: Sequence[tuple[InputFile, str]]) -> Unit:
        files, hashes = zip(*planned, strict=True)
        first: InputFile = files[0]
        read: list[object] = [
            [file.path, digest, *_listed(file), *([file.part] if file.part else [])]
            for file, digest in planned
        ]
        libraries = _libraries_of(files)
        key = hash_json([self._settings(first.source), read, *([libraries] if libraries else [])])
        number = list(self.recipe.sources).index(first.source)
        shown = re.sub(r"[^A-Za-z0-9]", "_", first.path)[:NAME_CHARS]
        suffix = xxhash.xxh32_hexdigest(first.path.encode())  # of paths that look alike so far
        part = f"-p{first.part.number:05d}" if first.part else ""
        return Unit(f"{number:02d}-{shown}-{suffix}{part}", key, first.source, files, hashes)

    def read(self, unit: Unit) -> Iterator[tuple[str, Outcome, int]]:
        """Partitions of a unit, each as soon as it is full; one at least, so that every unit shows."""
        from corpusmill.pipeline.ingest import small_files
        from corpusmill.pipeline.ingest.builder import PartitionBuilder
        from corpusmill.pipeline.ingest.readers import read_file
        from corpusmill.pipeline.ingest.records import Reading

        source = self.recipe.sources[unit.source]
        builder = PartitionBuilder(self.params, unit.source, source.conversations)
        done = reported = 0  # bytes of input read, and bytes already reported
        chunk = 0
        plain = small_files.eligible(source)
        for file, planned in zip(unit.files, unit.hashes, strict=True):
            document = small_files.document(file, self.params, planned) if plain else None
            if document is not None:
                builder.counters.update(file.counted)
                builder.counters[f"files/{file.format}"] += 1
                done += file.stored
                for outcome in builder.add_document(document, file.path):
                    yield f"{unit.name}-{chunk:03d}", outcome, done - reported
                    chunk, reported = chunk + 1, done
                continue
            reading = Reading(file, source, self.params, builder.counters)

            def outcomes(reading: Reading = reading) -> Iterator[Outcome]:
                for event in read_file(reading):
                    yield from builder.add(event, reading)

            if file.begins:
                builder.counters.update(file.counted)
            for outcome in outcomes():
                now = done + reading.consumed
                yield f"{unit.name}-{chunk:03d}", outcome, now - reported
                chunk, reported = chunk + 1, now
            done += file.stored
            if not reading.unchanged(planned):
                raise WorkError(f"sources.{file.source}: {file.path} {_not_as_planned(file)}")
        for outcome in builder.flush_batch():
            yield f"{unit.name}-{chunk:03d}", outcome, done - reported
            chunk, reported = chunk + 1, done
        if not (chunk and builder.empty):
            yield f"{unit.name}-{chunk:03d}", builder.take(), done - reported


def _libraries_of(files: Sequence[InputFile]) -> dict[str, str]:
    """Versions of the libraries that read some formats only; a file whose name shows no format may be a
    PDF, and an archive may hold one."""
    if find_spec(PDF_LIBRARY) and any(file.format in ("pdf", UNKNOWN, *ARCHIVES) for file in files):
        return {PDF_LIBRARY: version(PDF_LIBRARY)}
    return {}


def _listed(file: InputFile) -> list[str]:
    """What a list of files adds to the documents and counts of a file."""
    return [file.metadata, *file.counted] if file.metadata or file.counted else []


def _not_as_planned(file: InputFile) -> str:
    if named_by_content(file.tag):
        return f"does not have the hash that the Hub gives, {file.tag}; run the command again"
    return "changed while it was read; run the command again when it is complete"


STAGE = Ingest
