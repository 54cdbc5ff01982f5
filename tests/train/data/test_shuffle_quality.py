"""How well an epoch is mixed, beside webdataset's shuffles of tars and of a buffer, on the same sequences."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from webdataset import filters

from corpusmill.train.data.order import order
from tests.train.data.toy import toy

TARS, BLOCKS, CELLS, BATCH = 8, 32, 32, 64  # sequences lie in blocks, blocks in tars; numbered through
EPOCH = TARS * BLOCKS * CELLS

Floats = npt.NDArray[np.float64]


def ours() -> npt.NDArray[np.int64]:
    """Places in the data set of one epoch's sequences, in the order of the stream."""
    plan = toy((1, (BATCH,)), chunk=CELLS, window=2, blocks=([CELLS] * (TARS * BLOCKS),))
    at = order(plan, np.arange(EPOCH))
    return at.block * CELLS + at.sequence


def webdataset(buffer: int) -> npt.NDArray[np.int64]:
    """The same through webdataset's pipeline: tars in random order, each read in a row, a shuffle buffer of samples."""
    rng = random.Random(1)
    tars = list(range(TARS))
    rng.shuffle(tars)
    size = BLOCKS * CELLS
    places = (tar * size + i for tar in tars for i in range(size))
    return np.array(list(filters._shuffle(places, bufsize=buffer, initial=buffer, rng=rng)))


def neighbours(places: npt.NDArray[np.int64]) -> float:
    """Correlation of the places of sequences that follow each other."""
    return float(np.corrcoef(places[:-1], places[1:])[0, 1])


def uneven(places: npt.NDArray[np.int64]) -> float:
    """Mean over stages of 1/16 of the stream: how far the places in it are from being spread evenly
    (Kolmogorov-Smirnov distance; 0: perfectly even, near 1: all from one spot)."""
    found = []
    for part in np.array_split(places, 16):
        ordered = np.sort(part) / EPOCH
        grid = np.arange(1, len(part) + 1) / len(part)
        found.append(max(np.abs(ordered - grid).max(), np.abs(ordered - grid + 1 / len(part)).max()))
    return float(np.mean(found))


def blocks_in_a_batch(places: npt.NDArray[np.int64]) -> float:
    """Distinct blocks that a batch draws on, mean."""
    return float(np.mean([len(set((part // CELLS).tolist())) for part in places.reshape(-1, BATCH)]))


def test_an_epoch_is_mixed_where_a_buffer_leaves_neighbours_together() -> None:
    stream, buffered = ours(), webdataset(1000)
    assert sorted(stream.tolist()) == sorted(buffered.tolist()) == list(range(EPOCH))
    # Four standard deviations of independent places; a buffer of an eighth of the epoch is well outside.
    assert abs(neighbours(stream)) < 4 / EPOCH**0.5 < 0.1 < neighbours(buffered)
    # The lanes' windows are a quarter of what a stage holds, so it is not as even as independent draws, but near.
    assert uneven(stream) < 0.15 < 0.3 < uneven(buffered)


def test_every_sequence_of_a_batch_comes_from_a_block_of_its_own() -> None:
    assert blocks_in_a_batch(ours()) == BATCH
    assert blocks_in_a_batch(webdataset(1000)) < BATCH * 0.75


def test_the_place_in_the_stream_says_nothing_of_the_place_in_the_data() -> None:
    stream = ours()
    rank = np.corrcoef(np.arange(EPOCH), stream)[0, 1]
    # Sequences of a block come within a window, so they count as one draw: 256 blocks.
    assert abs(rank) < 4 / (TARS * BLOCKS) ** 0.5


@pytest.mark.parametrize("seed", range(4))
def test_places_within_a_block_are_uniform_over_its_window(seed: int) -> None:
    plan = toy((1, (BATCH,)), chunk=CELLS, window=2, seed=seed, blocks=([CELLS] * (TARS * BLOCKS),))
    at = order(plan, np.arange(EPOCH))
    lane_position = np.arange(EPOCH) // BATCH % (2 * CELLS)
    table = np.histogram2d(at.sequence, lane_position, bins=(8, 8))[0]
    expected = EPOCH / 64
    assert ((table - expected) ** 2 / expected).sum() < 49 + 5 * (
        2 * 49
    ) ** 0.5  # chi square, 49 degrees of freedom
