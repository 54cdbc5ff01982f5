"""DOCX (Office Open XML, ECMA-376, transitional and strict): one file, one document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from corpusmill.pipeline.ingest.readers.docx_body import Body, Styles
from corpusmill.pipeline.ingest.readers.zip_parts import Archive, Encrypted, Missing, TooLarge, local, resolve
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Damaged

WHOLE = "0"
DOCUMENT = "word/document.xml"
META_CHARS = 1_000
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # of the container of encrypted files, and of Word 97's
_PROPERTIES = {
    "title": "title",
    "creator": "creator",
    "language": "language",
    "created": "created",
    "modified": "modified",
}
_KINDS = ("footnotes", "endnotes")


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    for event in _events(reading):
        reading.records += 1
        yield event


def _events(reading: Reading) -> Iterator[Event]:
    if reading.stream().peek(len(_COMPOUND)) == _COMPOUND:
        detail = "an OLE file in place of a zip archive: encrypted, or of Word 97 to 2003"
        yield Rejected(WHOLE, "ingest.encrypted", detail)
        return
    try:
        archive = Archive(reading)
        targets = _targets(archive, "_rels/.rels")
        main = targets.get("officeDocument", DOCUMENT)
        folder, _, name = main.rpartition("/")
        others = _targets(archive, f"{folder}/_rels/{name}.rels".lstrip("/"))
    except (Missing, Encrypted, TooLarge, Damaged) as error:
        yield _rejected(error, WHOLE, "the archive", reading)
        return
    keep_notes = reading.source.docx.notes == "keep"
    styles = Styles()
    about: dict[str, str] = {}
    notes: dict[tuple[str, str], str] = {}
    hidden = 0
    parts: list[tuple[str, str | None, Callable[[str], None]]] = [
        ("styles", others.get("styles"), lambda path: archive.parse(path, styles.start, styles.end, _ignore)),
        (
            "core-properties",
            targets.get("core-properties"),
            lambda path: about.update(_properties(archive, path)),
        ),
    ]
    for role, path, take in parts:
        if path is None:
            continue
        try:
            take(path)
        except (Missing, Encrypted, TooLarge, Damaged) as error:
            yield _rejected(error, role, f"its {role}", reading)
    body = Body(styles, reading.max_bytes, keep_notes)
    try:
        archive.parse(main, body.start, body.end, body.characters)
    except (Missing, Encrypted, TooLarge, Damaged) as error:
        yield _rejected(error, WHOLE, "the document", reading)
        return
    hidden += body.hidden
    for role in _KINDS:
        if not any(f"{kind}s" == role for kind, _ in body.notes) or role not in others:
            continue
        found = Body(styles, reading.max_bytes, False)
        try:
            archive.parse(others[role], found.start, found.end, found.characters)
        except (Missing, Encrypted, TooLarge, Damaged) as error:
            yield _rejected(error, role, f"its {role}", reading)
            continue
        hidden += found.hidden
        notes |= {(role.removesuffix("s"), number): text for number, text in found.parts.items()}
    reading.counters["docx_hidden_characters"] += hidden
    ends = [f"[{n}] {notes[note]}" for n, note in enumerate(body.notes, 1) if notes.get(note)]
    text = "\n\n".join(filter(None, [body.text, *ends]))
    if (size := len(text.encode("utf-8", "replace"))) > reading.max_bytes:
        yield _rejected(TooLarge(size), WHOLE, "the document", reading)
        return
    date = about.pop("created", None) or about.get("modified")
    metadata = orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode() if about else None
    yield Document(WHOLE, text, date=date, metadata=metadata)


def _ignore(*_: Any) -> None:
    """A handler of what is of no interest."""


def _targets(archive: Archive, path: str) -> dict[str, str]:
    """Kind of relationship -> the part that it leads to. Without the file that names them there are none."""
    found: dict[str, str] = {}
    base = path.replace("_rels/", "").removesuffix(".rels")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if local(tag) == "Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            found.setdefault(kind, resolve(base, attributes.get("Target", "")))

    if path in archive:
        archive.parse(path, start, _ignore, _ignore)
    return found


def _properties(archive: Archive, path: str) -> dict[str, str]:
    """Title, creator, language and dates of the core properties (Dublin Core)."""
    found: dict[str, str] = {}
    field: str | None = None
    parts: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal field
        field = _PROPERTIES.get(local(tag))
        parts.clear()

    def end(tag: str) -> None:
        nonlocal field
        if field is not None:
            value = " ".join("".join(parts).split())[:META_CHARS]
            if value:
                found[field] = value
        field = None

    def characters(data: str) -> None:
        if field is not None and len(parts) < META_CHARS:
            parts.append(data)

    archive.parse(path, start, end, characters)
    return found


def _rejected(
    error: Missing | Encrypted | TooLarge | Damaged, record: str, what: str, reading: Reading
) -> Rejected:
    if isinstance(error, Damaged):
        return Rejected(record, error.rule, f"{what}: {error.detail}", float(error.position))
    if isinstance(error, Encrypted):
        return Rejected(record, "ingest.encrypted", f"{what} is encrypted")
    if isinstance(error, TooLarge):
        detail = f"{what} has more than {reading.max_bytes} bytes of text, or {8 * reading.max_bytes} of XML"
        return reading.too_large(record, detail, error.size)
    return Rejected(record, "ingest.missing_part", f"{what} is not in the archive")
