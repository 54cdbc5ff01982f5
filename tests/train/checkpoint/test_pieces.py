"""Boxes of whole tensors, from what a process holds and how it was cut; without any process group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.train.checkpoint import pieces_of
from corpusmill.train.parallel.sharded_parameter import Cut, Cuts


def cut(dim: int, index: int, count: int) -> Cut:
    return Cut("tensor", dim, index, count, NO_GROUP)


NO_GROUP: Any = None
CUTS: Cuts = {
    "w": (cut(0, 1, 2),),
    "stack": (cut(0, 2, 3), cut(2, 1, 4)),
    "twice": (cut(0, 1, 2), cut(0, 2, 3)),
}
TENSORS = {
    "w": torch.zeros(4, 6),
    "stack": torch.zeros(2, 5, 3),
    "twice": torch.zeros(4),
    "free": torch.zeros(7),
}


def boxes(states: dict[str, Tensor]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    found = pieces_of({**TENSORS, **states}, CUTS)
    return {name: (piece.shape, piece.offsets) for name, piece in found.items()}


def test_cut_tensors_lie_where_they_were_cut() -> None:
    found = boxes({})
    assert found["w"] == ((8, 6), (4, 0))
    assert found["stack"] == ((6, 5, 12), (4, 0, 3))
    assert found["twice"] == ((24,), (20,))  # the second half's third third
    assert found["free"] == ((7,), (0,))


def test_states_are_cut_as_their_parameters() -> None:
    found = boxes(
        {
            "exp_avg/stack": torch.zeros(2, 5, 3), "step/stack": torch.zeros(()), "exp_avg/free": torch.zeros(7),
            "row_var/w": torch.zeros(4, 1), "col_var/w": torch.zeros(1, 6), "row_var/stack": torch.zeros(2, 5, 1),
        }
    )  # fmt: skip
    assert found["exp_avg/stack"] == found["stack"] and found["exp_avg/free"] == found["free"]
    assert found["step/stack"] == ((), ())
    assert found["row_var/w"] == ((8, 1), (4, 0))
    assert found["col_var/w"] == ((1, 6), (0, 0))  # reduced over the processes that share w: the same in each
    assert found["row_var/stack"] == ((6, 5, 1), (4, 0, 0))


@pytest.mark.parametrize("shape", [(2, 6), (24,), (4, 6, 1)])
def test_a_state_of_unknown_place_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="^codes/w: parallelism cut this parameter, .* is unknown"):
        boxes({"codes/w": torch.zeros(shape)})


def test_a_piece_is_the_live_tensor() -> None:
    found = pieces_of(TENSORS, CUTS)["w"]
    found.local.fill_(3)
    assert (TENSORS["w"] == 3).all()
    TENSORS["w"].zero_()
