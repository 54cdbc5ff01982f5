"""What publishing documents costs: levels of zstd, rows in a group, statistics and dictionaries; and full copies of what a stage
keeps beside a mask over what it was given.

    python -m bench publishing

A run of the default recipe on real text with copies; then its own tables are written and read again with other settings, one
thread, in memory, the least of several times. As a mask, a stage would write which rows it keeps and the texts that it changed; who
reads its documents then reads all of `ingest`'s, and applies the masks of every stage between.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import natural
from bench.whole_run import ours, prepared, write
from corpusmill.pipeline.engine.publish import parse_table

MEGABYTES = 60.0
TIMES = 5  # of each measurement; the least counts, as a neighbour on the machine can only add to it
OURS: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "write_statistics": True}
ROWS = 16_384
STAGES = ("filter", "dedup", "redact")  # each publishes what it keeps of the one before


class Setting(NamedTuple):
    """A way to write a table."""

    name: str
    options: dict[str, Any]
    rows: int = ROWS


SETTINGS = (
    Setting("as it is: level 1, 16,384 rows in a group", OURS),
    Setting("level -3", {**OURS, "compression_level": -3}),
    Setting("level 3", {**OURS, "compression_level": 3}),
    Setting("level 6", {**OURS, "compression_level": 6}),
    Setting("lz4", {"compression": "lz4", "write_statistics": True}),
    Setting("4,096 rows in a group", OURS, 4_096),
    Setting("65,536 rows in a group", OURS, 65_536),
    Setting("no statistics", {**OURS, "write_statistics": False}),
    Setting("no dictionaries", {**OURS, "use_dictionary": False}),
    Setting("neither", {**OURS, "write_statistics": False, "use_dictionary": False}),
)


def written(table: pa.Table, setting: Setting) -> bytes:
    """The table as a Parquet file."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=True, **setting.options) as writer:
        writer.write_table(table, row_group_size=setting.rows)
    return sink.getvalue()


def least(function: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds at least, what it returns)."""
    best, found = float("inf"), None
    for _ in range(TIMES):
        start = time.process_time()
        found = function()
        best = min(best, time.process_time() - start)
    return best, found


def tables(folder: Path) -> list[pa.Table]:
    """Those of all partitions, each as one chunk a column."""
    return [pq.read_table(file).combine_chunks() for file in sorted(folder.glob("*.parquet"))]


def settings(label: str, those: list[pa.Table]) -> None:
    """The table of settings, for tables of one kind."""
    rows, columns = sum(len(one) for one in those), those[0].num_columns
    print(f"\n{label}: {rows:,} rows of {columns} columns, in {len(those)} files.\n")
    print(
        "| setting | written, CPU s | ratio | read, CPU s | ratio | MB | ratio |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    first: tuple[float, float, int] | None = None
    for setting in SETTINGS:
        wrote, files = least(lambda setting=setting: [written(one, setting) for one in those])  # type: ignore[misc]
        read, _ = least(lambda files=files: [parse_table(one) for one in files])  # type: ignore[misc]
        size = sum(map(len, files))
        first = first or (wrote, read, size)
        print(
            f"| {setting.name} | {wrote:.3f} | {wrote / first[0]:.2f} | {read:.3f} | {read / first[1]:.2f} | {size / 1e6:.2f} |"
            f" {size / first[2]:.2f} |",
            flush=True,
        )


class Kept(NamedTuple):
    """What a stage kept of one partition, as a mask over the documents before it."""

    rows: pa.Array  # int32
    changed: pa.Array  # int32: places among these whose text it changed
    texts: pa.Array

    @classmethod
    def of(cls, before: pa.Table, after: pa.Table) -> Kept:
        rows = pc.index_in(after["doc_id"], before["doc_id"].combine_chunks()).combine_chunks()
        other = np.asarray(pc.not_equal(before["text"].take(rows), after["text"]))
        changed = pa.array(np.flatnonzero(other), pa.int32())
        return cls(rows, changed, after["text"].take(changed).combine_chunks())

    def written(self) -> bytes:
        kept = written(pa.table({"row": self.rows}), SETTINGS[0])
        return kept + written(pa.table({"place": self.changed, "text": self.texts}), SETTINGS[0])

    def apply(self, before: pa.Table) -> pa.Table:
        after = before.take(self.rows)
        if not len(self.changed):
            return after
        mask = np.zeros(len(after), np.bool_)
        mask[np.asarray(self.changed)] = True
        text = pc.replace_with_mask(after["text"].combine_chunks(), pa.array(mask), self.texts)
        return after.set_column(after.schema.get_field_index("text"), "text", text)


def masks(out: Path) -> None:
    """The table of copies beside masks, by stage."""
    first = tables(out / "ingest/documents")
    ingested = [written(one, SETTINGS[0]) for one in first]
    before, chain = first, list[list[Kept]]()
    print(
        "\nCopies and masks. As a mask a stage's documents are read through those of all stages before it; a copy costs less in all from"
        " so many reads on as the last column says.\n"
    )
    print(
        "| stage | documents | of those before | texts changed | copy written, CPU s | MB | copy read, CPU s | mask written, CPU s | MB |"
        " read through masks, CPU s | reads |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for stage in STAGES:
        after = tables(out / stage / "documents")
        mine = [Kept.of(*pair) for pair in zip(before, after, strict=True)]
        chain.append(mine)
        wrote, files = least(lambda after=after: [written(one, SETTINGS[0]) for one in after])  # type: ignore[misc]
        read, _ = least(lambda files=files: [parse_table(one) for one in files])  # type: ignore[misc]
        masked, small = least(lambda mine=mine: [one.written() for one in mine])  # type: ignore[misc]
        through, made = least(lambda: _through(ingested, chain))
        for one, wanted in zip(made, after, strict=True):
            assert one["text"].equals(wanted["text"]) and one["doc_id"].equals(wanted["doc_id"])
        documents, given = sum(map(len, after)), sum(map(len, before))
        pays = (wrote - masked) / (through - read) if through > read else float("inf")
        print(
            f"| {stage} | {documents:,} | {documents / given:.0%} | {sum(len(one.changed) for one in mine):,} | {wrote:.3f} |"
            f" {sum(map(len, files)) / 1e6:.2f} | {read:.3f} | {masked:.3f} | {sum(map(len, small)) / 1e6:.2f} | {through:.3f} | {pays:.1f} |",
            flush=True,
        )
        before = after


def _through(ingested: list[bytes], chain: list[list[Kept]]) -> list[pa.Table]:
    found = []
    for number, data in enumerate(ingested):
        table = parse_table(data)
        for stage in chain:
            table = stage[number].apply(table)
        found.append(table)
    return found


def main() -> None:
    """Print the tables."""
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    with prepared() as folder:
        documents, megabytes = write(folder / "source", MEGABYTES, folder / "scratch")
        out = folder / "out"
        recipe = {"stages": ["ingest", "filter", "dedup", "redact"]}
        ours(folder, recipe, folder / "source", out, 2)
        print(f"{documents:,} documents, {megabytes:.0f} MB of text.")
        settings("Documents (`ingest`)", tables(out / "ingest/documents"))
        settings("Signals (`filter`)", tables(out / "filter/signals"))
        masks(out)


if __name__ == "__main__":
    main()
