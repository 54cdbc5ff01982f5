"""The stream: any rank count gives one stream, resume at every n, bad blocks named, documents kept apart."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError, WorkError
from schemas.storage import Folder
from tests.train.conftest import EOS, write_shards
from train.data import StreamingTokens
from train.data.fetch import BlockData, Blocks
from train.data.rows import IGNORED, rows, whole_block
from train.data.shards import open_shards
from train.data.validation import sample, whole

T = 24


def stream(shards: Folder, **options: Any) -> StreamingTokens:
    base: dict[str, Any] = {
        "weights": {"wiki": 2, "books": 1, "code": 1}, "sequence_length": T, "global_batch": 8,
        "window_blocks": 2, "seed": 3,
    }  # fmt: skip
    return StreamingTokens(shards.url, **{**base, **options})


def take(source: StreamingTokens, count: int) -> list[dict[str, torch.Tensor]]:
    return [next(source) for _ in range(count)]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("world", [2, 4, 8])
def test_ranks_put_together_give_the_batch_of_one(shards: Folder, world: int) -> None:
    with stream(shards) as one:
        alone = take(one, 12)
    ranks = [stream(shards, dp_rank=rank, dp_world=world, prefetch=rank) for rank in range(world)]
    for expected in alone:
        parts = [next(rank) for rank in ranks]
        assert same(expected, {name: torch.cat([part[name] for part in parts]) for name in expected})
    for rank in ranks:
        rank.close()


def test_resume_at_every_n_on_another_number_of_ranks(shards: Folder) -> None:
    with stream(shards) as one:
        states, batches = [], []
        for _ in range(30):
            states.append(json.loads(json.dumps(one.state_dict())))
            batches.append(next(one))
    half = stream(shards, dp_rank=1, dp_world=2, prefetch=1)
    for at in random.Random(1).sample(range(30), 30):  # backwards and forwards, with batches still ahead
        half.load_state_dict(states[at])
        assert half.n == at * 8
        found = next(half)
        assert same(found, {name: tensor[4:] for name, tensor in batches[at].items()})
    half.close()


def test_another_plan_is_refused_with_the_difference_named(shards: Folder, tmp_path: Path) -> None:
    with stream(shards) as one:
        state = one.state_dict()
    for options, named in [
        ({"seed": 4}, "seed: 3 -> 4"),
        ({"sequence_length": 20}, "sequence_length: 24 -> 20"),
        ({"weights": {"wiki": 1, "books": 1, "code": 1}}, "sources.wiki.lanes: 4 -> 3"),
        ({"weights": {"wiki": 1, "books": 1}}, "sources.code: there -> absent"),
    ]:
        with stream(shards, **options) as other, pytest.raises(UserError) as error:
            other.load_state_dict(state)
        assert named in str(error.value)
    moved = write_shards(Folder(tmp_path / "more"), {"wiki": 6, "books": 3, "code": 2})
    with stream(moved) as other, pytest.raises(UserError, match=r"sources\.wiki\.tokens"):
        other.load_state_dict(state)
    copy = write_shards(Folder(tmp_path / "copy"))
    with stream(copy) as other:
        other.load_state_dict(state)  # the same data elsewhere


def test_a_batch_holds_what_the_blocks_hold(shards: Folder) -> None:
    opened = open_shards(shards.url)
    with stream(shards) as source:
        for batch in take(source, 10):
            assert torch.equal(batch["tokens"][:, 1:], batch["labels"][:, :-1])
            assert batch["tokens"].shape == (8, T) and batch["tokens"].dtype == torch.int64
            # EOS is the first input of the document it comes before
            starts = batch["positions"] == 0
            assert (batch["tokens"][starts & (torch.arange(T) > 0)] == EOS).all()
            inside = ~starts
            assert (batch["tokens"][inside] != EOS).all()
            assert ((batch["documents"].diff(dim=1) == 1) == starts[:, 1:]).all()
    assert set(opened.train) == {"wiki", "books", "code"}


def test_prefetch_changes_nothing_and_the_cache_may_be_small(shards: Folder) -> None:
    results = []
    for options in ({"prefetch": 0}, {"prefetch": 7}, {"cache_mb": 1e-4}):
        with stream(shards, **options) as source:
            results.append(take(source, 15))
            fetched = source.fetched["requests"]
    assert all(same(a, b) and same(a, c) for a, b, c in zip(*results, strict=True))
    assert fetched > 30  # every block again and again, with no memory to keep it


def test_each_block_is_fetched_once_when_memory_suffices(shards: Folder) -> None:
    with stream(shards) as source:
        take(source, 60)
        assert source.fetched["requests"] <= 30 and source.fetched["retries"] == 0


@pytest.mark.parametrize("member", ["tokens", "docs"])
def test_a_corrupt_block_is_named(tmp_path: Path, member: str) -> None:
    folder = write_shards(Folder(tmp_path), {"wiki": 1})
    source = open_shards(folder.url).train["wiki"]
    shard, block = source.blocks[1]
    tar = bytearray((source.folder / shard.url).read())
    tar[(block.offset if member == "tokens" else block.docs_offset) + 130] ^= 1
    (source.folder / shard.url).write(bytes(tar))
    blocks = Blocks([source], attempts=2)
    assert len(blocks.get([(0, 0), (0, 2)])) == 2
    with pytest.raises(
        WorkError, match=r"wiki-train-000000\.tar: block wiki-train000000-000001 .*\." + member
    ):
        blocks.get([(0, 1)])
    assert blocks.retries == 1
    blocks.close()


@pytest.mark.parametrize("more", [-1, 1])
def test_an_index_with_another_number_of_documents_is_noticed(tmp_path: Path, more: int) -> None:
    source = open_shards(write_shards(Folder(tmp_path), {"wiki": 1}).url).train["wiki"]
    shard, block = source.blocks[1]
    source.blocks[1] = shard, block.model_copy(update={"ndocs": block.ndocs + more})
    blocks = Blocks([source], attempts=1)
    with pytest.raises(WorkError, match=r"000001 .*rising starts of the documents"):
        blocks.get([(0, 1)])
    blocks.close()


@pytest.mark.parametrize("fault", ["gone", "cut"])
def test_the_stream_stops_at_a_missing_or_short_shard(tmp_path: Path, fault: str) -> None:
    folder = write_shards(Folder(tmp_path), {"wiki": 2})
    file = open_shards(folder.url).train["wiki"].folder / "wiki-train-000001.tar"
    if fault == "cut":
        file.write(file.read()[:1500])
    else:
        file.parent.delete([file.name])
    with stream(folder, weights=None) as source, pytest.raises(WorkError, match=r"wiki-train-000001\.tar"):
        source._blocks.attempts = 2
        take(source, 20)


def test_a_passing_fault_changes_nothing(shards: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    with stream(shards) as source:
        expected = take(source, 10)
    healthy, chance = Folder.read_range, random.Random(0)

    def flaky(self: Folder, offset: int, size: int) -> bytes:
        fault = chance.random()
        if fault < 0.25:
            raise WorkError(f"{self.url}: 503")
        data = healthy(self, offset, size)
        return data[:-1] + bytes([data[-1] ^ 255]) if fault < 0.5 else data

    monkeypatch.setattr(Folder, "read_range", flaky)
    with stream(shards) as source:
        source._blocks.attempts = 30
        source._blocks._closed.wait = lambda seconds: False  # type: ignore[method-assign]
        assert all(same(a, b) for a, b in zip(expected, take(source, 10), strict=True))
        assert source.fetched["retries"] > 3


def test_impossible_shares_name_the_number(shards: Folder) -> None:
    with pytest.raises(UserError, match="set it to 9"):
        stream(shards, dp_world=3)
    with pytest.raises(UserError, match="dp_rank"):
        stream(shards, dp_rank=2, dp_world=2)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(2, 20))
@settings(max_examples=80, deadline=None)
def test_whole_block_scores_every_token_once(lengths: list[int], length: int) -> None:
    tokens = np.concatenate([[*range(1, n), EOS] for n in lengths]).astype(np.uint16)
    starts = np.cumsum([0, *lengths[:-1]]).astype(np.int64)
    found = whole_block(BlockData(tokens, starts), length, EOS)
    labels = found["labels"].ravel()
    assert labels[labels != IGNORED].tolist() == tokens.tolist()
    # within a document, the input is the token before the label; at its start, end-of-text
    for row in range(len(found["tokens"])):
        for i in range(length):
            at = row * length + i
            if at < len(tokens):
                expected = EOS if at in starts else tokens[at - 1]
                assert found["tokens"][row, i] == expected
                assert (found["positions"][row, i] == 0) == (at in starts or i == 0)


@given(st.lists(st.integers(1, 40), min_size=3, max_size=12), st.integers(2, 12))
@settings(max_examples=80, deadline=None)
def test_rows_keep_documents_apart(lengths: list[int], length: int) -> None:
    tokens = np.arange(sum(lengths), dtype=np.uint32)
    starts = np.cumsum([0, *lengths[:-1]]).astype(np.int64)
    block = BlockData(tokens, starts)
    count = (len(tokens) - 1) // length
    found = rows(((block, i) for i in range(count)), length)
    assert found["labels"].ravel().tolist() == list(range(1, count * length + 1))
    document = np.searchsorted(starts, found["labels"], side="right")
    assert (np.diff(found["documents"], axis=1) == np.diff(document, axis=1)).all()
    assert (found["documents"][:, 0] == 0).all() if count else True


def test_validation_is_fixed_and_shared_by_ranks(shards: Folder) -> None:
    source = open_shards(shards.url).validation["wiki"]
    first = [batch["tokens"] for batch in sample(source, T, 200, batch=3)]
    again = [batch["tokens"] for batch in sample(source, T, 200, batch=3)]
    assert torch.equal(torch.cat(first), torch.cat(again)) and len(torch.cat(first)) == 8
    ranks = [[b["tokens"] for b in sample(source, T, 200, rank, 2, batch=3)] for rank in range(2)]
    assert sorted(torch.cat([*ranks[0], *ranks[1]]).tolist()) == sorted(torch.cat(first).tolist())
    scored = sum(int((batch["labels"] >= 0).sum()) for batch in whole(source, T, 4))
    assert scored == source.index.ntokens
