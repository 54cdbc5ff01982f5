"""Tables: Parquet, by batches out of its row groups, also our own document partitions (format `documents`)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest.conversations import other_columns
from corpusmill.pipeline.ingest.decoding import Undecodable
from corpusmill.pipeline.ingest.discover import Part
from corpusmill.pipeline.ingest.fields import columns_of, document, metadata, scalar, suggest
from corpusmill.pipeline.ingest.raw_file import RawFile
from corpusmill.pipeline.ingest.readers.parquet_fetch import Fetched
from corpusmill.pipeline.ingest.readers.parquet_pages import Unreadable, first_byte, pages
from corpusmill.pipeline.ingest.records import Batch, Event, Reading, Rejected
from corpusmill.schemas.tables import DOCUMENTS

BATCH_BYTES = 4 << 20  # decoded at a time, as the row group's average goes
BATCH_ROWS = 4_096
EXPANDED_BYTES = 256 << 20  # of a batch, if every row had the longest value that it may share with others
PAGE_BYTES = 256 << 20  # a page may expand to
FOOTER_BYTES = 64 << 20
CONTAINER_LIMIT = 250_000  # columns, row groups, or other entries of one list in the footer


def read(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    raw = reading.raw()
    footer = _footer_bytes(raw, reading.file.size)
    if footer > FOOTER_BYTES:
        detail = f"its footer has {footer} bytes, allowed are {FOOTER_BYTES}"
        yield Rejected(reading.next(), "ingest.not_parquet", detail, float(footer), float(FOOTER_BYTES))
        return
    fetched = None if reading.local else Fetched(raw, reading.file.size)
    try:
        # Buffered streams: a column chunk is never held whole.
        file = pq.ParquetFile(
            pa.PythonFile(fetched or raw, mode="r"), buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True,
            thrift_container_size_limit=CONTAINER_LIMIT,
        )  # fmt: skip
        schema = readable(file.schema_arrow)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        detail = f"the footer cannot be read ({type(error).__name__})"
        yield Rejected(reading.next(), "ingest.not_parquet", detail)
        return
    text_column = "text" if is_documents(reading, schema.names) else reading.source.text_column
    groups, rows = range(file.metadata.num_row_groups), file.metadata.num_rows
    if reading.file.part:
        groups = _groups_in(reading.file.part, file.metadata)
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    wrong = wrong_schema(schema, rows, partial(_text_sizes, file), text_column, reading)
    if wrong:
        yield wrong
        return
    names = [field.name for field in schema if field.name == text_column or wanted(field.type)]
    for group in groups:
        yield from _row_group(file, group, names, text_column, reading, fetched)
    if fetched:
        fetched.close()
    if groups.stop < file.metadata.num_row_groups:
        return
    promised = file.metadata.num_rows
    held = sum(file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups))
    if promised > held:
        detail = (
            f"the footer promises {promised} rows, its row groups {held}: {promised - held} rows are missing"
        )
        yield Rejected(reading.next(), "ingest.damaged", detail, float(promised - held))


def _groups_in(part: Part, about: pq.FileMetaData) -> range:
    """The row groups that begin in a part of the file."""
    begins = [
        min(first_byte(group.column(place)) for place in range(group.num_columns))
        for group in map(about.row_group, range(about.num_row_groups))
    ]
    return range(bisect_left(begins, part.begin), bisect_left(begins, part.end))


def _row_group(
    file: pq.ParquetFile,
    group: int,
    names: list[str],
    text_column: str,
    reading: Reading,
    fetched: Fetched | None,
) -> Iterator[Event]:
    about = file.metadata.row_group(group)
    promised = max(0, about.num_rows)
    first, done = reading.records, 0
    try:
        rule, problem, shared = _looked_at(about, names, reading, fetched)
        if rule:
            yield _lost(f"row group {group}: {problem}", rule, promised, reading)
            return
        average = max(1, about.total_byte_size // max(1, promised))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // average, EXPANDED_BYTES // max(1, shared)))
        for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names, use_threads=False):
            done += len(batch)
            yield from events(batch, text_column, reading)
        problem = f"it holds {done} of {promised} rows"
    except WorkError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the latter: of a column's name
        reading.records = first + done  # a batch that was given up on half way counts as a whole
        problem = f"its last {max(0, promised - done)} rows cannot be decoded ({_reason(error)})"
    if done < promised:
        yield _lost(f"row group {group}: {problem}", "ingest.damaged", promised - done, reading)


def _lost(detail: str, rule: str, rows: int, reading: Reading) -> Rejected:
    """One record for rows that are lost together; the rows after them keep their numbers."""
    record = reading.next()
    reading.records += max(rows - 1, 0)
    return Rejected(record, rule, detail, float(rows))


def _reason(error: Exception) -> str:
    return "a page does not have its checksum" if "CRC" in str(error) else type(error).__name__


def _looked_at(
    about: pq.RowGroupMetaData, names: Collection[str], reading: Reading, fetched: Fetched | None
) -> tuple[str, str, int]:
    """(rule, problem, bytes that rows may share) of the pages of a row group; without a rule it may be decoded.

    Refused is a page for which the decoder would take more memory than there is for it: it allocates what a header claims
    before it reads, so damage of a header is enough. Many rows may have one long value of a dictionary, or a prefix of the value
    before them: the bytes of the largest such page. Of a file that is not here (`fetched`) the columns are fetched first; only the sizes
    in the footer are looked at if they are too long for that.
    """
    limit = max(PAGE_BYTES, 2 * reading.max_bytes)
    shared = 0
    columns = [about.column(place) for place in range(about.num_columns)]
    columns = [column for column in columns if column.path_in_schema.split(".")[0] in names]
    if fetched and not fetched.fetch([(first_byte(one), one.total_compressed_size) for one in columns]):
        columns = [column for column in columns if column.total_uncompressed_size > limit]
    for column in columns:
        start = first_byte(column)
        what = f"a page of column '{column.path_in_schema}'"
        prefixes = "DELTA_BYTE_ARRAY" in column.encodings
        opened = nullcontext(fetched) if fetched else reading.open()
        with opened as raw, suppress(Unreadable):  # the decoder stops there, too
            for number, page in enumerate(pages(raw, start, column.total_compressed_size)):
                if page.stored > max(limit, column.total_compressed_size):
                    detail = f"{what} claims {page.stored} bytes, more than its column has"
                    return "ingest.damaged", detail, shared
                if max(page.stored, page.expanded) > limit:
                    detail = (
                        f"{what} expands from {page.stored} to {page.expanded} bytes; allowed are {limit}"
                    )
                    return "ingest.record_too_large", detail, shared
                if "BYTE_ARRAY" in column.physical_type and (
                    prefixes or (column.has_dictionary_page and not number)
                ):
                    shared = max(shared, page.expanded)
    return "", "", shared


def _footer_bytes(raw: RawFile, size: int) -> int:
    """Length of the footer, by the file's last bytes; 0 if it has none."""
    if size < 12:
        return 0
    raw.seek(size - 8)
    tail = raw.read(8)
    raw.go_to(0)
    return int.from_bytes(tail[:4], "little") if tail[4:] == b"PAR1" else 0


def readable(schema: pa.Schema) -> pa.Schema:
    """The schema; raises `UnicodeDecodeError` where the name of a column is damaged."""
    pending = list(schema)
    while pending:
        field = pending.pop()
        _ = field.name
        pending += [field.type.field(n) for n in range(field.type.num_fields)]
    return schema


def is_documents(reading: Reading, names: Collection[str]) -> bool:
    """Whether a file with columns of these names holds document partitions."""
    if reading.file.format == "documents":
        return True
    own = set(DOCUMENTS.names) <= set(names) and reading.source.format == "auto"
    return own and not reading.source.conversations


def _nested(schema: pa.Schema, text_column: str, reading: Reading) -> bool:
    """Whether the text is a field of a column, strings of a list to be joined, or a conversation: such rows are taken one by one."""
    if reading.source.conversations:
        return True
    if text_column in schema.names:
        kind = schema.field(text_column).type
        return reading.source.text_join is not None and (
            pa.types.is_list(kind) or pa.types.is_large_list(kind)
        )
    parent, dot, _ = text_column.partition(".")
    return bool(dot) and parent in schema.names and pa.types.is_nested(schema.field(parent).type)


def wrong_schema(
    schema: pa.Schema, rows: int, sizes: Callable[[], Mapping[str, int]], text_column: str, reading: Reading
) -> Rejected | None:
    """One record for a whole file that cannot hold what was asked of it."""
    columns = ", ".join(f"{field.name} ({field.type})"[:80] for field in schema)[:600]
    if reading.file.format == "documents":
        missing = [name for name in DOCUMENTS.names if name not in schema.names]
        if missing:
            detail = f"no document partition, columns missing: {', '.join(missing)} (columns: {columns}); {rows} rows"
            return Rejected(reading.next(), "ingest.wrong_schema", detail, float(rows))
    if reading.source.conversations:
        return other_columns(schema.names, rows, reading)
    if _nested(schema, text_column, reading):
        return None
    if text_column not in schema.names:
        hint = suggest(text_column, sizes())
        detail = f"no column '{text_column}'{hint} (columns: {columns}); {rows} rows"
        return Rejected(reading.next(), "ingest.no_text", detail, float(rows))
    kind = schema.field(text_column).type
    if not is_text(kind):
        detail = f"column '{text_column}' is {kind}, not text; {rows} rows"
        return Rejected(reading.next(), "ingest.text_type", detail, float(rows))
    return None


def _text_sizes(file: pq.ParquetFile) -> dict[str, int]:
    """Columns of text with their stored bytes, before compression."""
    sizes: Counter[str] = Counter()
    for group in range(file.metadata.num_row_groups):
        about = file.metadata.row_group(group)
        for place in range(about.num_columns):
            column = about.column(place)
            with suppress(UnicodeDecodeError):
                sizes[column.path_in_schema] += column.total_uncompressed_size
    return {field.name: sizes[field.name] for field in file.schema_arrow if is_text(field.type)}


def is_text(kind: pa.DataType) -> bool:
    return _stringlike(kind) or (pa.types.is_dictionary(kind) and _stringlike(kind.value_type))


def _stringlike(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def wanted(kind: pa.DataType) -> bool:
    """Anything but binary columns, which are no metadata; fixed-size ones may be ids."""
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def events(batch: pa.RecordBatch, text_column: str, reading: Reading) -> Iterator[Event]:
    table = pa.Table.from_batches([batch])
    if _nested(batch.schema, text_column, reading):
        for row in table.to_pylist():
            present = {name: value for name, value in row.items() if value is not None}
            yield document(present, f"row {reading.records}", float(reading.records), reading)
        return
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
    good: list[tuple[int, str]] = []
    notes: dict[int, str] = {}
    for row in range(len(table)):
        event = _single(row, raw, table, first, reading)
        note = reading.take_note()
        if isinstance(event, str):
            if note:
                notes[len(good)] = note
            good.append((row, event))
        else:
            yield event
    if good:
        rows = pa.array([row for row, _ in good], pa.int64())
        texts = pa.array([text for _, text in good], pa.large_string())
        whole = _columns(table.drop_columns([text_column]).take(rows), texts, first, rows, reading)
        yield Batch(whole, notes)


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
        return reading.decode(value)
    except Undecodable as error:
        detail = f"{error.reason} of the text"
        return Rejected(record, "ingest.undecodable", detail, float(error.position), **about)


def _columns(
    rest: pa.Table, text: pa.LargeStringArray, first: int, rows: pa.Int64Array | None, reading: Reading
) -> pa.Table:
    """The batch in our columns. Document partitions keep ids; other files get record numbers and metadata."""
    if is_documents(reading, {*rest.column_names, "text"}):
        kept = [name for name in DOCUMENTS.names if name not in ("text", "text_hash")]
        table = rest.select(kept).append_column("text", text)
        return table.cast(pa.schema([DOCUMENTS.field(name) for name in table.column_names]))
    numbers = pa.array(np.arange(first, first + len(text))) if rows is None else pc.add(rows, first)
    arrays: dict[str, pa.Array] = {"record": numbers.cast(pa.string()), "text": text}
    for ours, theirs in columns_of(reading.source).items():
        if theirs not in rest.column_names:
            continue
        arrays[ours] = _scalars(rest[theirs])
        rest = rest.drop_columns([theirs])
    if rest.num_columns:
        records = ({k: v for k, v in record.items() if v is not None} for record in rest.to_pylist())
        arrays["metadata"] = pa.array([metadata(record, reading.counters) for record in records], pa.string())
    return pa.table(arrays)


def _scalars(column: pa.ChunkedArray) -> pa.StringArray:
    """`corpusmill.pipeline.ingest.fields.scalar` of each value. Raises `UnicodeDecodeError`."""
    values = column.combine_chunks()
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        with suppress(pa.ArrowInvalid):  # it is not UTF-8, or longer than strings may be together
            checked = values.cast(pa.large_binary()).cast(pa.large_string()).cast(pa.string())
            return pc.replace_with_mask(checked, pc.equal(checked, ""), pa.scalar(None, pa.string()))
    return pa.array([scalar(value) for value in values.to_pylist()], pa.string())
