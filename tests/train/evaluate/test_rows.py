"""Queries become rows in which each token is read once for all that share it, and no answer is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.train.evaluate.rows import ROW, Query, packed, trees
from corpusmill.train.model.losses import IGNORED

TOKENS = st.lists(st.integers(1, 50), min_size=1, max_size=9)
QUERIES = st.lists(st.builds(Query, TOKENS, TOKENS), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(QUERIES, st.integers(9, 20), st.integers(1, 4), st.integers(4, 40))
def test_each_query_has_its_tokens_and_its_labels(
    queries: list[Query], longest: int, rows: int, row: int
) -> None:
    seen = []
    for batch, places in packed(queries, longest, rows, row):
        tokens, labels, documents, positions, ancestors = batch.values()
        assert len(tokens) <= rows and int((labels != IGNORED).sum()) == sum(p.last - p.first for p in places)
        for query, line, first, last in places:
            seen.append(query)
            context, continuation = queries[query]
            assert labels[line, first:last].tolist() == list(continuation)
            # What the branch sees, in the order of positions, is the end of context and continuation.
            own = int(documents[line, first])
            visible = ancestors[line, own][documents[line]]
            visible[last:] = False
            order = positions[line][visible].argsort()
            read = tokens[line][visible][order].tolist()
            whole = [*context, *continuation][:-1]
            assert read == whole[-len(read) :] and len(read) == min(len(whole), longest)
            assert sorted(positions[line][visible].tolist()) == list(range(len(read)))
    assert sorted(seen) == list(range(len(queries)))


def test_choices_share_their_context() -> None:
    four = [Query([9, 8, 7, 6], [n, n]) for n in range(1, 5)]
    (tree,) = trees(four, 100)
    assert tree.size == 3 + 4 * 2 and tree.numbers == [0, 1, 2, 3]
    assert [t.size for t in trees(four, 4)] == [4] * 4  # too long to share: the beginning of each is cut off


def test_thousands_of_continuations_of_one_context_are_many_rows() -> None:
    many = [Query([0], [n % 50 + 1] * (n % 9 + 1)) for n in range(3000)]
    batches = list(packed(many, 64, rows=4))
    assert sorted(place.query for one in batches for place in one.places) == list(range(3000))
    assert max(len(one.batch["tokens"]) for one in batches) == 4
    assert max(one.batch["tokens"].shape[1] for one in batches) <= ROW
    long = [Query([*range(1, 1000)], [n, n]) for n in range(1, 400)]
    found = trees(long, 2000)
    assert len(found) == 1 and found[0].size == 998 + 399 * 2, "branches may double a trunk"
    assert len(trees([*long, *long], 2000)) == 2
    assert [len(one.batch["tokens"]) for one in packed([*long, *long], 2000, rows=8)] == [2], (
        "of 8 x 512 positions"
    )
