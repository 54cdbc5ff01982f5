"""Last step, per partition: what is decided of its keys becomes a row per document in a group, for removal
and for the table of clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import LOCATION, Job, copy_fields
from corpusmill.pipeline.dedup.key_groups import Routed, find, stays
from corpusmill.pipeline.dedup.quality.precision import AUDIT, audit
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tables import CLUSTERS, REMOVALS

# Why a document goes; the place in the tuple is what records hold.
RULES = ("dedup.exact", "dedup.normalized", "dedup.minhash", "dedup.containment", "dedup.url")
EXACT, NORMALIZED, MINHASH, CONTAINMENT, URL = range(len(RULES))

MEMBER = np.dtype(
    [("cluster_hi", "<u8"), ("cluster_lo", "<u8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("source", "<u8"),
     ("survivor_hi", "<u8"), ("survivor_lo", "<u8"), ("kept", "?"), ("rule", "u1"), ("jaccard", "<f8"),
     ("value", "<f8")]
)  # fmt: skip


@dataclass(frozen=True)
class Removal:
    """A partition: its documents, by text and, if asked for, by URL, with what was decided of their keys; no
    name: its texts are not at hand, and nothing will be removed from it here.

    `stage` is the stage's folder: the table that its transform reads goes there, and what is made beside it.
    """

    index: int
    name: str | None
    stage: Folder
    docs: File
    decided: Routed
    url_docs: File | None = None
    url_decided: Routed = ()


@dataclass(frozen=True)
class UrlRemoval:
    """A partition's documents with a URL, and what was decided of their URLs."""

    index: int
    docs: File
    decided: Routed


def url_gone(job: Job, item: UrlRemoval) -> Done:
    """Publishes the locations of documents that go for their URL (`gone`): later passes do not see them."""
    key = hash_json([job.key, "gone", item.index, item.docs.file.xxh3, shuffle.hashes_of(item.decided)])
    name = f"urls-gone/{item.index:06d}"

    def step() -> Done:
        docs, decided = _matched(job, item.docs, item.decided)
        gone = np.sort(docs["location"][~stays(job, docs, decided)]).astype(LOCATION)
        return Done(
            key=key, files={"gone": shuffle.write(job.work, f"{name}.gone", gone, gone * 0 + item.index)}
        )

    return shuffle.once(job.work, name, key, step)


def removals(job: Job, item: Removal) -> Done:
    """Publishes `removals/<partition>.parquet` (schema `REMOVALS`, by document) for the stage, the same as
    records for the table of clusters (`members`, cut by cluster), and draws of what to audit (`audit`)."""
    inputs = [item.docs.file.xxh3, *shuffle.hashes_of(item.decided), *shuffle.hashes_of(item.url_decided)]
    key = hash_json([job.key, "removals", item.index, item.name, inputs])
    return shuffle.once(
        item.stage, f"scratch/removals/{item.index:06d}", key, lambda: _removals(job, item, key)
    )


def _removals(job: Job, item: Removal, key: str) -> Done:
    docs, decided = _matched(job, item.docs, item.decided)
    found, audits = _members(job, docs, decided)
    if item.url_docs is not None:
        url_docs, url_decided = _matched(job, item.url_docs, item.url_decided)
        by_url, _ = _members(job, url_docs, url_decided)
        by_url["rule"] = URL
        by_url["jaccard"] = by_url["value"] = np.nan
        found = np.concatenate([found, by_url])
    counters: Counter[str] = Counter()
    for rule, name in enumerate(RULES):
        gone = found[~found["kept"] & (found["rule"] == rule)]
        counters[name] = len(gone)
        for source in np.unique(gone["source"]).tolist():
            counters[f"{source}/{name}"] = int((gone["source"] == source).sum())
    found = found[np.lexsort((found["id_lo"], found["id_hi"], found["cluster_lo"], found["cluster_hi"]))]
    name = f"scratch/removals/{item.index:06d}"
    cluster = shuffle.in_range(found["cluster_hi"], job.text_ranges)
    files = {
        "members": shuffle.write(item.stage, f"{name}.members", found, cluster),
        "audit": shuffle.write(item.stage, f"{name}.audit", audit(audits)),
    }
    if item.name is not None:
        table = publish_table(item.stage, f"removals/{item.name}.parquet", removals_table(found))
        files["table"] = File(file=table)
    return Done(key=key, files=files, counters=dict(counters))


@dataclass(frozen=True)
class Clusters:
    """A range of clusters: its members, and the names of their sources by hash."""

    number: int
    stage: Folder
    members: Sequence[Slice]
    sources: tuple[tuple[int, str], ...]


def clusters(job: Job, item: Clusters) -> Done:
    """Publishes the range's part of `clusters.parquet` (`clusters`); counts clusters and the largest one's
    documents."""
    key = hash_json([job.key, "clusters", item.number, item.sources, shuffle.hashes_of(item.members)])
    name = f"scratch/clusters/{item.number:06d}"

    def step() -> Done:
        found = shuffle.read_slices(item.stage, item.members, MEMBER)
        table = publish_table(item.stage, f"{name}.parquet", clusters_table(found, dict(item.sources)))
        found = found[np.lexsort((found["cluster_lo"], found["cluster_hi"]))]
        starts = np.flatnonzero(shuffle.starts_of(found["cluster_hi"], found["cluster_lo"]))
        sizes = np.diff(np.r_[starts, len(found)])
        counters = {"clusters": len(starts), "largest_cluster": int(sizes.max(initial=0))}
        return Done(key=key, files={"clusters": File(file=table)}, counters=counters)

    return shuffle.once(item.stage, name, key, step)


def _matched(job: Job, docs: File, decided: Routed) -> tuple[Records, Records]:
    """The partition's documents of which something was decided, and that."""
    mine = shuffle.read(job.work, docs.file, job.doc)
    received = shuffle.read_slices(job.work, decided, job.decided)
    row = find(received, mine)
    return mine[row >= 0], received[row[row >= 0]]


def _members(job: Job, docs: Records, decided: Records) -> tuple[Records, Records]:
    """(`MEMBER` records of the documents, `AUDIT` records of those that go for their text)."""
    found = np.zeros(len(docs), MEMBER)
    copy_fields(docs, found, ("id_hi", "id_lo", "source"))
    copy_fields(decided, found, ("cluster_hi", "cluster_lo"))
    found["kept"] = stays(job, docs, decided)
    own = decided["own"]
    head = (docs["id_hi"] == decided["head_hi"]) & (docs["id_lo"] == decided["head_lo"])
    # Copies name the head of their text where that text leads; the head itself, if it goes, what the election
    # named, or the next copy. Documents of other texts name the text that they are like.
    copy = own & ~head
    leads = own & head
    alone = (decided["survivor_hi"] == docs["id_hi"]) & (decided["survivor_lo"] == docs["id_lo"])
    by_copy = copy | (leads & alone & ~found["kept"])
    location = decided["survivor_location"].copy()
    for end in ("hi", "lo"):
        named = np.where(copy, decided[f"head_{end}"], decided[f"survivor_{end}"])
        named = np.where(leads & alone & ~found["kept"], decided[f"second_{end}"], named)
        found[f"survivor_{end}"] = np.where(leads & found["kept"], docs[f"id_{end}"], named)
    location[copy] = decided["head_location"][copy]
    location[by_copy & ~copy] = decided["second_location"][by_copy & ~copy]
    found["jaccard"] = np.where(by_copy | (leads & found["kept"]), 1.0, decided["jaccard"])
    near = found["jaccard"] >= job.params.similarity
    same_text = docs["text"] == np.where(copy, decided["head_text"], docs["text"])
    equal = np.where(same_text & job.params.exact, EXACT, NORMALIZED if job.params.normalized else MINHASH)
    found["rule"] = np.where(by_copy, equal, np.where(near, MINHASH, CONTAINMENT))
    found["value"] = np.where(found["rule"] == CONTAINMENT, decided["inside"], found["jaccard"])
    gone = ~found["kept"]
    audits = np.zeros(int(gone.sum()), AUDIT)
    audits["draw"] = docs["id_lo"][gone]
    audits["location"], audits["survivor"] = docs["location"][gone], location[gone]
    audits["jaccard"] = found["jaccard"][gone]
    return found, audits[found["rule"][gone] != CONTAINMENT]


def removals_table(found: Records) -> pa.Table:
    """`MEMBER` records as `REMOVALS`, by document; one row a document: removal by URL counts last."""
    found = found[np.lexsort((found["rule"] == URL, found["kept"], found["id_lo"], found["id_hi"]))]
    found = found[shuffle.starts_of(found["id_hi"], found["id_lo"])]
    columns = [
        shuffle.ids(found["id_hi"], found["id_lo"]),
        shuffle.ids(found["cluster_hi"], found["cluster_lo"]),
        shuffle.ids(found["survivor_hi"], found["survivor_lo"]),
        pa.array(found["kept"]),
        rule_names(found["rule"], found["kept"]),
        _numbers(found["jaccard"]),
        _numbers(found["value"]),
    ]
    return pa.Table.from_arrays(columns, schema=REMOVALS)


def clusters_table(found: Records, sources: dict[int, str]) -> pa.Table:
    """A range of `clusters.parquet`: a row per document of a cluster, by cluster and document. `sources` maps
    hashes to names."""
    order = [found[name] for name in ("cluster_hi", "cluster_lo", "id_hi", "id_lo", "rule")]
    found = found[np.lexsort(order[::-1])]
    distinct, codes = np.unique(found["source"], return_inverse=True)
    names = pa.array([sources[int(value)] for value in distinct], pa.string())
    columns = [
        shuffle.ids(found["cluster_hi"], found["cluster_lo"]),
        shuffle.ids(found["id_hi"], found["id_lo"]),
        names.take(pa.array(codes.ravel(), pa.int64())),
        shuffle.ids(found["survivor_hi"], found["survivor_lo"]),
        pa.array(found["kept"]),
        rule_names(found["rule"], found["kept"]),
        _numbers(found["jaccard"]),
    ]
    return pa.Table.from_arrays(columns, schema=CLUSTERS)


def rule_names(rules: npt.NDArray[np.uint8], kept: npt.NDArray[np.bool_]) -> pa.Array:
    """Names of rules; null for what stays."""
    return pa.array(RULES, pa.string()).take(pa.array(rules, pa.int64(), mask=kept))


def _numbers(values: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))
