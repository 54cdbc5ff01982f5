"""Documents taken out of an index: their records leave its files, and the rest is as if they had never come.

What a text's copies share (bands, shingle set) stays while one of them does, at the location of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.dedup.index.index_file import NAMES, marker, name_files, table_of
from corpusmill.pipeline.dedup.job import BAND, HASH, I64, Job, copy_fields
from corpusmill.pipeline.dedup.key_groups import find
from corpusmill.pipeline.dedup.quality.recall import SAMPLE
from corpusmill.pipeline.dedup.sketch import group_files
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.requested_documents import matches
from corpusmill.pipeline.engine.shuffle import Done, File, Records
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tables import DOCUMENTS

STEPS = ("sketch", "sets", "names")  # whose files a purge rewrites


@dataclass(frozen=True)
class Purge:
    """A partition, and what names the documents to go: ids in hex, the inputs' own ids, locators or URLs."""

    number: int
    wanted: tuple[str, ...]
    change: str  # distinguishes the new files from the old ones


def locate(job: Job, item: Purge) -> Done:
    """Publishes who of the wanted lies in the partition (`names`, a table); a takedown that was killed knows it
    still."""
    name = f"takedown/{item.change}/{item.number:06d}"

    def step() -> Done:
        table = _names(job, item.number)
        found = table.filter(matches(table, item.wanted))
        file = publish_table(job.work, f"{name}.parquet", found)
        return Done(key=item.change, files={"names": File(file=file)})

    return shuffle.once(job.work, name, item.change, step)


def _names(job: Job, number: int) -> pa.Table:
    return table_of(job.work, marker(job.work, f"names/{number:06d}").files["names"])


def found_names(job: Job, dones: Sequence[Done]) -> pa.Table:
    """All that `locate` found."""
    tables = [table_of(job.work, done.files["names"]) for done in dones]
    schema = pa.schema([DOCUMENTS.field(name) for name in NAMES])
    return pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()


def purge(job: Job, item: Purge) -> Done:
    """Rewrite the partition's files without the wanted documents. New files first, then the marker of each step, the
    names last: a purge that was killed is done again from its beginning. The files before it are left for `sweep`."""
    table = _names(job, item.number)
    match = matches(table, item.wanted)
    gone_ids = table["doc_id"].filter(match).combine_chunks()
    if len(gone_ids) == 0:
        return Done(key="", files={})
    gone_hi, gone_lo = shuffle.words(gone_ids.chunk(0) if isinstance(gone_ids, pa.ChunkedArray) else gone_ids)
    name = f"sketch/{item.number:06d}"
    sketch = marker(job.work, name)
    docs = shuffle.read(job.work, sketch.files["docs"].file, job.doc)
    wanted_ids = np.zeros(len(gone_hi), [("hi", "<u8"), ("lo", "<u8")])
    wanted_ids["hi"], wanted_ids["lo"] = gone_hi, gone_lo
    mine = np.zeros(len(docs), wanted_ids.dtype)
    mine["hi"], mine["lo"] = docs["id_hi"], docs["id_lo"]
    going = find(wanted_ids, mine) >= 0
    moved = _moved(docs, going)
    _sets(job, item, docs[~going], moved)
    _sketch(job, item, sketch, docs[~going], moved)
    left = name_files(job, f"names/{item.number:06d}.{item.change}", table.filter(pc.invert(match)))
    old = marker(job.work, f"names/{item.number:06d}")
    _publish(job, f"names/{item.number:06d}", old, left)
    return Done(key="", files={})


def sweep(job: Job, items: Sequence[Purge]) -> None:
    """Delete what no marker of the partitions names any more: the files before this purge, or before one that was
    killed between a marker and here."""
    numbers = {f"{item.number:06d}" for item in items}
    for step in STEPS:
        names = [f"{step}/{number}" for number in sorted(numbers)]
        markers = job.work.at_once(lambda name: marker(job.work, name), names)
        kept = {f"{name}.json" for name in names} | {
            file.file.path for done in markers for file in done.files.values()
        }
        there = [
            f"{step}/{entry.path}"
            for entry in (job.work / step).list()
            if entry.path.split(".")[0] in numbers
        ]
        job.work.delete([path for path in there if path not in kept])


def _moved(docs: Records, going: Any) -> Records:
    """For each key that a document leaves: the lowest location with it before and after (-1: none)."""
    moved = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("before", "<i8"), ("after", "<i8")])
    order = np.lexsort((docs["location"], docs["lo"], docs["hi"]))
    docs, going = docs[order], going[order]
    starts = np.flatnonzero(shuffle.starts_of(docs["hi"], docs["lo"]))
    found = np.zeros(len(starts), moved)
    found["hi"], found["lo"] = docs["hi"][starts], docs["lo"][starts]
    found["before"] = docs["location"][starts]
    none = np.iinfo(np.int64).max
    if len(starts):
        after = np.minimum.reduceat(np.where(going, none, docs["location"]), starts)
        found["after"] = np.where(after == none, -1, after)
    changed: Records = found[found["before"] != found["after"]]
    return changed


def _relocated(location: I64, moved: Records) -> I64:
    """Where the texts at these locations are found now; -1 for those that are gone."""
    order = np.argsort(moved["before"])
    before, after = moved["before"][order], moved["after"][order]
    if len(before) == 0:
        return location
    place = np.minimum(np.searchsorted(before, location), len(before) - 1)
    return np.where(before[place] == location, after[place], location)


def _sketch(job: Job, item: Purge, sketch: Done, docs: Records, moved: Records) -> None:
    name = f"sketch/{item.number:06d}.{item.change}"
    texts = shuffle.read(job.work, sketch.files["texts"].file, job.text)
    row = find(texts, docs)
    shingles = np.where(row >= 0, texts["shingles"][row], 0) if len(texts) else np.zeros(0, np.int64)
    done = group_files(job, name, sketch.key, docs, shingles, {}, {})
    files = dict(done.files)
    if "bands" in sketch.files:
        bands = shuffle.read(job.work, sketch.files["bands"].file, BAND).copy()
        bands["location"] = _relocated(bands["location"], moved)
        bands = bands[bands["location"] >= 0]
        files["bands"] = shuffle.write(
            job.work, f"{name}.bands", bands, shuffle.in_range(bands["key"], job.band_ranges)
        )
    if "sample" in sketch.files:
        sample = shuffle.read(job.work, sketch.files["sample"].file, SAMPLE).copy()
        sample["location"] = _relocated(sample["location"], moved)
        files["sample"] = shuffle.write(job.work, f"{name}.sample", sample[sample["location"] >= 0])
    counters = {k: v for k, v in sketch.counters.items() if not k.startswith("source/")}
    counters |= {"docs": len(docs), **_source_counts(job, item)}
    _publish(job, f"sketch/{item.number:06d}", sketch.model_copy(update={"counters": counters}), files)


def _source_counts(job: Job, item: Purge) -> dict[str, int]:
    table = _names(job, item.number)
    left = table.filter(pc.invert(matches(table, item.wanted)))["source"].value_counts().to_pylist()
    return {f"source/{entry['values']}/docs": entry["counts"] for entry in left}


def _sets(job: Job, item: Purge, docs: Records, moved: Records) -> None:
    """The nodes at their new locations, as the documents there, and their shingle sets one after the other again."""
    name = f"sets/{item.number:06d}"
    done = marker(job.work, name)
    nodes = shuffle.read(job.work, done.files["nodes"].file, job.node).copy()
    sets = shuffle.read(job.work, done.files["sets"].file, HASH)
    nodes["location"] = _relocated(nodes["location"], moved)
    nodes = nodes[nodes["location"] >= 0]
    nodes = nodes[np.argsort(nodes["location"], kind="stable")]
    docs = docs[np.argsort(docs["location"])]
    copy_fields(docs[np.searchsorted(docs["location"], nodes["location"])], nodes, job.doc.names)
    nodes["protected"] = nodes["order"][:, 0] == 0
    pieces = [sets[node["start"] : node["start"] + node["size"]] for node in nodes]
    nodes["start"] = np.cumsum(nodes["size"]) - nodes["size"]
    files = {
        "nodes": shuffle.write(job.work, f"{name}.{item.change}.nodes", nodes),
        "sets": shuffle.write(job.work, f"{name}.{item.change}.sets", np.concatenate([sets[:0], *pieces])),
    }
    _publish(job, name, done, files)


def _publish(job: Job, name: str, old: Done, files: dict[str, File]) -> None:
    """The new marker of a step."""
    shuffle.write_marker(job.work, name, old.model_copy(update={"files": files}))


def change_of(named: Sequence[str]) -> str:
    """A name for one takedown: the same documents, the same name."""
    return hash_json(sorted(named))[:12]
