"""The fields of a structured record (JSON object, Parquet row) beside its text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import orjson

from corpusmill.schemas.recipe import Source

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


def take(record: dict[str, Any], columns: dict[str, str]) -> dict[str, str | None]:
    """Remove and return the fields that have a column of their own."""
    taken: dict[str, str | None] = {}
    for column, field in columns.items():
        value = scalar(record.get(field))
        if value is not None:
            del record[field]
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


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        raise TypeError("binary values are no metadata")
    return str(value)
