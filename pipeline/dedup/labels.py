"""Which cluster each text in a verified pair belongs to: union-find over the forests of all tasks, on the driver.

The driver holds about 30 bytes for each such text, and nothing of any other: locations and a forest over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.dedup.election import WIDTH
from corpusmill.pipeline.dedup.job import EDGE, I64, LABEL, Job, parts_of
from corpusmill.pipeline.engine.shuffle import Done, File, Records, read, starts_of, write
from corpusmill.pipeline.engine.unionfind import join, roots
from corpusmill.schemas.manifest import PublishedFile

WRITING = 4  # times a label that the driver holds while it publishes it


@dataclass(frozen=True)
class Labels:
    """`location`, int64[n], ascending: texts in verified pairs; `root`, integers[n]: the place among them of the
    lowest text of the cluster, whose location is the cluster's name."""

    location: I64
    root: npt.NDArray[Any]

    def of(self, location: I64) -> I64:
        """The cluster of each text, -1 for none."""
        found = np.full(len(location), -1, np.int64)
        if len(self.location):
            row = np.searchsorted(self.location, location).clip(max=len(self.location) - 1)
            same = self.location[row] == location
            found[same] = self.location[self.root[row[same]]]
        return found


def label(job: Job, verified: Sequence[Done]) -> tuple[list[File], Labels]:
    """Publish the cluster of every text in a verified pair and the range that elects in it, `LABEL` records by
    location, cut by partition; also returned.

    A cluster is named by its lowest location: union-find whose root is the least member. Forests are read twice,
    a few at a time.
    """
    files = [done.files["forest"].file for done in verified]
    nodes = _nodes(job, files)
    parent = np.arange(len(nodes), dtype=np.int32 if len(nodes) < 1 << 31 else np.int64)
    for forest in _forests(job, files):
        join(parent, *(np.searchsorted(nodes, forest[end]) for end in ("a", "b")))
    roots(parent)
    labels = Labels(nodes, parent)
    return _publish(job, labels), labels


def _forests(job: Job, files: Sequence[PublishedFile]) -> Iterator[Records]:
    return job.work.at_once(lambda file: read(job.work, file, EDGE), files)


def _nodes(job: Job, files: Sequence[PublishedFile]) -> I64:
    """The texts in the forests, ascending."""
    ends = np.empty(2 * sum(file.rows or 0 for file in files), np.int64)
    count = 0
    for forest in _forests(job, files):
        mine = np.unique(np.r_[forest["a"], forest["b"]])
        ends[count : count + len(mine)] = mine
        count += len(mine)
    found = ends[:count]
    found.sort()
    return found[starts_of(found)]


def _publish(job: Job, labels: Labels) -> list[File]:
    """Files of bounded size. A cluster belongs to one range, that of its first member when clusters are put one
    after the other by name; ranges are filled in turn."""
    count = len(labels.location)
    most = max(1, job.budget // (WIDTH * job.member.itemsize))
    before = np.bincount(labels.root, minlength=count)
    np.cumsum(before, out=before)  # members of clusters up to this one, at the places of their roots
    rows = max(1, job.budget // (WRITING * LABEL.itemsize))
    files = []
    for number, first in enumerate(range(0, count, rows)):
        location, root = labels.location[first : first + rows], labels.root[first : first + rows]
        some = np.empty(len(location), LABEL)
        some["location"], some["cluster"] = location, labels.location[root]
        some["range"] = np.where(root > 0, before[root - 1], 0) // most
        files.append(write(job.work, f"labels/{number:06d}", some, parts_of(location)))
    return files
