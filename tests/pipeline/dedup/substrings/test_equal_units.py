"""Who is repeated, who comes first, what becomes of the others: against plain definitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.substrings import substring_job
from corpusmill.pipeline.dedup.substrings.anchor_kernels import UNIT
from corpusmill.pipeline.dedup.substrings.substring_job import BLOCK, CONTESTED, GONE, STAYS, WINDOW

SMALL = st.integers(0, 3)


def spread(value: int) -> int:
    """Small numbers as hashes, some of them far apart, some neighbours."""
    return value * 0x5555555555555555 % 2**64


@given(st.lists(st.tuples(SMALL, st.booleans())))
def test_repeated(found: list[tuple[int, bool]]) -> None:
    anchors = np.array([spread(value) << 1 & (2**64 - 1) | many for value, many in found], np.uint64)
    counts = Counter((anchors >> np.uint64(1)).tolist())
    expected = [
        many or counts[int(anchor) >> 1] > 1 for (_, many), anchor in zip(found, anchors, strict=True)
    ]
    assert substring_job.repeated(anchors).tolist() == expected


@given(st.lists(st.tuples(SMALL, SMALL)))
def test_group(found: list[tuple[int, int]]) -> None:
    key = np.array([spread(a) for a, _ in found], np.uint64)
    check = np.array([spread(b) for _, b in found], np.uint64)
    which, firsts = substring_job.group(key, check)
    order = list(dict.fromkeys(found))
    assert which.tolist() == [order.index(pair) for pair in found]
    assert firsts.tolist() == [found.index(pair) for pair in order]


@given(st.lists(st.tuples(SMALL, st.integers(0, 2), SMALL)))
def test_beaten(found: list[tuple[int, int, int]]) -> None:
    windows = np.array([(spread(key), check, order) for key, check, order in found], WINDOW)
    flags = substring_job.beaten(*(np.ascontiguousarray(windows[name]) for name in ("key", "check", "order")))
    expected = [
        any(other[:2] == mine[:2] and (other[2], j) < (mine[2], i) for j, other in enumerate(found))
        for i, mine in enumerate(found)
    ]
    assert flags.tolist() == [GONE if out else STAYS for out in expected]


@given(st.lists(st.tuples(SMALL, st.integers(0, 2), st.integers(0, 2), SMALL)))
def test_settle(found: list[tuple[int, int, int, int]]) -> None:
    blocks = np.array([(spread(key), check, rank, ident) for key, check, rank, ident in found], BLOCK)
    fates = substring_job.settle(blocks).tolist()
    for i, (key, check, *order) in enumerate(found):
        same = [(other[2:], j) for j, other in enumerate(found) if other[:2] == (key, check)]
        checks = {other[1] for other in found if other[0] == key}
        if min(same)[1] != i:
            assert fates[i] == GONE
        elif len(checks) == 1:
            assert fates[i] == STAYS
        else:
            assert fates[i] >= CONTESTED
            for j, other in enumerate(found):
                if other[0] == key and fates[j] >= CONTESTED and other[2:] != tuple(order):
                    assert (fates[i] < fates[j]) == (tuple(order) < other[2:])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), SMALL), max_size=30),
    st.lists(st.sampled_from([STAYS, GONE, CONTESTED, CONTESTED + 3]), min_size=4, max_size=4),
    st.integers(1, 10),
)
def test_fates(found: list[tuple[int, int, int]], flags: list[int], n: int) -> None:
    found.sort()
    row, token = (np.array([entry[i] for entry in found], np.uint32) for i in (0, 1))
    key = np.array([entry[2] for entry in found], np.uint64)
    which, firsts = substring_job.group(key, key)
    of_group = np.array([flags[int(key[first])] for first in firsts], np.uint32)
    fates = substring_job.fates(row, token, which, firsts, of_group, n)
    for i, (r, t, value) in enumerate(found):
        first = next(entry for entry in found if entry[2] == value)
        apart = r != first[0] or t >= first[1] + n
        assert fates[i] == (GONE if apart else flags[value])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 5)), max_size=20),
    st.integers(1, 6),
)
def test_union(found: list[tuple[int, int, int]], n: int) -> None:
    """Texts whose tokens have three bytes each."""
    units = np.zeros(len(found), UNIT)
    for unit, (row, token, count) in zip(units, sorted(found), strict=True):
        unit["row"], unit["token"], unit["count"] = row, token, count
        unit["start"], unit["length"] = 3 * token, 3 * (count - 1 + n)
    covered = {(row, t) for row, token, count in found for t in range(token, token + count - 1 + n)}
    spans = substring_job.union(units, n).tolist()
    assert spans == sorted(spans)
    assert {(row, t) for row, start, stop, _ in spans for t in range(start // 3, stop // 3)} == covered
    assert sum(size for *_, size in spans) == len(covered), "apart, and their tokens counted"
    assert all(stop - start == 3 * size for _, start, stop, size in spans)
