"""Who belongs to which cluster and who stays: from verified pairs and copies to a record per clustered
document."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.dedup.clusters import Compare, components, elect
from pipeline.dedup.records import TEXT, Records, ids, survivor_order

MEMBER = np.dtype(
    [("location", "<i8"), ("id_hi", "<u8"), ("id_lo", "<u8"), ("source", "<u8"), ("cluster_hi", "<u8"),
     ("cluster_lo", "<u8"), ("survivor_hi", "<u8"), ("survivor_lo", "<u8"), ("kept", "?"), ("copy", "?"),
     ("jaccard", "<f8")]
)  # fmt: skip


class Clustering(NamedTuple):
    """`members`: a record per document in a cluster. `texts`: distinct texts in survivor order, with their
    `labels`."""

    members: Records
    texts: Records
    labels: npt.NDArray[np.int64]
    cut_short: int


def cluster(
    nodes: Records, pairs: Records, copies: Records, keep_order: list[str], similarity: float,
    compare: Compare,
) -> Clustering:  # fmt: skip
    """Clusters of texts by verified pairs, and of documents by equal text.

    `nodes` are the candidate texts (`NODE`, by location), `pairs` their similarities (by locations), `copies`
    the documents of texts that several have (`TEXT`, by text, best first). `compare(round, a, b)` takes
    locations.
    """
    good = pairs["jaccard"] >= similarity
    verified = np.unique(np.r_[pairs["a"][good], pairs["b"][good]])
    nodes = nodes[np.searchsorted(nodes["location"], verified)]
    new = np.r_[True, (copies["hi"][1:] != copies["hi"][:-1]) | (copies["lo"][1:] != copies["lo"][:-1])]
    heads = np.flatnonzero(new[: len(copies)])
    group = _find(copies[heads], nodes)  # the group of copies that a node's text has, or -1
    single = group < 0

    texts = np.r_[_as_texts(nodes[single]), copies[heads]]
    place = np.empty(len(nodes), np.int64)  # node -> row of `texts`
    place[single] = np.arange(int(single.sum()))
    place[~single] = single.sum() + group[~single]
    address = np.full(len(texts), -1, np.int64)  # where the text's shingle set lies: at the node's location
    address[place] = nodes["location"]
    order = survivor_order(texts, keep_order)
    rank = np.empty(len(texts), np.int64)
    rank[order] = np.arange(len(texts))
    texts, address = texts[order], address[order]

    # Known pairs in survivor order. One end may be no node: then the pair failed, and plays no part.
    inside = np.isin(pairs["a"], verified) & np.isin(pairs["b"], verified)
    ends = [rank[place[np.searchsorted(verified, pairs[name][inside])]] for name in ("a", "b")]
    a, b, value = np.minimum(*ends), np.maximum(*ends), pairs["jaccard"][inside]
    labels = components(len(texts), a[value >= similarity], b[value >= similarity])
    sizes = np.zeros(len(texts), np.int64)
    sizes[rank[place]] = nodes["size"]
    survivor, score, cut_short = elect(
        labels, sizes, (a, b, value), similarity, lambda turn, x, y: compare(turn, address[x], address[y])
    )

    # Documents: a text's copies share its fate; of a text that stays, the first copy does.
    counts = np.diff(np.r_[heads, len(copies)])
    docs = np.r_[_as_texts(nodes[single]), copies]
    text_of = rank[
        np.r_[np.arange(int(single.sum())), single.sum() + np.repeat(np.arange(len(heads)), counts)]
    ]
    first = np.r_[np.ones(int(single.sum()), bool), new[: len(copies)]]
    members = np.zeros(len(docs), MEMBER)
    for name in ("location", "id_hi", "id_lo", "source"):
        members[name] = docs[name]
    for name, which in (("cluster", labels[text_of]), ("survivor", survivor[text_of])):
        members[f"{name}_hi"], members[f"{name}_lo"] = texts["id_hi"][which], texts["id_lo"][which]
    stays = survivor[text_of] == text_of
    members["kept"] = stays & first
    members["copy"] = stays & ~first
    members["jaccard"] = np.where(stays, 1.0, score[text_of])
    order = np.lexsort([members[n] for n in ("id_lo", "id_hi", "cluster_lo", "cluster_hi")])
    return Clustering(members[order], texts, labels, cut_short)


def _as_texts(nodes: Records) -> Records:
    texts = np.empty(len(nodes), TEXT)
    for name in TEXT.names or ():
        texts[name] = nodes[name]
    return texts


def _find(heads: Records, wanted: Records) -> npt.NDArray[np.int64]:
    """Row in `heads` (sorted by text hash) of each wanted text, or -1."""
    table = pa.table({"text": ids(heads["hi"], heads["lo"])})
    found = pc.index_in(ids(wanted["hi"], wanted["lo"]), value_set=table["text"])
    rows: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def text_rows(texts: Records, wanted: Records) -> npt.NDArray[np.int64]:
    """Row in `texts` of each wanted text (any records with `hi` and `lo`), or -1."""
    return _find(texts, wanted)


def clusters_table(members: Records, sources: dict[int, str]) -> pa.Table:
    """`clusters.parquet`: a row per document of a cluster, sorted by cluster and document."""
    return pa.table(
        {
            "cluster_id": ids(members["cluster_hi"], members["cluster_lo"]),
            "doc_id": ids(members["id_hi"], members["id_lo"]),
            "source": source_names(members["source"], sources),
            "survivor": ids(members["survivor_hi"], members["survivor_lo"]),
            "kept": pa.array(members["kept"]),
            "jaccard": pa.array(members["jaccard"]),
        }
    )


def source_names(hashes: npt.NDArray[np.uint64], sources: dict[int, str]) -> pa.Array:
    """Names of sources in place of their hashes."""
    distinct, codes = np.unique(hashes, return_inverse=True)
    names = pa.array([sources[int(value)] for value in distinct], pa.string())
    return names.take(pa.array(codes.ravel(), pa.int64()))
