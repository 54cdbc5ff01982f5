"""Which groups are validation: a pure function of the groups, the share and the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.splits import hash_ids
from schemas.documents import ID

# One row per (source, group): documents and bytes of text.
ROWS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("group", ID, nullable=False),
        pa.field("docs", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)


class Choice(NamedTuple):
    """The validation groups, sorted, and per source what each split holds."""

    groups: pa.Array
    sources: dict[str, dict[str, dict[str, int]]]


def collect(
    source: pa.ChunkedArray, group: pa.ChunkedArray, docs: pa.Array, size: pa.ChunkedArray
) -> pa.Table:
    """Rows of `ROWS`, summed by (source, group) and sorted by it."""
    table = pa.table({"source": source, "group": group, "docs": docs, "bytes": size})
    summed = table.group_by(["source", "group"], use_threads=False).aggregate(
        [("docs", "sum"), ("bytes", "sum")]
    )
    summed = summed.rename_columns(["source", "group", "docs", "bytes"]).cast(ROWS)
    return summed.sort_by([("source", "ascending"), ("group", "ascending")])


def choose(rows: pa.Table, share: float, min_groups: int, seed: int) -> Choice:
    """Per source (in the order of their names) the groups with the smallest hash, until they hold `share` of
    its bytes and number `min_groups`. `rows` as `collect` makes them; `share` 0 chooses nothing.

    A group chosen for one source is validation in all of them, and counts towards each. No source loses its
    last group of train, and none more than half of its bytes to a group that its share does not need: where
    every group is so large, the smallest is taken. So a source of one group has no validation.
    """
    names = pc.unique(rows["source"]).sort().to_pylist() if len(rows) else []
    groups = pc.unique(rows["group"]).sort() if len(rows) else pa.array([], ID)
    gid = pc.index_in(rows["group"], value_set=groups).to_numpy()
    sid = pc.index_in(rows["source"], value_set=pa.array(names, pa.string())).to_numpy()
    docs, sizes = rows["docs"].to_numpy(), rows["bytes"].to_numpy()
    order_key = hash_ids(groups, seed)
    by_group = np.argsort(gid, kind="stable")  # the rows of group g: by_group[starts[g]:starts[g + 1]]
    starts = np.searchsorted(gid[by_group], np.arange(len(groups) + 1))
    chosen = np.zeros(len(groups), dtype=bool)
    left = np.bincount(sid, minlength=len(names))  # groups of train per source

    def may_go(group: int) -> bool:
        return bool(np.all(left[sid[by_group[starts[group] : starts[group + 1]]]] > 1))

    def take(group: int) -> None:
        chosen[group] = True
        left[sid[by_group[starts[group] : starts[group + 1]]]] -= 1

    if share > 0:
        for source in range(len(names)):
            mine = np.flatnonzero(sid == source)
            mine = mine[np.lexsort((gid[mine], order_key[gid[mine]]))]
            _fill(mine, gid, sizes, chosen, share, min_groups, may_go, take)
    summary = {}
    for source, name in enumerate(names):
        mine = sid == source
        summary[name] = {
            split: {
                "docs": int(docs[mine & part].sum()),
                "bytes": int(sizes[mine & part].sum()),
                "groups": int((mine & part).sum()),
            }
            for split, part in (("train", ~chosen[gid]), ("validation", chosen[gid]))
        }
    return Choice(groups.filter(pa.array(chosen)), summary)


def _fill(
    mine: npt.NDArray[np.int64], gid: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.bool_],
    share: float, min_groups: int, may_go: Callable[[int], bool], take: Callable[[int], None],
) -> None:  # fmt: skip
    """Choose for one source, whose rows `mine` are in the order of the hash."""
    total = int(sizes[mine].sum())
    already = mine[chosen[gid[mine]]]
    have, count = int(sizes[already].sum()), len(already)
    large = []
    for row in mine.tolist():
        if have >= share * total and count >= min_groups:
            return
        group = int(gid[row])
        if chosen[group] or not may_go(group):
            continue
        if have + int(sizes[row]) > max(share, 0.5) * total:
            large.append((int(sizes[row]), group))
            continue
        take(group)
        have, count = have + int(sizes[row]), count + 1
    if count == 0 and large and min_groups > 0:
        take(min(large)[1])
