"""The loader's benches: sets that open, rows that are the set's sequences, and scripts whose answers are understood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import _loader_peers, _loader_shuffle
from bench._loader_ours import alone
from bench._loader_set import BATCH, BLOCK, SEQUENCE, cut, write_set
from bench.peers import Peer, ask
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.shards import verify_shards

BLOCKS, TARS = 1, 2
PER_SOURCE = BLOCKS * TARS * _loader_shuffle.PER_BLOCK  # sequences


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A set of four blocks, and its rows."""
    root, rows = tmp_path_factory.mktemp("set"), tmp_path_factory.mktemp("rows")
    return write_set(root, blocks=BLOCKS, tars=TARS, rows=rows), rows


def test_a_written_set_is_a_shard_set(made: tuple[str, Path]) -> None:
    assert verify_shards(Folder(made[0])) == []


def test_rows_are_the_sequences_of_a_block_and_their_last_labels(made: tuple[str, Path]) -> None:
    from corpusmill.train.data import StreamingTokens

    tokens = np.arange(2 * BLOCK, dtype=np.int64)
    rows = cut(tokens)  # type: ignore[arg-type] (numbers that tell every place)
    assert rows.shape == (2 * _loader_shuffle.PER_BLOCK, SEQUENCE + 1)
    assert rows[1, 0] == rows[0, -1] == SEQUENCE
    assert rows[_loader_shuffle.PER_BLOCK, 0] == BLOCK
    stored = {row.tobytes() for file in made[1].glob("*.npy") for row in np.load(file)}
    with StreamingTokens(made[0], sequence_length=SEQUENCE, global_batch=BATCH) as stream:
        batch = next(stream)
    for inputs, labels in zip(batch["tokens"].numpy(), batch["labels"].numpy(), strict=True):
        assert np.append(inputs, labels[-1]).astype(np.uint16).tobytes() in stored


def test_what_ours_reads_is_found_in_the_set(made: tuple[str, Path], tmp_path: Path) -> None:
    alone("order", made[0], tmp_path / "order.npy")
    at = _loader_shuffle.places(np.load(tmp_path / "order.npy"), made[1])
    assert len(at) == PER_SOURCE // BATCH * BATCH
    assert at.max() < PER_SOURCE
    assert len(np.unique(at)) > 0.9 * len(at)  # epochs of so small a set overlap at their ends
    assert alone("speed", made[0], "0.05", *_loader_peers.COLUMNS)["tokens_per_second"] > 0
    fetched = alone("epoch", made[0], "2")
    assert fetched["tokens"] == 2 * PER_SOURCE // BATCH * BATCH * SEQUENCE
    assert fetched["bytes"] >= 2 * 2 * TARS * BLOCKS * BLOCK


def test_a_script_reads_every_sequence_of_a_source_once(made: tuple[str, Path], tmp_path: Path) -> None:
    """webdataset is in the product's environment too: the script runs there as it does in its own."""
    peer = Peer("webdataset", (), "loader_webdataset.py")
    ask(peer, "order", made[0], tmp_path / "order.npy")
    at = _loader_shuffle.places(np.load(tmp_path / "order.npy"), made[1])
    assert sorted(at) == list(range(PER_SOURCE))
    answer = ask(peer, "speed", made[0], "0.05", "mixed:0", "alone:0")
    assert answer["speeds"].keys() == {"mixed:0", "alone:0"}
    assert min(*answer["speeds"].values(), answer["peak_mb"]) > 0


def test_the_faster_number_of_workers_is_kept_for_each_form() -> None:
    assert _loader_peers.fastest({"mixed:0": 1.0, "alone:0": 5.0, "mixed:2": 2.0, "alone:2": 4.0}) == [
        "mixed:2", "alone:0",
    ]  # fmt: skip
    answers = [
        {"speeds": {"mixed:2": speed}, "ours": ours} for speed, ours in ((2.0, 4.0), (4.0, 40.0), (5.0, 15.0))
    ]
    assert _loader_peers.rate("mixed:2", answers) == (4.0, 3.0, 2)


def test_a_peer_without_figures_says_why() -> None:
    row = _loader_peers.Row(_loader_peers.HF, {}, 0.0, "the package index cannot be reached")
    lines = _loader_peers.table(_loader_peers.Ours([3e6, 1e6, 2e6], 5e5, 4.44, 500.0, 501.0), [row])
    assert lines[2].startswith("| StreamingTokens | 2.0 |")
    assert lines[3].startswith("| StreamingTokens, as the trainer reads it | 0.5 | | 4.44 times |")
    assert "datasets 5.2.0 | not measured: the package index cannot be reached" in lines[4]
    assert len({line.count("|") for line in lines}) == 1


def test_the_figures_of_a_shuffle_know_order_from_chance() -> None:
    size = 200 * _loader_shuffle.PER_BLOCK
    straight = _loader_shuffle.judge(np.arange(size))
    assert straight.neighbours > 0.99 and straight.drift > 0.99 and straight.distance > 0.4
    assert straight.same_block > 0.99 and straight.blocks_per_batch < 2
    chance = _loader_shuffle.judge(np.random.default_rng(0).permutation(size))
    assert abs(chance.neighbours) < 0.02 and abs(chance.drift) < 0.02
    assert chance.distance < 2 / np.sqrt(size / _loader_shuffle.PARTS)
    assert chance.same_block < 0.01 and chance.blocks_per_batch > 28
    assert _loader_shuffle.judge(np.arange(100) // 2).repeats == 50
