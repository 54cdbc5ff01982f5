"""Shingle sets and their similarity in plain Python: an oracle that uses no kernel of the stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import combinations
from operator import or_

from tests.pipeline.text.reference import words_of


@lru_cache(maxsize=4096)
def plain_shingles(text: str) -> frozenset[tuple[str, ...]]:
    """5-word shingles by the word rule in plain Python, as the words themselves and no hashes."""
    found = ["".join(p for character in word for p in _ordered(character)) for word in words_of(text)]
    return frozenset(tuple(found[i : i + 5]) for i in range(max(1, len(found) - 4))) if found else frozenset()


def _ordered(character: list[tuple[str, bool]]) -> list[str]:
    return [character[0][0], *sorted(point for point, _ in character[1:])]


def jaccard(one: str, two: str) -> float:
    a, b = plain_shingles(one), plain_shingles(two)
    return len(a & b) / len(a | b)


def similar(texts: Sequence[str], threshold: float) -> set[tuple[int, int]]:
    """All pairs (i < j) with Jaccard >= `threshold`, by comparing every pair of sets.

    A set is an integer here, with a bit for each shingle that more than one text has: only those can be common.
    """
    sets = [plain_shingles(text) for text in texts]
    times = Counter(shingle for shingles in sets for shingle in shingles)
    bits = {shingle: 1 << n for n, shingle in enumerate(s for s, count in times.items() if count > 1)}
    masks = [reduce(or_, (bits.get(shingle, 0) for shingle in shingles), 0) for shingles in sets]
    found = set()
    for i, j in combinations(range(len(texts)), 2):
        common = (masks[i] & masks[j]).bit_count()
        if common and common >= threshold * (len(sets[i]) + len(sets[j]) - common):
            found.add((i, j))
    return found
