"""Records that are conversations (`conversations: true` of a source), in any of the forms that a fine-tuning reads, as documents."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson

from corpusmill.pipeline.ingest.records import Reading, Rejected, shown_name
from corpusmill.pipeline.text.turns import text_of, turns_of
from corpusmill.schemas.conversation_lines import FIELDS, KEYS, read_row
from corpusmill.schemas.sources import RECORD_FORMATS

RULE = "ingest.no_conversation"


def take_text(record: dict[str, Any], reading: Reading) -> str:
    """Remove the fields that are the conversation, and return its turns as a text (`corpusmill.pipeline.text.turns`); raises `Wrong`."""
    for field in ("messages", "conversations"):  # in a table they may be a text of JSON
        if isinstance(value := record.get(field), str):
            with suppress(orjson.JSONDecodeError):
                record[field] = orjson.loads(value)
    line = read_row(record)
    for field in KEYS[line.format]:
        record.pop(field, None)
    reading.counters[f"conversations/{line.format}"] += 1
    reading.counters["conversations/behind_last_answer"] += len(line.rest)
    return text_of(turns_of(line))


def other_format(reading: Reading, format: str) -> Rejected | None:
    """One record for a whole file that has no records with fields."""
    if not reading.source.conversations or format in RECORD_FORMATS:
        return None
    detail = (
        f"{format} has no records with fields, as conversations are (allowed: {', '.join(RECORD_FORMATS)})"
    )
    return Rejected(reading.next(), RULE, detail)


def other_columns(names: Iterable[str], rows: int, reading: Reading) -> Rejected | None:
    """One record for a whole table without any of the columns that conversations have."""
    wrong = missing_fields(names)
    return Rejected(reading.next(), RULE, f"{wrong}; {rows} rows", float(rows)) if wrong else None


def missing_fields(names: Iterable[str]) -> str:
    """Why columns of these names hold no conversations; "" if they may."""
    names = list(names)
    if not set(FIELDS).isdisjoint(names):
        return ""
    return f"none of the fields {', '.join(FIELDS)} (fields: {', '.join(map(shown_name, names[:50]))[:300]})"
