"""What the choice is made from: documents and bytes by source and unit, counted per partition (`Measure`), and the
components into which shared hosts join the units (`components_of`).

A unit is a duplicate cluster, or, of documents of none, their host where hosts count (`hosts`), or the document itself.
Of single documents only those with the smallest hashes are listed one by one, since others are never chosen: what the
driver holds grows with the clusters, the hosts and the size of validation, not with the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import doc_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import groups_of, hash_ids
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.tables import ID

# Scheme, a user's name and the port are no part of the host, as in RFC 3986; a backslash ends it, as in browsers.
_URL = (
    r"^(?P<scheme>[A-Za-z0-9+.\-]*://|//)?(?:[^/?#\\]*@)?(?P<host>\[[^\]/?#\\]*\]?|[^:/?#\\]*)"  # [...]: IPv6
)

FEW = 256  # documents of a source that are listed one by one in each partition, whatever their hashes
ALL = 2**64 - 1
# One row per (source, unit, host): documents and bytes of text. The host is "" where it plays no part.
ROWS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("unit", ID, nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("cluster", pa.bool_(), nullable=False),
        pa.field("docs", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
# Of a source: documents that are not in the rows, the groups that they make, and the hash up to which all groups are there.
REST = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("docs", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("groups", pa.int64(), nullable=False),
        pa.field("complete", pa.uint64(), nullable=False),
    ]
)
_KEYS = ["source", "unit", "host", "cluster"]
# A group of validation in a source: what the sample of those that are compared is drawn from.
MEMBERS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("group", ID, nullable=False),
        pa.field("docs", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
I64 = npt.NDArray[np.int64]
HOSTS_NAMED = 3  # of the largest component


def hosts(url: pa.Array | pa.ChunkedArray) -> pa.Array:
    """string[n], without nulls: the host of each URL in small letters, without dots at its end and without a leading
    `www.`; "" where there is none.

    Where no scheme stands before it, only a name with a dot is taken for a host: `notes/a.txt` has none. No list of
    public suffixes is used, so `a.example.org` and `b.example.org` are two hosts, and international names are one
    only in the same spelling (`xn--` or letters).
    """
    if isinstance(url, pa.ChunkedArray):
        url = pa.concat_arrays(url.chunks) if url.num_chunks else pa.array([], url.type)
    url = pc.fill_null(url.cast(pa.string()), "")
    found = pc.extract_regex(pc.utf8_trim_whitespace(url), _URL)
    scheme, host = pc.struct_field(found, "scheme"), pc.struct_field(found, "host")
    host = pc.utf8_rtrim(pc.utf8_lower(host), ".")
    named = pc.or_(pc.not_equal(scheme, ""), pc.match_substring(host, "."))
    spaced = pc.match_substring_regex(host, r"\s")
    host = pc.if_else(pc.and_not(named, spaced), host, "")
    return pc.replace_substring_regex(host, r"^www\.(.*[^.].*\..*)$", r"\1")


class Measured(NamedTuple):
    """`joined` and `alone` are tables of `ROWS`, `rest` of `REST`."""

    joined: pa.Table
    alone: pa.Table
    rest: pa.Table


@dataclass(frozen=True)
class Measure:
    """A partition's documents. `thresholds`: source -> hash (`hash_ids` of the id with `seed`) up to which documents
    that are alone are listed, `usual` of other sources; with `domain`, documents of one host belong together."""

    domain: bool
    seed: int
    thresholds: Mapping[str, int]
    usual: int

    def __call__(self, partition: Partition) -> Measured:
        columns = ["doc_id", "source", "cluster_id", "text"]
        docs = partition.read([*columns, "url"] if self.domain else columns)
        size = pc.cast(pc.binary_length(docs["text"]), pa.int64())
        table = units(docs, self.domain).append_column("bytes", size)
        alone = pc.and_not(pc.equal(table["host"], ""), table["cluster"])
        singles = table.filter(alone)
        return Measured(summed(table.filter(pc.invert(alone))), *self._listed(singles))

    def _listed(self, singles: pa.Table) -> tuple[pa.Table, pa.Table]:
        hashes = hash_ids(singles["unit"], self.seed)
        size = singles["bytes"].to_numpy()
        listed = np.zeros(len(singles), bool)
        rest = []
        for source in pc.unique(singles["source"]).to_pylist():
            mine = np.flatnonzero(pc.equal(singles["source"], source).to_numpy())
            mine = mine[np.argsort(hashes[mine], kind="stable")]
            threshold = self.thresholds.get(source, self.usual)
            below = int(np.searchsorted(hashes[mine], np.uint64(threshold), side="right"))
            count = min(len(mine), max(FEW, below))
            left = mine[count:]
            listed[mine[:count]] = True
            last = int(hashes[mine[count - 1]]) if count else 0
            complete = ALL if not len(left) else max(last, threshold)
            some = {"source": source, "docs": len(left), "groups": len(left)}
            rest.append({**some, "bytes": int(size[left].sum()), "complete": complete})
        chosen = singles.filter(pa.array(listed))
        return chosen.select(ROWS.names).cast(ROWS), pa.Table.from_pylist(rest, schema=REST)


def units(docs: pa.Table, domain: bool) -> pa.Table:
    """Of each document of `docs` (`doc_id`, `source`, `cluster_id`, and `url` with `domain`): `source`, `unit`, `host`,
    `cluster` (whether the unit is one), and `docs`, which is 1."""
    host = pa.array([""]).take(pa.array(np.zeros(len(docs), np.int64)))
    unit = groups_of(docs)
    cluster = pc.is_valid(docs["cluster_id"])
    if domain:
        host = hosts(docs["url"])
        names = pc.unique(host)
        ids = pa.array([doc_id("host", name) if name else None for name in names.to_pylist()], ID)
        of_host = ids.take(pc.index_in(host, value_set=names))
        unit = pc.if_else(cluster, unit, pc.coalesce(pa.chunked_array([of_host]), unit))
    ones = pa.array(np.ones(len(docs), np.int64))
    return pa.table({"source": docs["source"], "unit": unit, "host": host, "cluster": cluster, "docs": ones})


def summed(rows: pa.Table) -> pa.Table:
    """`rows`, summed by all that is no number and sorted by it."""
    table = rows.group_by(_KEYS, use_threads=False).aggregate([("docs", "sum"), ("bytes", "sum")])
    table = table.rename_columns(ROWS.names).cast(ROWS)
    return table.sort_by([(key, "ascending") for key in _KEYS])


def merged(parts: list[Measured], seed: int) -> tuple[pa.Table, pa.Table]:
    """(`ROWS` sorted, `REST` with a row a source) of all partitions: of documents that are alone those below the hash
    up to which every partition listed all."""
    joined = summed(_aligned([part.joined for part in parts], ROWS))
    alone = _aligned([part.alone for part in parts], ROWS)
    rest = _aligned([part.rest for part in parts], REST)
    rest = rest.group_by("source", use_threads=False).aggregate(
        [("docs", "sum"), ("bytes", "sum"), ("groups", "sum"), ("complete", "min")]
    )
    rest = rest.rename_columns(REST.names).cast(REST).sort_by("source")
    place = pc.index_in(alone["source"], value_set=pc.unique(rest["source"])).to_numpy()
    kept = hash_ids(alone["unit"], seed) <= rest["complete"].to_numpy()[place.astype(np.int64)]
    left = alone.filter(pa.array(~kept))
    more = [
        (pc.sum(mine["docs"]).as_py() or 0, pc.sum(mine["bytes"]).as_py() or 0)
        for mine in (left.filter(pc.equal(left["source"], name)) for name in rest["source"].to_pylist())
    ]
    for column, name in enumerate(("docs", "bytes", "groups")):
        values = rest[name].to_numpy() + np.array([(*one, one[0])[column] for one in more], np.int64)
        rest = rest.set_column(column + 1, REST.field(name), pa.array(values, pa.int64()))
    rows = pa.concat_tables([joined, alone.filter(pa.array(kept))])
    return rows.sort_by([("source", "ascending"), ("unit", "ascending"), ("host", "ascending")]), rest


def _aligned(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """The tables as one. What came by network lies unaligned: it is copied."""
    table = pa.concat_tables([schema.empty_table(), *tables])
    return table.take(pa.array(np.arange(len(table))))


@dataclass(frozen=True)
class Members:
    """The rows of `MEMBERS` of a partition's documents that belong to the units chosen, ids in the column `group` of a
    published file: the list may be too long to travel with each task."""

    domain: bool
    work: Folder
    chosen: PublishedFile

    def __call__(self, partition: Partition) -> pa.Table:
        columns = ["doc_id", "source", "cluster_id", "text"]
        docs = partition.read([*columns, "url"] if self.domain else columns)
        chosen = read_table(self.work / self.chosen.path, self.chosen.xxh3)["group"].combine_chunks()
        mask = pc.is_in(units(docs, self.domain)["unit"], value_set=chosen)
        docs = docs.filter(mask)
        size = pc.cast(pc.binary_length(docs["text"]), pa.int64())
        ones = pa.array(np.ones(len(docs), np.int64))
        table = pa.table({"source": docs["source"], "group": groups_of(docs), "docs": ones, "bytes": size})
        return members([table.cast(MEMBERS)])


def members(tables: list[pa.Table]) -> pa.Table:
    """Tables of `MEMBERS` as one, summed by source and group and sorted by it."""
    table = _aligned(tables, MEMBERS).group_by(["source", "group"], use_threads=False)
    table = table.aggregate([("docs", "sum"), ("bytes", "sum")]).rename_columns(MEMBERS.names).cast(MEMBERS)
    return table.sort_by([("source", "ascending"), ("group", "ascending")])


def integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A column of numbers without nulls as int64."""
    return np.asarray(column.to_numpy(), dtype=np.int64)


@dataclass(frozen=True)
class Components:
    """The components of a corpus.

    `units`: sorted ids, each once. `component` int64[U]: the least unit of the component of each. By row, a pair of a
    source and a component: `source` (place in `names`), `of` (component), `docs`, `bytes`, `groups` (clusters, and
    documents of none), int64 each. By source: `rest_docs`, `rest_bytes` and `rest_groups`, int64, of
    documents that have no row, and `complete`, uint64, the hash up to which groups have one.
    """

    names: list[str]
    units: pa.Array
    component: I64
    source: I64
    of: I64
    docs: I64
    bytes: I64
    groups: I64
    rest_docs: I64
    rest_bytes: I64
    rest_groups: I64
    complete: npt.NDArray[np.uint64]
    largest: dict[str, Any] | None  # the component with most bytes, where hosts join units


def components_of(rows: pa.Table, rest: pa.Table | None = None) -> Components:
    """The components of `measure.ROWS` and `measure.REST`, as `measure.merged` gives them."""
    rest = REST.empty_table() if rest is None else rest
    units = pc.unique(rows["unit"]).sort() if len(rows) else pa.array([], ID)
    names = sorted({*pc.unique(rows["source"]).to_pylist(), *rest["source"].to_pylist()})
    of_unit = integers(pc.index_in(rows["unit"], value_set=units))
    of_source = integers(pc.index_in(rows["source"], value_set=pa.array(names, pa.string())))
    docs, sizes = integers(rows["docs"]), integers(rows["bytes"])
    named = pc.not_equal(rows["host"], "").to_numpy()
    component = np.arange(len(units))
    if named.any():
        component = _joined(rows["host"].filter(pa.array(named)), of_unit[named], len(units))
    # A document of no cluster is a group. A cluster of several hosts has as many rows: it counts once.
    groups = docs.copy()
    cluster = np.flatnonzero(rows["cluster"].to_numpy())
    order = cluster[np.lexsort((of_unit[cluster], of_source[cluster]))]
    groups[order] = 1
    groups[order[1:][(np.diff(of_unit[order]) == 0) & (np.diff(of_source[order]) == 0)]] = 0
    keys, place = np.unique(of_source * max(len(units), 1) + component[of_unit], return_inverse=True)
    row_docs, row_bytes, row_groups = (_sums(place, values, len(keys)) for values in (docs, sizes, groups))
    largest = _largest(rows, component[of_unit], sizes, docs, named) if named.any() else None
    source, of = np.divmod(keys, max(len(units), 1))
    there = integers(pc.index_in(rest["source"], value_set=pa.array(names, pa.string())))
    rest_docs, rest_bytes, rest_groups = (
        _sums(there, integers(rest[name]), len(names)) for name in ("docs", "bytes", "groups")
    )
    complete = np.full(len(names), ALL, np.uint64)
    complete[there] = rest["complete"].to_numpy()
    return Components(
        names, units, component, source, of, row_docs, row_bytes, row_groups,
        rest_docs, rest_bytes, rest_groups, complete, largest,
    )  # fmt: skip


def _sums(place: I64, values: I64, count: int) -> I64:
    total = np.zeros(count, np.int64)
    np.add.at(total, place, values)
    return total


def _joined(host: pa.ChunkedArray, of_unit: I64, count: int) -> I64:
    """int64[count]: the component of each unit, of which those in `of_unit` have the hosts `host`."""
    from corpusmill.pipeline.engine.unionfind import components

    number = integers(pc.index_in(host, value_set=pc.unique(host)))
    joined: I64 = components(count + int(number.max()) + 1, of_unit, number + count)[:count]
    return joined


def _largest(rows: pa.Table, of: I64, sizes: I64, docs: I64, named: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The component with most bytes (the first of equals), in words: documents, bytes, sources, hosts."""
    joined = named | rows["cluster"].to_numpy()  # documents that are alone have no row each
    mine = joined & (of == int(_sums(of[joined], sizes[joined], int(of.max()) + 1).argmax()))
    hosts = rows.select(["host", "bytes"]).filter(pa.array(mine & named))
    hosts = hosts.group_by("host", use_threads=False).aggregate([("bytes", "sum")])
    hosts = hosts.sort_by([("bytes_sum", "descending"), ("host", "ascending")])
    return {
        "docs": int(docs[mine].sum()),
        "bytes": int(sizes[mine].sum()),
        "sources": pc.unique(rows["source"].filter(pa.array(mine))).sort().to_pylist(),
        "hosts": len(hosts),
        "largest_hosts": hosts["host"].to_pylist()[:HOSTS_NAMED],
    }
