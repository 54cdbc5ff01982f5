"""How sequences are shared: each position once, the same work for all."""

from __future__ import annotations

import pytest
import torch

from corpusmill.train.parallel.context import Context


def part(rank: int, size: int) -> Context:
    context = Context.__new__(Context)
    context.rank, context.size = rank, size
    return context


@pytest.mark.parametrize(("length", "size"), [(8, 2), (96, 4), (4096, 16)])
def test_each_position_is_one_process_s_and_all_attend_to_as_many(length: int, size: int) -> None:
    each = length // size
    places = [part(rank, size).places(torch.arange(each), each) for rank in range(size)]
    assert torch.cat(places).sort().values.tolist() == list(range(length))
    # A position attends to those up to itself; two chunks from opposite ends balance to one position of each other.
    assert {int((own + 1).sum()) for own in places} == {length * (length + 1) // 2 // size}
    assert all((own.diff() > 0).all() for own in places)


def test_rows_are_cut_and_documents_stay_whole() -> None:
    rows = torch.arange(24).view(2, 12)
    given = {
        "tokens": rows,
        "labels": rows + 1,
        "positions": rows % 12,
        "documents": rows // 5,
        "n": torch.tensor([3, 4]),
    }
    found = part(1, 3).cut(given)
    assert found["places"].tolist() == [[2, 3, 8, 9]] * 2
    assert found["tokens"].tolist() == [[2, 3, 8, 9], [14, 15, 20, 21]]
    assert found["positions"].tolist() == found["places"].tolist()
    assert torch.equal(found["labels"], found["tokens"] + 1)
    assert found["documents"] is given["documents"] and found["n"] is given["n"]
