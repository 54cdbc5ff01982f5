"""Line deduplication of small corpora from end to end, with everything checked that holds for any input."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.lines.line_deduplication import find
from corpusmill.pipeline.dedup.stage import cut
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Scheduler, check_conservation
from corpusmill.schemas.dedup import LineParams
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.tables import SPANS
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, partitions

LINES = "dedup.lines"


@dataclass
class Found:
    """What a run found, and what it left."""

    folder: Folder
    files: list[PublishedFile]
    counters: dict[str, int]
    spans: pa.Table  # of all partitions, sorted
    texts: dict[bytes, str] = field(default_factory=dict)  # of the documents that stay
    removed: set[bytes] = field(default_factory=set)


def run(
    root: Folder, docs: Sequence[Doc], params: LineParams, count: int = 1, *,
    priority: Mapping[str, int] | None = None, only: Sequence[str] | None = None,
    scheduler: Scheduler | None = None, memory_mb: int = 64, shuffle: int | None = None,
) -> Found:  # fmt: skip
    """`find` over `docs` in `count` partitions, and the cutting of what it found."""
    docs = list(docs)
    if shuffle is not None:
        random.Random(shuffle).shuffle(docs)
    parts = partitions(root / "in", docs, count)
    kept = [Kept(index, part, None, "") for index, part in enumerate(parts)]
    folder = root / "dedup"
    files, counters = find(
        folder, kept, params, priority or {}, only, scheduler or Serial(), memory_mb, "key"
    )
    assert [file.path for file in files] == [f"spans/lines/{part.name}.parquet" for part in parts]
    found = Found(folder, files, counters, SPANS.empty_table())
    cut_docs, tables = 0, [SPANS.empty_table()]
    for file, part in zip(files, parts, strict=True):
        spans = read_table(folder / file.path, file.xxh3)
        assert spans.schema.equals(SPANS) and file.rows == len(spans)
        assert spans.equals(spans.sort_by([("doc_id", "ascending"), ("offset", "ascending")]))
        tables.append(spans)
        incoming = part.read()
        outcome = cut(incoming, {LINES: spans}, {LINES: params.min_left})
        check_conservation("dedup", len(incoming), outcome)
        for row in outcome.kept.to_pylist():
            found.texts[row["doc_id"]] = row["text"]
        for row in outcome.decisions.to_pylist():
            if row["outcome"] == "removed":
                found.removed.add(row["doc_id"])
            assert {edit["kind"] for edit in row["edits"]} == {LINES}
        cut_docs += len(outcome.decisions)
    found.spans = pa.concat_tables(tables).sort_by([("doc_id", "ascending"), ("offset", "ascending")])
    assert found.texts.keys() | found.removed == {doc.id for doc in docs}
    assert counters["documents_with_cut_lines"] == cut_docs
    assert counters["line_bytes_cut"] == sum(found.spans["length"].to_pylist())
    per_source = {name: value for name, value in counters.items() if name.startswith("source/")}
    assert sum(per_source.values()) == counters["line_bytes_cut"]
    if only is not None:
        assert per_source.keys() <= {f"source/{name}/line_bytes_cut" for name in only}
    return found


def after(docs: Sequence[Doc], found: Found) -> list[Doc]:
    """The corpus as a run left it."""
    return [Doc(found.texts[d.id], d.name, d.source) for d in docs if d.id in found.texts]
