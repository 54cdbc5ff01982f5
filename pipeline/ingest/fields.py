"""Records with fields (a JSON object, a row of a table) as documents: the text, what has a column of its own, the rest as metadata."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from corpusmill.pipeline.ingest import conversations
from corpusmill.pipeline.ingest.records import Document, Reading, Rejected, shown_name
from corpusmill.pipeline.ingest.text_cleaning import scrub_surrogates
from corpusmill.schemas.conversation_lines import Wrong
from corpusmill.schemas.sources import Source

METADATA_BYTES = 16 << 10  # more is dropped, and counted


def scalar(value: Any) -> str | None:
    """A value as an id, URL or date; None for what is none."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return str(value)
    return str(value.isoformat()) if hasattr(value, "isoformat") else None


def columns_of(source: Source) -> dict[str, str]:
    """Our column -> the field of the record that fills it."""
    return {
        "source_id": source.id_column or "id",
        "url": source.url_column or "url",
        "date": source.date_column or "date",
    }


class Absent(Exception):
    """The record has no such field."""


def take_text(record: dict[str, Any], path: str, join: str | None) -> Any:
    """Remove and return the field `path`, or the one that its parts between dots lead to; raises `Absent`.

    With `join`, strings of a list, and fields of a list's items, are joined; without it they are returned as they are.
    """
    if path in record:
        return _joined(record.pop(path), join)
    *parents, name = path.split(".")
    places: list[Any] = [record]
    for parent in parents:
        below = (place.get(parent) for place in places if isinstance(place, dict))
        places = [
            item
            for value in below
            for item in (value if isinstance(value, list) and join is not None else [value])
        ]
    found = [place.pop(name) for place in places if isinstance(place, dict) and name in place]
    if not found:
        raise Absent
    return _joined(found[0] if len(found) == 1 else found, join)


def _joined(value: Any, join: str | None) -> Any:
    if join is None or not isinstance(value, list):
        return value
    strings = [item for item in value if item is not None]
    return join.join(strings) if all(isinstance(item, str) for item in strings) else value


def texts_in(record: dict[str, Any], above: str = "") -> dict[str, int]:
    """The fields of a record that hold strings, by their paths, with the length of each."""
    found: dict[str, int] = {}
    for name, value in record.items():
        if isinstance(value, str):
            found[above + scrub_surrogates(name)] = len(value)
        elif isinstance(value, dict) and above.count(".") < 4:
            found |= texts_in(value, f"{above}{scrub_surrogates(name)}.")
    return found


def suggest(wanted: str, texts: Mapping[str, int]) -> str:
    """`"; did you mean 'x'?"` for the field of text that `wanted` may be: one named nearly so, else the one with most text.

    `texts`: fields that hold strings, with how much text they hold. `""` when there is none.
    """
    texts = {name: size for name, size in texts.items() if shown_name(name) == name}
    close = difflib.get_close_matches(wanted, texts, n=1, cutoff=0.75)
    best = close[0] if close else max(texts, key=lambda name: (texts[name], name), default=None)
    return f"; did you mean '{best}'?" if best is not None else ""


def take(record: dict[str, Any], columns: dict[str, str]) -> dict[str, str | None]:
    """Remove and return the fields that have a column of their own."""
    taken: dict[str, str | None] = {}
    for column, name in columns.items():
        value = scalar(record.get(name))
        if value is not None:
            del record[name]
        taken[column] = value
    return taken


def metadata(record: dict[str, Any], counters: Counter[str]) -> str | None:
    """What is left of a record as JSON; None, counted, if that is more than `METADATA_BYTES`."""
    if not record:
        return None
    try:
        dumped = orjson.dumps(record, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        try:
            dumped = json.dumps(record, default=_plain).encode("ascii")
        except (TypeError, ValueError, RecursionError):
            counters["metadata_dropped"] += 1
            return None
    if len(dumped) > METADATA_BYTES:
        counters["metadata_dropped"] += 1
        return None
    return dumped.decode("utf-8")


def joined(first: str, second: str | None, counters: Counter[str]) -> str | None:
    """The metadata of both, JSON objects; of two values of one name the second's. If that is more than `METADATA_BYTES`, the
    second alone, and counted."""
    if not second:
        return first
    both = orjson.dumps({**orjson.loads(first), **orjson.loads(second)})
    if len(both) > METADATA_BYTES:
        counters["metadata_dropped"] += 1
        return second
    return both.decode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        raise TypeError("binary values are no metadata")
    return str(value)


_KINDS = {list: "array", dict: "object", bool: "boolean", int: "number", float: "number", type(None): "null"}


def kind_of(value: Any) -> str:
    """What JSON calls a value."""
    return _KINDS.get(type(value), "string")


def document(record: dict[str, Any], where: str, offset: float, reading: Reading) -> Document | Rejected:
    """A record with fields as a document: the text column, the columns of ids, address and date, and the rest as metadata.

    `where` tells its place in the file, for the reason why it has no text.
    """
    source = reading.source
    text: Any
    try:
        if source.conversations:
            text, rule = conversations.take_text(record, reading), conversations.RULE
        else:
            text, rule = take_text(record, source.text_column, source.text_join), "ingest.text_type"
        detail = ""
        if not isinstance(text, str):
            detail = f"field '{source.text_column}' holds a JSON {kind_of(text)} in place of a string"
            if isinstance(text, list) and source.text_join is None:
                detail += " (text_join: joins its strings)"
    except Wrong as wrong:
        text, rule, detail = None, conversations.RULE, str(wrong)
    except Absent:
        text, rule = None, "ingest.no_text"
        fields = ", ".join(sorted(map(shown_name, record))[:20])
        hint = suggest(source.text_column, texts_in(record))
        detail = f"no field '{source.text_column}'{hint} (fields: {fields[:300]})"
    found = take(record, columns_of(source))
    if isinstance(text, str):
        return Document(reading.next(), text, **found, metadata=metadata(record, reading.counters))
    identity: dict[str, Any] = {name: found[name] for name in ("source_id", "url")}
    return Rejected(reading.next(), rule, f"{detail}, {where}", offset, **identity)
