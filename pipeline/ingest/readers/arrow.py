"""Arrow IPC: files (also Feather 2) and streams, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from corpusmill.pipeline.ingest.readers.arrow_messages import Messages
from corpusmill.pipeline.ingest.readers.expansion import slices
from corpusmill.pipeline.ingest.readers.parquet import (
    BATCH_ROWS,
    events,
    is_documents,
    is_text,
    readable,
    wanted,
    wrong_schema,
)
from corpusmill.pipeline.ingest.records import Event, Reading, Rejected
from corpusmill.pipeline.ingest.streams import Stream, read_up_to

# Of one batch, as stored and as decompressed: a writer that makes a batch of a whole table may come near.
BODY_BYTES = 512 << 20
FOOTER_BYTES = 64 << 20
_PADDING = 64  # bytes that may stand between the end mark and the footer


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    stream = reading.stream()
    in_file = stream.peek(8).startswith(b"ARROW1")
    if in_file:  # a stream between a mark and a footer
        stream.read(8)
    messages = Messages(stream, max(BODY_BYTES, 2 * reading.max_bytes))
    try:
        batches = pa.ipc.open_stream(pa.PythonFile(messages, mode="r"))
        schema = readable(batches.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        detail = f"no Arrow schema can be read ({messages.problem or type(error).__name__})"
        yield Rejected(reading.next(), "ingest.not_arrow", detail)
        return
    text_column = "text" if is_documents(reading, schema.names) else reading.source.text_column
    wrong = wrong_schema(schema, 0, partial(_string_columns, schema), text_column, reading)
    if wrong:
        yield wrong
        return
    reading.recognised = True
    names = [f.name for f in schema if f.name == text_column or wanted(f.type)]
    number = 0
    try:
        while (batch := next(batches, None)) is not None:
            yield from _refused(messages, reading)
            batch.validate(full=True)  # offsets of a damaged file lead anywhere
            for part in slices(batch.select(names), BATCH_ROWS):
                yield from events(part, text_column, reading)
            number = messages.batches
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        yield from _refused(messages, reading)
        if stream.damage is not None:
            raise stream.damage from None
        reason = messages.problem or type(error).__name__
        detail = f"record batch {number} cannot be read, nor what is behind it ({reason})"
        yield Rejected(reading.next(), "ingest.damaged", detail, float(number))
        return
    yield from _refused(messages, reading)
    if stream.damage is not None:
        raise stream.damage
    if problem := messages.problem or _wrong_end(stream, in_file, messages.marked):
        detail = f"behind record batch {messages.batches - 1}: {problem}"
        rule = "ingest.truncated" if "cut" in problem else "ingest.damaged"
        yield Rejected(reading.next(), rule, detail, float(messages.batches))


def _refused(messages: Messages, reading: Reading) -> Iterator[Rejected]:
    """A row of the ledger for each batch that was passed over."""
    for number, size in messages.refused:
        detail = f"record batch {number} takes {size} bytes; allowed are {messages.limit}"
        yield Rejected(reading.next(), "ingest.record_too_large", detail, float(size), float(messages.limit))
    messages.refused.clear()


def _wrong_end(stream: Stream, in_file: bool, marked: bool) -> str:
    """What is wrong behind the last message: more than the footer of a file, or no footer; "" if nothing is."""
    rest = read_up_to(stream, FOOTER_BYTES)
    if not in_file:
        return f"{len(rest)} bytes or more follow the end of the stream" if rest.strip(b"\0") else ""
    if not marked or not rest.endswith(b"ARROW1") or len(rest) < 10:
        return "the file is cut off before its end"
    footer = int.from_bytes(rest[-10:-6], "little")
    if not 0 <= len(rest) - 10 - footer <= _PADDING:
        return f"{len(rest) - 10} bytes follow the end mark, the footer has {footer}"
    return ""


def _string_columns(schema: pa.Schema) -> dict[str, int]:
    return {field.name: 0 for field in schema if is_text(field.type)}
