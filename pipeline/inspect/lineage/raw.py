"""The bytes of the source that a document's text is: read again, compared with what ingest kept, and addressed as far as
the format allows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.format import without_query
from corpusmill.common.ids import text_hash
from corpusmill.pipeline.engine.layout import is_relative
from corpusmill.pipeline.ingest.reread import RawFile, cleaned, find_file, path_exists
from corpusmill.pipeline.inspect.lineage.edits import STAGE, Piece, StageEdits, repairs
from corpusmill.pipeline.inspect.lineage.run import Row, RunPlaces
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.sources import Source

Edges = npt.NDArray[np.int64]
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_UNIT: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S
)


def field_bytes(line: bytes, field: str) -> Edges | None:
    """int64[characters + 1]: where each character of a field's string begins in a line that is a JSON object, and where
    the last ends. A later field of the same name counts, as parsers have it. None for a line that is not UTF-8, or
    where the field is no string."""
    try:
        text = line.decode()
        place = _string(text, field)
    except (ValueError, RecursionError):
        return None
    if place is None:
        return None
    start, end = place
    units = [match.end() - match.start() for match in _UNIT.finditer(text, start, end)]
    found: Edges = utf8_edges(text[:end])[start + edges_of(units)]
    return found


def edges_of(sizes: Sequence[int] | npt.NDArray[np.int64]) -> Edges:
    """int64[n + 1]: where each of n pieces of these sizes begins, and where the last ends."""
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=edges[1:])
    return edges


def utf8_edges(text: str) -> Edges:
    """Where each character of a text begins in its UTF-8, and where the last ends."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return edges_of(1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF))


def _string(text: str, field: str) -> tuple[int, int] | None:
    """(first character, one past the last) of what stands between the quotes of a field's string."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return None
    found = None
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # after the colon
        value, at = decoder.raw_decode(text, start)
        if name == field:
            found = (start + 1, at - 1) if isinstance(value, str) else None
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at : at + 1] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


_BOMS: Final = {
    "utf-8": b"\xef\xbb\xbf", "utf-32-le": b"\xff\xfe\x00\x00", "utf-32-be": b"\x00\x00\xfe\xff",
    "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff",
}  # fmt: skip
_EXTRACTED: Final = {
    "html": "the page's main text, extracted by {extractor}",
    "warc": "the text of the record's payload; of HTML its main text, extracted by {extractor}",
    "arc": "the text of the record's payload; of HTML its main text, extracted by {extractor}",
    "wet": "the payload of a conversion record",
    "csv": "the field of the row, its quotes undone", "tsv": "the field of the row, its quotes undone",
    "json": "the string of the value, its escapes undone", "mediawiki": "the page's wikitext, without its markup",
    "pdf": "the text of the pages in reading order", "epub": "the text of the files of the book in reading order",
    "docx": "the text of the body, then of the notes",
}  # fmt: skip


class Span(NamedTuple):
    """Bytes `start` to `end` of `Raw.unit`. `exact`: they are the characters; else they were mended or replaced as a whole, and
    the characters come from somewhere in them."""

    start: int
    end: int
    exact: bool


@dataclass(frozen=True)
class Raw:
    """Where a document's text stands in its source.

    `state`: `equal` (read again, the record gives the text that ingest kept), `unchecked` (that text is no longer there,
    but it had as many bytes), `differs` (the record gives another text: the file changed),
    `gone` (the file, or the record in it, is no longer there), `unfound` (relative paths of the recipe lead to nothing, from
    where the run was made as from here). `edges`: int64[characters + 1], the byte at which each
    character of the record's text begins, in `unit` (a compressed file is counted as decompressed); None where the format
    has no such bytes.
    """

    state: str
    file: str
    record: str
    format: str = ""
    unit: str = ""
    note: str = ""
    edges: Edges | None = None
    mended: StageEdits | None = None

    def spans(self, pieces: list[Piece]) -> list[Span]:
        """The bytes of pieces whose older text is the one that ingest kept; [] where there are none to tell."""
        if self.edges is None or self.mended is None:
            return []
        found: list[Span] = []
        for piece in pieces:
            for one in self.mended.back(piece.old_start, piece.old_end):
                exact = not piece.inside and not one.inside
                span = Span(int(self.edges[one.old_start]), int(self.edges[one.old_end]), exact)
                if found and found[-1].end == span.start and found[-1].exact == exact:
                    span = Span(found.pop().start, span.end, exact)
                if span not in found:
                    found.append(span)
        return found


def read_raw(run: RunPlaces, row: Row) -> Raw:
    """The record that a document of a run was made of, read again and compared with what ingest kept of it."""
    path, _, record = str(row.values["locator"]).rpartition("#")
    source = run.source_of(row)
    raw = Raw("gone", path, record)
    if source is None:
        return replace(raw, note="it came in document partitions, and the run that made them is not there")
    file, missing = _find(run, row.values["source"], source, path, raw)
    if file is None:
        return missing
    raw = replace(raw, file=without_query(file.file.url), format=file.format)
    before, raw = _located(file, source, run.recipe, raw)
    if before is None:
        return replace(raw, note="the file has no such record, or none with text")
    repair = run.recipe.ingest.repair_encoding
    after = cleaned([before], repair)[0]
    kept = run.text_hash("ingest", row)
    state = "equal" if text_hash(after) == kept else "differs"
    if kept is None and len(after.encode()) == row.values["text_bytes"]:
        state = "unchecked"
    if state == "differs":
        note = "the source file is not what it was"
        return Raw(state, raw.file, record, raw.format, note=note)

    def clean(texts: Sequence[str], mend: bool) -> list[str]:
        return cleaned(texts, mend and repair)

    mended = StageEdits(STAGE, repairs(before, after, clean))
    notes = (raw.note, f"{file.compression} undone" if file.compression else "")
    return replace(raw, state=state, note="; ".join(filter(None, notes)), mended=mended)


def _find(run: RunPlaces, name: str, source: Source, path: str, raw: Raw) -> tuple[RawFile | None, Raw]:
    """The file of that path, where the run was made or else from here; and the `Raw` to return if there is none."""
    places = [run.places_of(root) for root in source.places]
    # One after the other: where the run was made there may be another file of that name from here.
    for paths in dict.fromkeys((tuple(some[0] for some in places), tuple(some[-1] for some in places))):
        listing = source.files_from
        if listing is not None:
            listing = listing.model_copy(update={"path": paths[-1]})
        there = {"paths": list(paths[: len(source.paths)]), "files_from": listing}
        found = find_file(name, source.model_copy(update=there), path, run.revisions)
        if found is not None:
            return RawFile(found, source, run.recipe.ingest), raw
    tried = list(dict.fromkeys(place for some in places for place in some))
    raw = replace(raw, note=f"no such file below {', '.join(tried)}")
    relative = [root for root in source.places if is_relative(root)]
    lost = [root for root in relative if not any(map(path_exists, run.places_of(root)))]
    if lost or (relative and not run.made_in):
        hint = "; the recipe's paths are relative: run trace from where the run was made"
        return None, replace(raw, state="unfound", note=raw.note + hint)
    return None, raw


def _located(file: RawFile, source: Source, recipe: Recipe, raw: Raw) -> tuple[str | None, Raw]:
    """The text that the reader finds for the record that `raw` names, and where its characters stand."""
    kind, record = raw.format, raw.record
    if source.conversations:
        note = "no bytes to tell: the turns of a conversation are joined"
        return file.text(record), replace(raw, note=note)
    if kind == "jsonl":
        line = file.line(record)
        if line is not None:
            value = line.value.get(source.text_column)
            edges = field_bytes(line.data, source.text_column)
            if isinstance(value, str) and edges is not None and len(edges) == len(value) + 1:
                unit = f"the file (line {line.number + 1:,}, field '{source.text_column}')"
                return value, replace(raw, unit=unit, edges=edges + line.offset)
        note = "no bytes to tell: the encoding was mended, of the file or of the line"
        if line is not None and source.text_column not in line.value:
            note = "no bytes to tell: the text is a nested field"
        return file.text(record), replace(raw, note=note)
    text = file.text(record)
    if text is None:
        return None, raw
    if kind in ("text", "markdown"):
        found = _encoding(text, file.content(), (source.encoding, *file.mended))
        if found is None:
            return text, replace(raw, note="no encoding gives the file's bytes back: no bytes to tell")
        return text, replace(raw, unit="the file", note=found[0], edges=found[1])
    if kind in ("parquet", "documents", "arrow"):
        if file.mended:
            return text, replace(raw, note="encodings were mended in the file: no bytes to tell")
        unit = f"the value in row {int(record):,}, column '{source.text_column}', as UTF-8"
        return text, replace(raw, unit=unit, edges=utf8_edges(text))
    return text, replace(raw, note=_EXTRACTED[kind].format(extractor=recipe.ingest.html_extractor))


def _encoding(text: str, data: bytes, named: Sequence[str | None]) -> tuple[str, Edges] | None:
    """(its name, where each character begins) of the encoding in which `text` is exactly `data`."""
    for name, bom in _BOMS.items():
        if data.startswith(bom) and (edges := edges_in(text, name, data[len(bom) :])) is not None:
            return f"{name} with a byte order mark", edges + len(bom)
    for name in dict.fromkeys(filter(None, ("utf-8", *named, "cp1252"))):
        if (edges := edges_in(text, name, data)) is not None:
            return name, edges
    return None


def edges_in(text: str, encoding: str, data: bytes) -> Edges | None:
    """Where each character of `text` begins in `data`, its bytes in an encoding; None if they are not."""
    try:
        if text.encode(encoding) != data:
            return None
        if encoding == "utf-8":
            return utf8_edges(text)
        edges = edges_of([len(char.encode(encoding)) for char in text])
    except (UnicodeError, LookupError):
        return None
    return edges if edges[-1] == len(data) else None
