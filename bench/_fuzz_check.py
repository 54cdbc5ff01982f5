"""One mutant through ingest's readers, and what must hold of what comes out."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench import _fuzz_peers
from bench._fuzz_formats import FORMATS
from bench._fuzz_mutants import CODECS, Mutant, gaps, intact
from bench._fuzz_words import MARK
from corpusmill.pipeline.ingest.builder import PartitionBuilder
from corpusmill.pipeline.ingest.discover import InputFile, format_of
from corpusmill.pipeline.ingest.readers import read_file
from corpusmill.pipeline.ingest.records import Batch, Document, Reading
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED

RESUMABLE = CODECS
_PHRASE = re.compile("|".join(rf"(?:[a-z]+ ){{{n}}}{MARK.pattern}(?: [a-z]+){{{3 - n}}}" for n in range(4)))
TWICE_EACH = 7  # of so many mutants one is read again, in small partitions


@dataclass
class Read:
    """What ingest made of a file."""

    texts: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(
        default_factory=list
    )  # of the ledger, without the repairs of kept documents
    ids: list[bytes] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    recognised: bool = False  # as a file of its format, which may hold no record

    def digest(self) -> str:
        """The same for the same documents and rows."""
        rows = [(row["locator"], row["rule"], row["detail"], row["outcome"]) for row in self.rows]
        return hashlib.sha256(
            repr((self.texts, rows, sorted(self.ids))).encode("utf-8", "replace")
        ).hexdigest()


def reading_of(path: Path, params: IngestParams, counters: Counter[str]) -> Reading:
    """A file as the stage opens it."""
    file = InputFile("s", path.name, str(path), path.stat().st_size, "", format_of(path.name))
    return Reading(file, Source(paths=[str(path)]), params, counters)


def read(path: Path, **params: Any) -> Read:
    """A file through its reader and the builder of partitions, as the stage does it."""
    settings = IngestParams(**params)
    builder = PartitionBuilder(settings, "s")
    reading = reading_of(path, settings, builder.counters)
    result, outcomes = Read(), []
    for event in read_file(reading):
        if isinstance(event, Batch):
            result.events["in"] += len(event.table)
        else:
            result.events["in"] += 1
            if not isinstance(event, Document):
                result.events["rejected"] += 1
                if (
                    not event.rule.startswith("ingest.")
                    or not event.detail
                    or event.outcome not in (REMOVED, QUARANTINED)
                ):
                    result.events["without a reason"] += 1
        outcomes += builder.add(event, reading)
    result.recognised = reading.recognised
    outcomes += builder.flush_batch()
    outcomes.append(builder.take())
    for outcome in outcomes:
        result.texts += outcome.kept["text"].to_pylist()
        result.ids += outcome.kept["doc_id"].to_pylist()
        rows = [row for row in outcome.decisions.to_pylist() if row["outcome"] != KEPT]
        result.rows += rows
        result.ids += [row["doc_id"] for row in rows]
        result.counters.update(outcome.counters)
    return result


def faults(mutant: Mutant, folder: Path) -> tuple[list[str], str, Counter[str]]:
    """(what is wrong, digest of the result, classes of difference to the second readers) of one mutant."""
    path = folder / mutant.file_name
    path.write_bytes(mutant.data)
    try:
        result = read(path)
        wrong = [*_accounts(result), *_details(mutant, result)]
        if mutant.number % TWICE_EACH == 0 and read(path, partition_mb=0.0001).digest() != result.digest():
            wrong.append("another result the second time, in smaller partitions")
        known = _expected(mutant, folder)
    finally:
        path.unlink()
    wrong += _losses(mutant, result, known)
    differences: Counter[str] = Counter()
    wrong += _peers(mutant, result, known, differences)
    if mutant.number < len(CODECS) and result.rows:
        wrong.append(f"an undamaged file has rows of the ledger: {result.rows[0]['rule']}")
    return wrong, result.digest(), differences


def _accounts(result: Read) -> list[str]:
    """in = kept + removed + quarantined, each with its rule and reason, each once."""
    wrong = []
    out = len(result.texts) + len(result.rows)
    if not result.events["in"] == out == result.counters["records"]:
        wrong.append(f"{result.events['in']} records in, {out} out, {result.counters['records']} counted")
    by_rule = Counter(f"{row['outcome']}/{row['rule']}" for row in result.rows)
    counted = {name: n for name, n in result.counters.items() if name.startswith((REMOVED, QUARANTINED))}
    if by_rule != counted:
        wrong.append(f"rows of the ledger {dict(by_rule)}, counters {counted}")
    if any(count < 0 for count in result.counters.values()):
        wrong.append("a negative count")
    if result.events["without a reason"]:
        wrong.append("a rejected record without rule or detail")
    if len(set(result.ids)) != len(result.ids):
        wrong.append("a doc_id twice")
    if any(row["rule"] == "ingest.unreadable" for row in result.rows):
        wrong.append(
            "an exception that no reader expected: "
            + next(r["detail"] for r in result.rows if r["rule"] == "ingest.unreadable")
        )
    if not (out or result.recognised or any(name.startswith("skipped/") for name in result.counters)):
        wrong.append("a file without any account")
    return wrong


def _details(mutant: Mutant, result: Read) -> list[str]:
    """No detail holds text of a record; up to three words may be the name of a field."""
    found = [row for row in result.rows if _PHRASE.search(row["detail"])]
    return [f"the detail of a row holds text: {found[0]['rule']}"] if found else []


@lru_cache(maxsize=1024)
def _expected_of(key: tuple[str, bytes], folder: Path) -> dict[str, str]:
    name, data = key
    path = folder / f"clean.{FORMATS[name].suffix}"
    path.write_bytes(data)
    texts = read(path).texts
    path.unlink()
    return {mark: text for text in texts for mark in MARK.findall(text)}


def _expected(mutant: Mutant, folder: Path) -> dict[str, str]:
    """mark -> text, of the file without damage."""
    known = _expected_of((mutant.format, b"".join(piece.data for piece in mutant.pieces)), folder)
    marks = {piece.mark for piece in mutant.pieces if piece.mark}
    assert marks == set(known), f"{mutant.format}: the file without damage is not read whole"
    return known


def _losses(mutant: Mutant, result: Read, known: dict[str, str]) -> list[str]:
    """Records that are whole in the file and neither kept nor accounted for."""
    format = FORMATS[mutant.format]
    kept, marks = set(result.texts), _marks(result)
    rules = {row["rule"] for row in result.rows if row["outcome"] == QUARANTINED}
    whole = intact(mutant)
    wrong = []
    lost = {record.mark for record in whole if known[record.mark] not in kept}
    silent = lost - marks  # damage next to a record may have become part of it
    if silent and not rules:
        wrong.append(f"{len(silent)} whole records are lost in silence")
    if format.apart == "table" and len(result.texts) < len(known) and not result.rows:
        wrong.append(f"{len(known) - len(result.texts)} rows are missing in silence")
    strict = (
        format.apart is not None
        and mutant.codec in RESUMABLE
        and not rules & {"ingest.not_jsonl", "ingest.malformed_csv"}
    )
    if mutant.plain is None:
        strict = strict and format.apart in ("line", "record")
    elif format.apart == "row":
        header = mutant.pieces[0].data
        strict = strict and mutant.plain.startswith(header) and not any(b'"' in gap for gap in gaps(mutant))
    if strict and (missed := {record.mark for record in whole if record.apart} & lost):
        wrong.append(f"{len(missed)} whole records apart from the damage are not kept ({sorted(rules)})")
    return wrong


def _peers(mutant: Mutant, result: Read, known: dict[str, str], differences: Counter[str]) -> list[str]:
    """What a second reader gives as it was before the damage must be kept, or the file have a row that accounts for it."""
    kept, whole = _marks(result), {record.mark for record in intact(mutant)}
    wrong = []
    for name, texts in _fuzz_peers.texts(mutant).items():
        same = {
            mark
            for mark, text in texts.items()
            if mark in known and _as_known(mutant.format, text, known[mark])
        }
        more, fewer = same - kept, kept - same
        differences["same"] += not more and not fewer
        differences[f"fewer records by {name} than by ingest"] += bool(fewer)
        if not more:
            continue
        rules = sorted({row["rule"] for row in result.rows})
        differences[f"more records by {name} than by ingest: {', '.join(rules)}"] += 1
        # What damage does to markup (a comment that does not end) hides text that is there.
        lost = more & whole if mutant.format in ("warc", "arc", "mediawiki") else more
        accounted = (
            rules or result.counters["pdf_hidden_characters"]
        )  # text that damage made invisible is counted
        if lost and not accounted:
            wrong.append(f"{name} reads {len(lost)} records that ingest loses in silence")
    return wrong


def _marks(result: Read) -> set[str]:
    return {mark for text in result.texts for mark in MARK.findall(text)}


def _as_known(format: str, text: str, known: str) -> bool:
    """Whether a second reader's text is the record's, up to what extraction takes off."""
    if format in ("warc", "arc", "html"):
        return " ".join(text.split()) in " ".join(known.split())
    if format in ("pdf", "epub", "docx"):  # the words around a mark
        return " ".join(text.split()) in " ".join(known.split())
    if format == "mediawiki":
        mark = MARK.search(text)
        return mark is not None and text[mark.start() :][:30] in known
    return " ".join(text.split()) == " ".join(known.split())
