"""Dropout by a counter: the share it promises, another mask for another key, and each part of a sequence by itself."""

from __future__ import annotations

import pytest
import torch

from corpusmill.train.model.layer import dropout
from corpusmill.train.model.split import WHOLE, Split


class Part(Split):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def keys(*values: int) -> torch.Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_and_the_mean_are_kept(share: float) -> None:
    x = torch.ones(4, 256, 130)
    y = dropout(x, share, keys(1, 2, 3, 4), 0, WHOLE)
    assert float((y == 0).float().mean()) == pytest.approx(share, abs=4e-3)
    assert float(y.mean()) == pytest.approx(1.0, rel=2e-2 if share > 0.8 else 6e-3)
    assert len(y.unique()) == 2


def test_masks_are_functions_of_key_place_and_position() -> None:
    x = torch.ones(2, 64, 37)
    y = dropout(x, 0.5, keys(7, 8), 0, WHOLE)
    assert torch.equal(y, dropout(x, 0.5, keys(7, 8), 0, WHOLE))
    assert torch.equal(y[1], dropout(x[:1], 0.5, keys(8), 0, WHOLE)[0])
    for other in (
        dropout(x, 0.5, keys(9, 10), 0, WHOLE),
        dropout(x, 0.5, keys(7, 8), 1, WHOLE),
        y.flip(0),
        y.flip(1),
    ):
        assert 0.45 < float(((other == 0) == (y == 0)).float().mean()) < 0.55
    parts = [
        dropout(piece, 0.5, keys(7, 8), 0, Part(rank, 4)) for rank, piece in enumerate(x.chunk(4, dim=1))
    ]
    assert torch.equal(torch.cat(parts, dim=1), y)


def test_nothing_is_dropped_without_a_key_or_a_share() -> None:
    x = torch.randn(2, 8, 6)
    assert dropout(x, 0.5, None, 0, WHOLE) is x and dropout(x, 0.0, keys(1, 2), 0, WHOLE) is x
