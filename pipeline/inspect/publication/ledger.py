"""The ledger as it may go out: what became of every record and why, without anything that names the record but its id."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import Checked, read_table, write_tables
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.publication.destination import Written, make_file
from corpusmill.pipeline.inspect.publication.finished import LEDGER, Finished
from corpusmill.pipeline.inspect.publication.lines import hex_ids
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.publication import PUBLISHED_LEDGER, PublishedLedger
from corpusmill.schemas.tables import ID

VERSION = "1"
FILE_BYTES = 128 << 20  # of the run's ledger that make one file


def publish_ledger(
    found: Finished, dest: Folder, scheduler: Scheduler
) -> tuple[PublishedLedger, list[Written]]:
    """Write the ledger of a run, and count its rows."""
    groups: list[list[PublishedFile]] = []
    held = 0  # bytes of the last group
    for file in found.files(LEDGER):
        if not groups or held + file.bytes > FILE_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += file.bytes
    jobs = [
        (f"ledger/ledger-{number:05}-of-{len(groups):05}.parquet", group)
        for number, group in enumerate(groups)
    ]
    written = scheduler.map(partial(_write, dest, found.folders[LEDGER]), jobs, "publish: ledger")
    return PublishedLedger(
        rows=sum(one.rows for one in written), files=[one.path for one in written]
    ), written


def _write(dest: Folder, ledger: Folder, job: tuple[str, list[PublishedFile]]) -> Written:
    path, files = job

    def fill(sink: Checked) -> tuple[int, int]:
        tables = (public_rows(read_table(ledger / file.path, file.xxh3)) for file in files)
        return write_tables(sink, tables, PUBLISHED_LEDGER), 0

    return make_file(dest, path, hash_json([VERSION, [file.xxh3 for file in files]]), fill)


def public_rows(rows: pa.Table) -> pa.Table:
    """Rows of a ledger with the columns that may go out."""
    columns = [
        hex_ids(rows[field.name]) if rows.schema.field(field.name).type == ID else rows[field.name]
        for field in PUBLISHED_LEDGER
    ]
    return pa.table(columns, schema=PUBLISHED_LEDGER)
