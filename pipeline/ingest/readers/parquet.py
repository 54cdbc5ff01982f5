"""Parquet, by batches out of its row groups; also our own document partitions (format `documents`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.errors import WorkError, nearest
from corpusmill.pipeline.ingest.records import Batch, Event, Reading, Rejected, columns_of, metadata, scalar
from corpusmill.pipeline.ingest.text_cleaning import Undecodable, decode
from corpusmill.schemas.tables import DOCUMENTS

BATCH_BYTES = 4 << 20  # decoded at a time, as the row group's average goes
BATCH_ROWS = 4_096


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    try:
        # Buffered streams: a column chunk is never held whole.
        file = pq.ParquetFile(pa.PythonFile(reading.raw(), mode="r"), buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        detail = f"the footer cannot be read ({type(error).__name__})"
        yield Rejected(reading.next(), "ingest.not_parquet", detail)
        return
    schema = file.schema_arrow
    text_column = "text" if _is_documents(reading, schema.names) else reading.source.text_column
    wrong = _wrong_schema(schema, text_column, file.metadata.num_rows, reading)
    if wrong:
        yield wrong
        return
    names = [field.name for field in schema if field.name == text_column or _wanted(field.type)]
    for group in range(file.metadata.num_row_groups):
        about = file.metadata.row_group(group)
        average = max(1, about.total_byte_size // max(1, about.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // average))
        done = 0
        try:
            for batch in file.iter_batches(
                batch_size=rows, row_groups=[group], columns=names, use_threads=False
            ):
                done += len(batch)
                yield from _events(batch, text_column, reading)
        except WorkError:
            raise
        except (pa.ArrowException, OSError) as error:
            lost = about.num_rows - done
            record = reading.next()
            reading.records += max(lost - 1, 0)  # the rows after it keep their numbers
            detail = f"row group {group}: its last {lost} rows cannot be decoded ({type(error).__name__})"
            yield Rejected(record, "ingest.damaged", detail, float(lost))


def _is_documents(reading: Reading, names: Collection[str]) -> bool:
    """Whether a file with columns of these names holds document partitions."""
    if reading.file.format == "documents":
        return True
    return set(DOCUMENTS.names) <= set(names) and reading.source.format == "auto"


def _wrong_schema(schema: pa.Schema, text_column: str, rows: int, reading: Reading) -> Rejected | None:
    """One record for a whole file that cannot hold what was asked of it."""
    columns = ", ".join(f"{field.name} ({field.type})"[:80] for field in schema)[:600]
    if reading.file.format == "documents":
        missing = [name for name in DOCUMENTS.names if name not in schema.names]
        if missing:
            detail = f"no document partition, columns missing: {', '.join(missing)} (columns: {columns}); {rows} rows"
            return Rejected(reading.next(), "ingest.wrong_schema", detail, float(rows))
    if text_column not in schema.names:
        detail = (
            f"no column '{text_column}'{nearest(text_column, schema.names)} (columns: {columns}); {rows} rows"
        )
        return Rejected(reading.next(), "ingest.no_text", detail, float(rows))
    kind = schema.field(text_column).type
    if not (_stringlike(kind) or (pa.types.is_dictionary(kind) and _stringlike(kind.value_type))):
        detail = f"column '{text_column}' is {kind}, not text; {rows} rows"
        return Rejected(reading.next(), "ingest.text_type", detail, float(rows))
    return None


def _stringlike(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _wanted(kind: pa.DataType) -> bool:
    """Anything but binary columns, which are no metadata; fixed-size ones may be ids."""
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _events(batch: pa.RecordBatch, text_column: str, reading: Reading) -> Iterator[Event]:
    table = pa.Table.from_batches([batch])
    text = table[text_column].combine_chunks()
    if pa.types.is_dictionary(text.type):
        text = text.dictionary_decode()
    raw = text.cast(pa.large_string() if pa.types.is_string_view(text.type) else text.type).cast(
        pa.large_binary()
    )
    first = reading.records
    reading.records += len(table)
    sizes = pc.binary_length(raw)
    fine = pc.and_(raw.is_valid(), pc.fill_null(pc.less_equal(sizes, reading.max_bytes), False))
    if pc.all(fine).as_py() and (clean := _valid_utf8(raw)) is not None:
        yield Batch(_columns(table.drop_columns([text_column]), clean, first, None, reading))
        return
    # Rare: some row has no text, too much, or bytes that are no UTF-8. These go one by one.
    good = []
    for row in range(len(table)):
        event = _single(row, raw, table, first, reading)
        if isinstance(event, str):
            good.append((row, event))
        else:
            yield event
    if good:
        rows = pa.array([row for row, _ in good], pa.int64())
        texts = pa.array([text for _, text in good], pa.large_string())
        yield Batch(_columns(table.drop_columns([text_column]).take(rows), texts, first, rows, reading))


def _valid_utf8(raw: pa.LargeBinaryArray) -> pa.LargeStringArray | None:
    try:
        return raw.cast(pa.large_string())  # checks every byte
    except pa.ArrowInvalid:
        return None


def _single(
    row: int, raw: pa.LargeBinaryArray, table: pa.Table, first: int, reading: Reading
) -> str | Rejected:
    """The text of one row, or why there is none."""
    columns = columns_of(reading.source)
    about: dict[str, Any] = {
        ours: scalar(table[theirs][row].as_py())
        for ours, theirs in columns.items()
        if theirs in table.column_names and ours in ("source_id", "url")
    }
    record = str(first + row)
    value = raw[row].as_py()
    if value is None:
        return Rejected(record, "ingest.no_text", "the text is null", **about)
    if len(value) > reading.max_bytes:
        detail = f"text of {len(value)} bytes; the longest allowed is {reading.max_bytes}"
        return reading.too_large(record, detail, len(value), **about)
    try:
        decoded = decode(value)
    except Undecodable as error:
        detail = f"{error.reason} of the text"
        return Rejected(record, "ingest.undecodable", detail, float(error.position), **about)
    reading.count_repair(decoded.repaired)
    return decoded.text


def _columns(
    rest: pa.Table, text: pa.LargeStringArray, first: int, rows: pa.Int64Array | None, reading: Reading
) -> pa.Table:
    """The batch in our columns. Document partitions keep ids; other files get record numbers and metadata."""
    if _is_documents(reading, {*rest.column_names, "text"}):
        kept = [name for name in DOCUMENTS.names if name not in ("text", "text_hash")]
        table = rest.select(kept).append_column("text", text)
        return table.cast(pa.schema([DOCUMENTS.field(name) for name in table.column_names]))
    numbers = range(first, first + len(text)) if rows is None else [first + row for row in rows.to_pylist()]
    arrays: dict[str, pa.Array] = {"record": pa.array([str(n) for n in numbers], pa.string()), "text": text}
    for ours, theirs in columns_of(reading.source).items():
        if theirs not in rest.column_names:
            continue
        values = [scalar(value) for value in rest[theirs].to_pylist()]
        arrays[ours] = pa.array(values, pa.string())
        rest = rest.drop_columns([theirs])
    if rest.num_columns:
        records = ({k: v for k, v in record.items() if v is not None} for record in rest.to_pylist())
        arrays["metadata"] = pa.array([metadata(record, reading.counters) for record in records], pa.string())
    return pa.table(arrays)
