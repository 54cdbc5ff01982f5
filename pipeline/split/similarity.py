"""How similar the two sides of the split are: `similarity.json`, the figures that the report draws.

A sample of the validation documents (`draw`) is compared with every document of train, in one pass over the partitions
(`Nearest`): for each of them the most similar document of train, and the one that contains most of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import once
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import (
    groups_of,
    hash_ids,
    purpose_seed,
    read_validation_groups,
    split_of,
)
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.pipeline.split.index import SAMPLE, compare, empty_best, load
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.pipeline.text.word_rule import RULE
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import Marker, PublishedFile, hash_json
from corpusmill.schemas.split import MIB, SplitParams
from corpusmill.schemas.tables import ID

I64 = npt.NDArray[np.int64]
DOCUMENTS = 10_000  # compared at most: what a document of train may cost grows with them
VIEW = 4 << 20  # bytes of text at a time

MEASURES = ("jaccard", "inside")
# The best of a partition for one measure: place in the sample, value, the document of train.
BEST = pa.schema(
    [
        pa.field("measure", pa.int8(), nullable=False),
        pa.field("document", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("doc_id", ID, nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ]
)
KIND = "corpusmill-similarity-v1"
BINS = 20
QUANTILES = (0.5, 0.9, 0.99)
WORST = 10  # pairs named
DIGITS = 6
F64 = npt.NDArray[np.float64]


def draw(rows: pa.Table, limit: int, seed: int, documents: int = DOCUMENTS) -> dict[str, pa.Array]:
    """Source -> the sorted groups whose documents are compared, from the groups of validation (`measure.MEMBERS`).

    Sources with less than a fair share of `limit` bytes and of `documents` are compared whole, the others divide what
    is left. Of one source the groups with the smallest hash are taken, until the next would exceed its part; a
    group that exceeds it alone is left out.
    """
    taken: dict[str, pa.Array] = {}
    names = pc.unique(rows["source"]).sort().to_pylist() if len(rows) else []
    tables = [rows.filter(pc.equal(rows["source"], name)) for name in names]
    totals = [(pc.sum(table["bytes"]).as_py(), pc.sum(table["docs"]).as_py()) for table in tables]
    parts = zip(
        fair([size for size, _ in totals], limit), fair([docs for _, docs in totals], documents), strict=True
    )
    for name, table, (size, docs) in zip(names, tables, parts, strict=True):
        table = table.filter(pc.and_(pc.less_equal(table["bytes"], size), pc.less_equal(table["docs"], docs)))
        groups = pa.concat_arrays(table["group"].chunks) if len(table) else pa.array([], ID)
        order = np.lexsort((np.arange(len(table)), hash_ids(groups, seed)))
        within = (np.cumsum(table["bytes"].to_numpy()[order]) <= size) & (
            np.cumsum(table["docs"].to_numpy()[order]) <= docs
        )
        taken[name] = groups.take(pa.array(np.sort(order[within])))
    return taken


def fair(amounts: list[int], limit: int) -> list[int]:
    """What of `limit` each amount gets: all of it, or what is left divided by those that want more."""
    parts, left = [0] * len(amounts), limit
    order = sorted(range(len(amounts)), key=lambda i: amounts[i])
    for done, i in enumerate(order):
        parts[i] = min(amounts[i], left // (len(order) - done))
        left -= parts[i]
    return parts


def views(sizes: I64, rows: I64) -> Iterator[I64]:
    """`rows`, cut so that the texts of each part, of `sizes` bytes, have `VIEW` bytes together, or are one."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + VIEW, side="right")))
        yield rows[first:last]
        first = last


@dataclass(frozen=True)
class Draw:
    """Publish the shingle sets of a partition's documents among those drawn: a table of `SAMPLE`."""

    taken: dict[str, pa.Array]
    params: DedupParams
    work: Folder

    def __call__(self, partition: Partition) -> PublishedFile:
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        groups = groups_of(docs)
        wanted = np.zeros(len(docs), bool)
        for source, taken in self.taken.items():
            mine = pc.and_(pc.equal(docs["source"], source), pc.is_in(groups, value_set=taken))
            wanted |= mine.to_numpy()
        rows = np.flatnonzero(wanted)
        text = one_array(docs["text"])
        sizes = pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
        shingling = Shingling(self.params, 0)
        bounds, hashes = [np.zeros(1, np.int64)], [np.zeros(0, np.uint64)]
        for part in views(sizes, rows):
            ends, found = shingling.sets(text, part)
            bounds.append(ends[1:] + bounds[-1][-1])
            hashes.append(found)
        lists = pa.LargeListArray.from_arrays(
            pa.array(np.concatenate(bounds)),
            pa.array(np.concatenate(hashes)),
            type=SAMPLE.field("shingles").type,
        )
        chosen = docs.select(["doc_id", "source"]).take(pa.array(rows))
        table = pa.table([*chosen.columns, pa.array(sizes[rows]), lists], schema=SAMPLE)
        return publish_table(self.work, f"sets/{partition.name}.parquet", table)


@dataclass(frozen=True)
class Nearest:
    """Publish the best of a partition's documents of train, once for each key."""

    split: Folder
    work: Folder
    sample: PublishedFile
    params: DedupParams
    key: str

    def __call__(self, partition: Partition) -> PublishedFile:
        key = hash_json([self.key, self.sample.xxh3, partition.name, partition.xxh3])

        def step() -> Marker:
            file = publish_table(self.work, f"best/{partition.name}.parquet", self._best(partition))
            return Marker(key=key, files=[file])

        return once(Marker, self.work / f"compared/{partition.name}.json", key, self.work, step).files[0]

    def _best(self, partition: Partition) -> pa.Table:
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        train = np.flatnonzero(~split_of(docs, read_validation_groups(self.split)))
        ids = _words(docs["doc_id"])
        train = train[np.lexsort((ids[train, 1], ids[train, 0]))]  # of equals the least id is kept
        text = one_array(docs["text"])
        sizes = pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
        index = load(self.work, self.sample.path, self.sample.xxh3)
        best, best_row = empty_best(len(index.sizes))
        shingling = Shingling(self.params, 0)
        for part in views(sizes, train):
            compare(*shingling.sets(text, part), part, tuple(index), best, best_row)
        document, measure = np.nonzero(best_row >= 0)
        found = docs.select(["doc_id", "source"]).take(pa.array(best_row[document, measure]))
        columns = [
            pa.array(measure, pa.int8()), pa.array(document), pa.array(best[document, measure]), *found.columns,
        ]  # fmt: skip
        return pa.table(columns, schema=BEST)


def _words(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """uint64[n, 2]: 16-byte ids as numbers in the order of their bytes."""
    array = pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], ID)
    if not len(array):
        return np.zeros((0, 2), np.uint64)
    words = np.frombuffer(array.buffers()[1], ">u8", 2 * len(array), 16 * array.offset)
    return words.reshape(-1, 2).astype(np.uint64)


def gather(context: Context, draw: Draw) -> tuple[pa.Table, PublishedFile]:
    """The sample (`SAMPLE`, sorted by id) of all partitions, and the file that it was published as."""
    sizes = [part.text_bytes for part in context.partitions]
    files = context.scheduler.map(draw, context.partitions, "split: sample", sizes)
    tables = [read_table(draw.work / file.path, file.xxh3).cast(SAMPLE) for file in files]
    sample = pa.concat_tables([SAMPLE.empty_table(), *tables]).sort_by("doc_id")
    return sample, publish_table(draw.work, "sample.parquet", sample)


def nearest(context: Context, task: Nearest, count: int) -> dict[str, dict[str, Any]]:
    """By measure: `value` float64[count], and of the document of train that has it `doc_id` and `source` (lists;
    None where no shingle is shared). One partition's result is held at a time."""
    sizes = [part.text_bytes for part in context.partitions]
    files = context.scheduler.map(task, context.partitions, "split: similarity", sizes)
    found: dict[str, dict[str, Any]] = {
        name: {"value": np.zeros(count), "doc_id": [None] * count, "source": [None] * count}
        for name in MEASURES
    }
    for file in files:
        table = read_table(task.work / file.path, file.xxh3).cast(BEST)
        for number, name in enumerate(MEASURES):
            _fold(found[name], table.filter(pc.equal(table["measure"], number)))
    return found


def _fold(best: dict[str, Any], table: pa.Table) -> None:
    """Take what is better: the higher value, of equals the document with the least id."""
    document, value = table["document"].to_numpy(), table["value"].to_numpy()
    again = np.flatnonzero(value >= best["value"][document])
    rows = table.take(pa.array(again))
    for place, number, doc, source in zip(
        document[again].tolist(), value[again].tolist(), rows["doc_id"].to_pylist(), rows["source"].to_pylist(),
        strict=True,
    ):  # fmt: skip
        before = best["doc_id"][place]
        if number > best["value"][place] or before is None or doc < before:
            best["value"][place], best["doc_id"][place], best["source"][place] = number, doc, source


def similarity(
    context: Context, params: SplitParams, validation: pa.Table, groups: PublishedFile, version: str
) -> dict[str, Any] | None:
    """Compare the sample of validation with every document of train; None where there is no validation, or
    `similarity_mb` is 0. `validation` are its groups, `measure.MEMBERS`; `groups` the file that lists them.

    Shingles are those of `dedup` in the recipe, its defaults where it does not run.
    """
    if params.similarity_mb == 0 or len(validation) == 0:
        return None
    dedup = context.recipe.dedup
    seed = purpose_seed(context.recipe.seed, "similarity")
    taken = draw(validation, round(params.similarity_mb * MIB), seed)
    work = context.folder / "scratch/similarity"
    sample, file = gather(context, Draw(taken, dedup, work))
    shingles = [dedup.shingle, dedup.ngram, dedup.preset]
    task = Nearest(context.folder, work, file, dedup, hash_json([version, RULE, shingles, groups.xxh3]))
    found = nearest(context, task, len(sample))
    return summary(context, validation, sample, found)


def summary(
    context: Context, validation: pa.Table, sample: pa.Table, found: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The figures, by source and of all."""
    dedup = context.recipe.dedup
    sizes = pc.list_value_length(sample["shingles"]).to_numpy()
    source = np.array(sample["source"].to_pylist(), dtype=object)
    names = pc.unique(validation["source"]).sort().to_pylist()
    everything = np.ones(len(sample), bool)
    docs = {name: _total(validation, "docs", name) for name in names}
    facts: dict[str, Any] = {
        "kind": KIND,
        "shingle": {"kind": dedup.shingle, "ngram": dedup.ngram, "preset": dedup.preset},
        "threshold": dedup.similarity,
        "deduplicated": "dedup" in context.recipe.stages and dedup.minhash,
        "validation_documents": sum(docs.values()),
        "compared": len(sample),
        "compared_bytes": int(pc.sum(sample["bytes"]).as_py() or 0),
        "without_words": int((sizes == 0).sum()),
        **_figures(found, everything, dedup.similarity),
        "sources": {
            name: {
                "validation_documents": docs[name],
                "compared": int((source == name).sum()),
                **_figures(found, source == name, dedup.similarity),
                "worst": _worst(sample, found, source == name, 1),
            }
            for name in names
        },
        "histogram": {
            "from": [n / BINS for n in range(BINS)],
            **{name: _histogram(found[name]["value"]) for name in MEASURES},
        },
        "worst": _worst(sample, found, everything, WORST),
    }
    return {**facts, "sentence": sentence(facts)}


def _total(rows: pa.Table, column: str, source: str) -> int:
    return int(pc.sum(rows[column].filter(pc.equal(rows["source"], source))).as_py() or 0)


def _figures(
    found: dict[str, dict[str, Any]], mine: npt.NDArray[np.bool_], threshold: float
) -> dict[str, Any]:
    facts = {}
    for name in MEASURES:
        values = np.sort(found[name]["value"][mine])
        facts[name] = {
            "max": _rounded(values[-1]) if len(values) else 0.0,
            "quantiles": {str(q): _quantile(values, q) for q in QUANTILES},
            "above": int((values >= threshold).sum()),
        }
    return facts


def _quantile(values: F64, q: float) -> float:
    """The least of the sorted values that so great a share does not exceed."""
    return _rounded(values[max(0, int(np.ceil(q * len(values))) - 1)]) if len(values) else 0.0


def _rounded(value: float) -> float:
    return round(float(value), DIGITS)


def _histogram(values: F64) -> list[int]:
    """Documents by similarity in steps of 1 / BINS; 1 is in the last."""
    places = np.minimum((values * BINS + 1e-9).astype(np.int64), BINS - 1)
    counts: list[int] = np.bincount(places, minlength=BINS).tolist()
    return counts


def _worst(
    sample: pa.Table, found: dict[str, dict[str, Any]], mine: npt.NDArray[np.bool_], count: int
) -> list[dict[str, Any]]:
    """The pairs with the highest Jaccard similarity, by that and by id."""
    best, inside = found["jaccard"], found["inside"]
    rows = np.flatnonzero(mine & (best["value"] > 0))
    rows = rows[np.lexsort((rows, -best["value"][rows]))][:count]
    return [
        {
            "jaccard": _rounded(best["value"][row]),
            "validation": sample["doc_id"][row].as_py().hex(),
            "validation_source": sample["source"][row].as_py(),
            "train": best["doc_id"][row].hex(),
            "train_source": best["source"][row],
            "inside": _rounded(inside["value"][row]),
        }
        for row in rows.tolist()
    ]


def sentence(facts: dict[str, Any]) -> str:
    """What was found, in words."""
    total, compared = facts["validation_documents"], facts["compared"]
    if not compared:
        return f"None of the {total:,} validation documents fits into similarity_mb: nothing was compared."
    which = "all" if compared == total else f"{compared:,}, drawn by a hash,"
    unit = {"word": "word", "char": "character"}[facts["shingle"]["kind"]]
    unit = "token" if facts["shingle"]["preset"] == "code" else unit
    jaccard, threshold = facts["jaccard"], facts["threshold"]
    most, q = ("99 %", "0.99") if compared >= 100 else ("half of them", "0.5")
    start = (
        f"Compared {which} of the {total:,} validation documents with every document of train by the exact Jaccard"
        f" similarity of their {unit} {facts['shingle']['ngram']}-grams: the highest is {jaccard['max']:.3f},"
        f" {most} have at most {jaccard['quantiles'][q]:.3f}; "
    )
    at = f"{threshold:g}, at which deduplication removes" if facts["deduplicated"] else f"{threshold:g}"
    if not jaccard["above"]:
        return start + f"none reaches {at}."
    return start + f"{jaccard['above']:,} reach{'es' if jaccard['above'] == 1 else ''} {at}."
