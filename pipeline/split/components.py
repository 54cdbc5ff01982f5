"""What hangs together: units that share a host, and what each source has of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.split.measure import ALL, REST, integers
from corpusmill.schemas.documents import ID

I64 = npt.NDArray[np.int64]
HOSTS_NAMED = 3  # of the largest component


@dataclass(frozen=True)
class Components:
    """The components of a corpus.

    `units`: sorted ids, each once. `component` int64[U]: the least unit of the component of each. By row, a pair of a
    source and a component: `source` (place in `names`), `of` (component), `docs`, `bytes`, `groups` (clusters, and
    documents of none), int64 each. By source: `rest_docs` and `rest_bytes`, int64, of documents that are alone and
    have no row, and `complete`, uint64, the hash up to which those that are alone have one.
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
    rest_docs, rest_bytes = (_sums(there, integers(rest[name]), len(names)) for name in ("docs", "bytes"))
    complete = np.full(len(names), ALL, np.uint64)
    complete[there] = rest["complete"].to_numpy()
    return Components(
        names, units, component, source, of, row_docs, row_bytes, row_groups,
        rest_docs, rest_bytes, complete, largest,
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
