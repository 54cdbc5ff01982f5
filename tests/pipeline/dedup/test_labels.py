"""Clusters of all forests, in bounded files, against scipy's components of the whole graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.exact_similarity import label
from corpusmill.pipeline.dedup.job import EDGE, LABEL, Job
from corpusmill.pipeline.engine.shuffle import Done, by_part, read_slices, write
from corpusmill.schemas.dedup import DedupParams

# Locations in three partitions, the planted ones far above.
TEXT = st.builds(lambda part, row: part << 32 | row, st.sampled_from([0, 1, 7]), st.integers(0, 12))
EDGES = st.lists(st.lists(st.tuples(TEXT, TEXT), max_size=12), max_size=5)


class Small(Job):
    """A job that holds two members, or four labels, at once."""

    @property
    def budget(self) -> int:
        return 16 * self.member.itemsize


def job_of(kind: type[Job]) -> Job:
    work = Folder("memory://labels")
    work.delete()
    return kind(work, DedupParams(), Banding(1, 1), 1, 1, (), 0.0, "")


@given(EDGES)
def test_labels_are_the_components(forests: list[list[tuple[int, int]]]) -> None:
    job = job_of(Small)
    dones = []
    for number, forest in enumerate(forests):
        file = write(
            job.work, f"{number}.forest", np.array([pair for pair in forest if pair[0] != pair[1]], EDGE)
        )
        dones.append(Done(key="", files={"forest": file}))
    files, labels = label(job, dones)
    pairs = np.array([pair for forest in forests for pair in forest if pair[0] != pair[1]], np.int64).reshape(
        -1, 2
    )
    nodes, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(-1, 2)
    expected = nodes
    if len(nodes):
        graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(nodes),) * 2)
        _, component = connected_components(graph, directed=False)
        expected = np.array([nodes[component == own].min() for own in component])
    np.testing.assert_array_equal(labels.of(nodes), expected)
    np.testing.assert_array_equal(labels.of(np.array([13, 8 << 32])), [-1, -1])

    found = by_part([Done(key="", files={"labels": file}) for file in files], "labels")
    assert set(found) == set((nodes >> 32).tolist())
    published = [read_slices(job.work, found[part], LABEL) for part in sorted(found)]
    whole = np.concatenate([np.empty(0, LABEL), *published])
    np.testing.assert_array_equal(whole["location"], nodes)
    np.testing.assert_array_equal(whole["cluster"], expected)
    # Ranges: clusters by name, each whole in the range of its first member, so many members to a range.
    order = np.lexsort((nodes, expected))
    first: dict[int, int] = {}
    for place, cluster in enumerate(expected[order].tolist()):
        first.setdefault(cluster, place // 2)
    np.testing.assert_array_equal(whole["range"], [first[cluster] for cluster in expected.tolist()])


def test_files_are_the_same_however_the_edges_came() -> None:
    job = replace(job_of(Job), key="a")
    pairs = np.array([(1, 5), (5, 9), (2, 3)], EDGE)
    made = []
    for cut in ([pairs], [pairs[2:], pairs[:2]], [pairs[[1]], pairs[[0]], pairs[[2]]]):
        dones = [
            Done(key="", files={"forest": write(job.work, f"{number}.forest", some)})
            for number, some in enumerate(cut)
        ]
        made.append([file.file.xxh3 for file in label(job, dones)[0]])
    assert made[0] == made[1] == made[2] and len(made[0]) == 1
