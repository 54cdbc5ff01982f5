"""The stream: any rank count gives one stream, resume at every n, bad blocks named, documents kept apart."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.data import StreamingTokens
from corpusmill.train.data.order import order
from corpusmill.train.data.planning import epochs
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.validation import sample, whole
from tests.train.conftest import EOS, write_shards

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


# Every way to cut a stream that has an arm of its own in the code.
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stages": {"stages": [{"from_step": 5, "weights": {"wiki": 1, "code": 1}}, {"from_step": 9, "temperature": 3}]},
    "ramps": {"batch_ramp": {3: 32, 6: 64}, "sequence_ramp": {4: 6, 7: 12}, "lanes": 32, "global_batch": 16},
    "best_fit": {"packing": "best_fit", "sequence_ramp": {4: 8}, "global_batch": 24, "batch_ramp": {4: 72}},
    "shares": {"weights": {"wiki": 0.3, "books": 0.45, "code": 0.25}, "global_batch": 16},
    "skips": {"skip": {1: 2, 6: 1, 7: 3}, "cross_documents": True},
}  # fmt: skip


def joined(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The batch of one process, of its parts."""
    found = {
        name: torch.cat([part[name] for part in parts])
        for name in parts[0]
        if name not in ("cu_seqlens", "max_seqlen")
    }
    ends = torch.cat([torch.zeros(1, dtype=torch.int32), *(p["cu_seqlens"].diff() for p in parts)])
    return {
        **found, "cu_seqlens": ends.cumsum(0, dtype=torch.int32),
        "max_seqlen": torch.stack([part["max_seqlen"] for part in parts]).max(),
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("world", "prefetch"), [(2, 0), (4, 3), (8, 1)])
def test_ranks_put_together_give_the_batch_of_one(
    shards: Folder, shape: str, world: int, prefetch: int
) -> None:
    with stream(shards, **SHAPES[shape]) as one:
        alone = take(one, 12)
    ranks = [
        stream(
            shards,
            dp_rank=rank,
            dp_world=world,
            prefetch=prefetch,
            fetch={"threads": 1 + rank % 3},
            **SHAPES[shape],
        )
        for rank in range(world)
    ]
    for expected in alone:
        assert same(expected, joined([next(rank) for rank in ranks]))
    for rank in ranks:
        rank.close()


def test_shares_that_a_batch_cannot_hold_are_exact_over_the_fewest_that_can_on_any_number_of_ranks(
    shards: Folder,
) -> None:
    for world in (1, 2, 4, 16):
        ranks = [stream(shards, dp_rank=r, dp_world=world, **SHAPES["shares"]) for r in range(world)]
        found = np.array(
            [
                sum(np.bincount(next(rank)["source_id"].numpy(), minlength=3) for rank in ranks)
                for _ in range(10)
            ]
        )
        exact = 16 * np.array([{"wiki": 0.3, "books": 0.45, "code": 0.25}[name] for name in ranks[0].sources])
        assert (np.abs(found - exact) < 1).all()
        assert (found.reshape(2, 5, 3).sum(1) == np.round(5 * exact)).all()
        for rank in ranks:
            rank.close()


@pytest.mark.parametrize("batch", [6, 12])
def test_every_number_of_ranks_that_divides_the_batch_reads_each_sequence_once(
    shards: Folder, batch: int
) -> None:
    """Brute force: (source, epoch, block, sequence) of the first epochs, for each world and two numbers of threads."""
    from corpusmill.train.data.order import order

    seen: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for world in (n for n in range(1, batch + 1) if batch % n == 0):
        for threads in (1, 3):
            numbers: list[int] = []
            ranks = [
                stream(shards, global_batch=batch, dp_rank=r, dp_world=world, fetch={"threads": threads})
                for r in range(world)
            ]
            for _ in range(120 // batch * 6):
                for rank in ranks:
                    numbers += next(rank)["n"].tolist()
            at = order(ranks[0].plan, np.array(numbers))
            seen[world, threads] = sorted(zip(*(column.tolist() for column in at), strict=True))
            for rank in ranks:
                rank.close()
    first = seen.popitem()[1]
    assert len(first) == len(set(first)) == 720
    assert all(found == first for found in seen.values())
    plan = stream(shards, global_batch=batch).plan
    for number, source in enumerate(plan.sources):
        epochs = [sum(s == number and e == epoch for s, e, *_ in first) for epoch in (0, 1)]
        assert epochs[0] == source.sequences.total


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_knows_how_many_tokens_of_a_step_are_scored(shards: Folder, shape: str) -> None:
    """So that no process has to ask the others: the trainer divides by this number."""
    with stream(shards, **SHAPES[shape]) as whole_stream:
        for step in range(1, 13):
            planned = whole_stream.plan.segment_of(step).stage.sequences * whole_stream.plan.sequence_length
            assert int((next(whole_stream)["labels"] >= 0).sum()) == planned


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_changes_its_number_of_ranks_is_the_unbroken_one(shards: Folder, shape: str) -> None:
    with stream(shards, **SHAPES[shape]) as one:
        expected = take(one, 18)
    found, state = [], stream(shards, **SHAPES[shape]).state_dict()
    for world, steps in ((4, 5), (2, 6), (8, 7)):
        ranks = [stream(shards, dp_rank=rank, dp_world=world, **SHAPES[shape]) for rank in range(world)]
        for rank in ranks:
            rank.load_state_dict(state)
        found += [joined([next(rank) for rank in ranks]) for _ in range(steps)]
        states = [json.loads(json.dumps(rank.state_dict())) for rank in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
        for rank in ranks:
            rank.close()
    assert all(same(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_resume_at_every_n_on_another_number_of_ranks(shards: Folder, shape: str) -> None:
    with stream(shards, **SHAPES[shape]) as one:
        states, batches = [], []
        for _ in range(30):
            states.append(json.loads(json.dumps(one.state_dict())))
            batches.append(next(one))
    half = stream(shards, dp_rank=1, dp_world=2, prefetch=1, **SHAPES[shape])
    for at in random.Random(1).sample(range(30), 30):  # backwards and forwards, with batches still ahead
        half.load_state_dict(states[at])
        assert (half.n, half.step) == (states[at]["n"], at)
        found = next(half)
        rows = len(found["n"])
        assert all(
            torch.equal(found[name], batches[at][name][rows:])
            for name in ("tokens", "labels", "documents", "n")
        )
    half.close()


def test_another_plan_is_refused_with_the_difference_named(shards: Folder, tmp_path: Path) -> None:
    with stream(shards) as one:
        take(one, 6)
        state = one.state_dict()
    for options, named in [
        ({"seed": 4}, "seed: 3 -> 4"),
        ({"sequence_length": 20}, "sequence_length: 24 -> 20"),
        ({"packing": "best_fit"}, "packing: windows -> best_fit"),
        ({"weights": {"wiki": 1, "books": 1, "code": 1}}, "stages.1.slots.wiki: 4 -> 8"),
        ({"weights": {"wiki": 1, "books": 1}}, "sources.code: there -> absent"),
        ({"stages": [{"from_step": 6, "weights": {"wiki": 1}}]}, "stages.6: absent -> there"),
        ({"skip": {5: 1}}, "skip.5: absent -> 1"),
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


def test_what_is_still_to_come_may_change(shards: Folder) -> None:
    messages: list[str] = []
    with stream(shards) as one:
        take(one, 6)
        state = one.state_dict()
        unbroken = take(one, 9)
    changed = {"stages": [{"from_step": 10, "weights": {"books": 1}}], "skip": {7: 2, 12: 1}}
    with stream(shards, log=messages.append, **changed) as other:
        other.load_state_dict(state)
        found = take(other, 9)
    assert "continuing after step 6 on a changed plan" in messages[0]
    assert all(
        same(a, b) for a, b in zip(found[:1], unbroken[2:3], strict=True)
    )  # two batches were passed over
    assert [batch["source_id"].unique().tolist() for batch in found[3:]] == [[1]] * 6
    with stream(shards, **changed) as whole:
        whole.load_state_dict({**state, "plan": whole.plan.sha256, "made_of": whole.plan.as_json()})
        assert all(same(a, b) for a, b in zip(found, take(whole, 9), strict=True))


def test_a_batch_that_is_held_is_never_written_over(shards: Folder) -> None:
    """Memory of past batches is used again, but only of those that nobody holds, not even a part of."""
    rng = random.Random(0)
    with stream(shards) as one:
        expected = [{name: tensor.clone() for name, tensor in batch.items()} for batch in take(one, 60)]
    with stream(shards) as other:
        held: list[tuple[int, torch.Tensor]] = []
        for step in range(60):
            batch = next(other)
            held.append((step, batch["labels"][rng.randrange(8)]))
            assert same(dict(batch), expected[step])
            del batch
            if len(held) > 5:
                held.pop(rng.randrange(5))
            for at, row in held:
                assert any(torch.equal(row, other_row) for other_row in expected[at]["labels"])


def test_who_writes_into_a_batch_changes_no_other(shards: Folder) -> None:
    with stream(shards, prefetch=7) as one, stream(shards, prefetch=7) as other:
        for _ in range(40):
            batch = next(other)
            assert same(dict(next(one)), dict(batch))
            for tensor in batch.values():
                tensor.fill_(1)


def test_where_documents_lie_is_part_of_a_batch(shards: Folder) -> None:
    with stream(shards) as one:
        batch = next(one)
        names = ["tokens", "labels", "source_id", "n", "documents", "positions", "cu_seqlens", "max_seqlen"]
        assert list(batch) == names and len(batch) == 8 and set(dict(batch)) == set({**batch})
        assert list(batch) == names and "documents" in batch and "other" not in batch
        with pytest.raises(KeyError, match="other"):
            batch["other"]


def test_a_state_within_a_batch_or_of_another_version_is_refused(shards: Folder) -> None:
    with stream(shards) as one:
        state = one.state_dict()
        with pytest.raises(
            WorkError, match="n 12 is not at the end of a batch of the plan; the nearest is 16"
        ):
            one.load_state_dict({**state, "n": 12})
        with pytest.raises(WorkError, match="version 1 is not supported"):
            one.load_state_dict({**state, "v": 1})


def test_a_cap_below_one_batch_is_refused(shards: Folder) -> None:
    with pytest.raises(UserError, match=r"data\.max_epochs: '.*' would be read .* times in 1 steps"):
        stream(shards, max_epochs=0.01)


@pytest.mark.parametrize("caps", [1, {"code": 2}])
def test_it_ends_before_a_source_is_read_more_often_than_it_may(shards: Folder, caps: Any) -> None:
    with stream(shards, max_epochs=caps, prefetch=5) as one:
        batches = list(one)
        assert next(one, None) is None and len(batches) > 3
        times = epochs(one.plan, len(batches) + 1)
        cap = caps if isinstance(caps, dict) else dict.fromkeys(one.sources, caps)
        assert any(times[name] > most for name, most in cap.items())
        assert all(epochs(one.plan, len(batches))[name] <= most for name, most in cap.items())
        if caps == 1:  # nothing comes twice
            rows = torch.cat([batch["n"] for batch in batches]).numpy()
            at = order(one.plan, rows)
            places = set(zip(at.source.tolist(), at.block.tolist(), at.sequence.tolist(), strict=True))
            assert len(places) == len(rows) and not at.epoch.any()
        state = one.state_dict()
        one.load_state_dict({**state, "n": 0})
        assert len(list(one)) == len(batches)


def test_a_ramp_cuts_the_same_tokens_shorter(shards: Folder) -> None:
    """Steps on short sequences see the tokens that the full length would have seen, in the same order."""
    with stream(shards) as full, stream(shards, sequence_ramp={6: 8}, batch_ramp={6: 24}) as ramp:
        for step in range(1, 10):
            a, b = next(full), next(ramp)
            assert b["tokens"].shape == ((24, 8) if step <= 6 else (8, 24))
            assert torch.equal(a["tokens"].reshape(-1), b["tokens"].reshape(-1))
            assert torch.equal(a["labels"].reshape(-1), b["labels"].reshape(-1))
            assert torch.equal(a["n"].repeat_interleave(len(b["n"]) // 8), b["n"])


def test_variable_length_attention_finds_its_documents(shards: Folder) -> None:
    with stream(shards, packing="best_fit") as packed, stream(shards, cross_documents=True) as crossing:
        for batch in take(packed, 10):
            sizes = batch["cu_seqlens"].diff()
            begins = (batch["positions"].reshape(-1) == 0).nonzero().ravel().int()
            assert torch.equal(batch["cu_seqlens"][:-1], begins) and int(batch["cu_seqlens"][-1]) == 8 * T
            assert int(sizes.max()) == int(batch["max_seqlen"]) <= T
        batch = next(crossing)
        assert not batch["documents"].any() and torch.equal(
            batch["positions"][3], torch.arange(T, dtype=torch.int32)
        )
        assert batch["cu_seqlens"].tolist() == list(range(0, 8 * T + 1, T)) and int(batch["max_seqlen"]) == T


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
    for options in ({"prefetch": 0}, {"prefetch": 7}, {"fetch": {"memory_mb": 1e-4}}):
        with stream(shards, **options) as source:
            results.append(take(source, 15))
            fetched = source.fetched["requests"]
    assert all(same(a, b) and same(a, c) for a, b, c in zip(*results, strict=True))
    assert fetched > 30  # every block again and again, with no memory to keep it


def test_each_block_is_fetched_once_when_memory_suffices(shards: Folder) -> None:
    with stream(shards) as source:
        take(source, 60)
        assert source.fetched["requests"] <= 30 and source.fetched["retries"] == 0


def test_impossible_shares_name_the_number(shards: Folder) -> None:
    with pytest.raises(UserError, match="set it to 9"):
        stream(shards, dp_world=3)
    with pytest.raises(UserError, match="dp_rank"):
        stream(shards, dp_rank=2, dp_world=2)


def test_validation_is_fixed_and_shared_by_ranks(shards: Folder) -> None:
    source = open_shards(shards.url).validation["wiki"]
    first = [batch["tokens"] for batch in sample(source, T, 200, batch=3)]
    again = [batch["tokens"] for batch in sample(source, T, 200, batch=3)]
    assert torch.equal(torch.cat(first), torch.cat(again)) and len(torch.cat(first)) == 8
    ranks = [[b["tokens"] for b in sample(source, T, 200, rank, 2, batch=3)] for rank in range(2)]
    assert sorted(torch.cat([*ranks[0], *ranks[1]]).tolist()) == sorted(torch.cat(first).tolist())
    scored = sum(int((batch["labels"] >= 0).sum()) for batch in whole(source, T, 4))
    assert scored == source.index.ntokens
