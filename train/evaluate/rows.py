"""Queries as rows of a model: what several share is read once, and short ones fill a row together.

A query asks for the log-probabilities of a continuation after a context. Queries of one context make a tree: a trunk, which is the
context without its last token, and a branch for each continuation, which begins with that token, whose label is the
continuation's first. A branch sees the trunk and itself. Trees are packed into rows; none sees another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from corpusmill.train.batch import Batch
from corpusmill.train.model.losses import IGNORED

ROW = 512  # positions of a row, unless a tree has more


class Query(NamedTuple):
    """Token ids. A context has at least one token: the end-of-text token stands for none."""

    context: Sequence[int]
    continuation: Sequence[int]


class Tree(NamedTuple):
    """Queries with one context; `numbers`: their places in the list of all."""

    context: Sequence[int]
    continuations: list[Sequence[int]]
    numbers: list[int]

    @property
    def size(self) -> int:
        return len(self.context) - 1 + sum(map(len, self.continuations))


class Place(NamedTuple):
    """Where the labels of a query are."""

    query: int
    row: int
    first: int
    last: int


class Packed(NamedTuple):
    """Rows of equal length, and where the answers will be."""

    batch: Batch
    places: list[Place]


def trees(queries: Sequence[Query], longest: int, row: int = ROW) -> list[Tree]:
    """The queries by context. One that is longer than the model's `longest` positions loses the beginning of its context, as in
    lm-evaluation-harness, and shares nothing. A tree has at most `row` positions, or as many for branches as for its trunk: of
    continuations after no context there may be thousands, and attention costs the square of a row."""
    growing: dict[tuple[int, ...], Tree] = {}
    found = []
    for number, query in enumerate(queries):
        context, continuation = list(query.context), list(query.continuation)
        if not context or not continuation:
            raise ValueError(f"query {number}: context and continuation must have a token each")
        if len(continuation) > longest:
            raise ValueError(
                f"query {number}: a continuation of {len(continuation)} tokens, the model has {longest}"
            )
        over = len(context) + len(continuation) - 1 - longest
        if over > 0:
            found.append(Tree(context[over:], [continuation], [number]))
            continue
        key = tuple(context)
        tree = growing.get(key)
        if tree is None or tree.size + len(continuation) > max(row, 2 * len(context)):
            tree = growing[key] = Tree(context, [], [])
            found.append(tree)
        tree.continuations.append(continuation)
        tree.numbers.append(number)
    return found


def packed(queries: Sequence[Query], longest: int, rows: int = 16, row: int = ROW) -> Iterator[Packed]:
    """Batches that hold all queries, long trees first, so that rows of a batch are of like length: of at most `rows` rows, and
    of fewer where rows are longer than `row`."""
    ordered = sorted(trees(queries, longest, row), key=lambda tree: -tree.size)
    bins: list[list[Tree]] = []
    left: list[int] = []
    first = 0  # rows before it are full
    for tree in ordered:
        place = next((n for n in range(first, len(bins)) if left[n] >= tree.size), None)
        if place is None:
            bins.append([])
            left.append(max(row, tree.size))
            place = len(bins) - 1
        bins[place].append(tree)
        left[place] -= tree.size
        while first < len(bins) and left[first] < 2:
            first += 1
    start = 0
    while start < len(bins):
        count = max(rows * row // max(row, bins[start][0].size), 1)
        yield laid_out(bins[start : start + count])
        start += count


def laid_out(bins: Sequence[Sequence[Tree]]) -> Packed:
    """The rows of these trees. `documents` numbers trunks and branches within a row, `ancestors` [B, S, S] says which
    of them each sees."""
    width = max(sum(tree.size for tree in trees) for trees in bins)
    parts = max(sum(1 + len(tree.continuations) for tree in trees) for trees in bins) + 1
    shape = (len(bins), width)
    tokens, positions = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    labels = torch.full(shape, IGNORED)
    documents = torch.full(shape, parts - 1)  # the last one: padding
    ancestors = torch.eye(parts, dtype=torch.bool).repeat(len(bins), 1, 1)
    places = []
    for number, trees in enumerate(bins):
        at, part = 0, 0
        for tree in trees:
            trunk = list(tree.context[:-1])
            end = at + len(trunk)
            tokens[number, at:end] = torch.tensor(trunk, dtype=torch.int64)
            positions[number, at:end] = torch.arange(len(trunk))
            documents[number, at:end] = part
            root, part, at = part, part + 1, end
            for query, continuation in zip(tree.numbers, tree.continuations, strict=True):
                end = at + len(continuation)
                tokens[number, at:end] = torch.tensor([tree.context[-1], *continuation[:-1]])
                labels[number, at:end] = torch.tensor(continuation)
                positions[number, at:end] = torch.arange(len(trunk), len(trunk) + len(continuation))
                documents[number, at:end] = part
                ancestors[number, part, root] = True
                places.append(Place(query, number, at, end))
                part, at = part + 1, end
    batch = {
        "tokens": tokens, "labels": labels, "documents": documents, "positions": positions, "ancestors": ancestors,
    }  # fmt: skip
    return Packed(batch, places)
