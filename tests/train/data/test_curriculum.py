"""Curricula: what a sequence's difficulty is, in which order sequences come, once each, and the same in any number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.curriculum import CurriculumConfig
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.tables import ID
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.curriculum import Curriculum, draws_until, with_difficulties
from corpusmill.train.data.folds import block_documents
from corpusmill.train.data.inspect import describe_batch, describe_plan
from corpusmill.train.data.order import Future, order
from corpusmill.train.data.pack import best_fit
from corpusmill.train.data.plan import Plan, StageSpec
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.sequences import runs
from corpusmill.train.data.shards import Source, open_shards
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.trainer import train
from tests.train.data.test_order import assert_exact
from tests.train.data.toy import LENGTH, UNEQUAL, toy
from tests.train.restarts import crashed_at_every_step, killed_in_two_processes
from tests.train.test_resume import outcome

Make = Callable[..., dict[str, Any]]
SIGNAL = "gopher.word_count"


def value_of(doc_id: str) -> float | None:
    """A made-up signal: a number that the id decides; every ninth document has none."""
    number = int(doc_id[:6], 16)
    return None if number % 9 == 0 else float(number % 1000)


def write_signals(folder: Path, shards: Folder, without: int = 0) -> str:
    """The signals of all documents of a shard set, and of others, in two files."""
    opened = open_shards(shards.url)
    ids = sorted(
        {
            one
            for source in (*opened.train.values(), *opened.validation.values())
            for member in block_documents(source)
            for one in member.doc_ids
        }
    )
    ids = [*ids[without:], *(f"{n:032x}" for n in range(7))]
    table = pa.table(
        {
            "doc_id": pa.array([bytes.fromhex(one) for one in ids], ID),
            SIGNAL: pa.array([value_of(one) for one in ids], pa.float32()),
            "gopher.odd": pa.array([int(one, 16) % 2 == 1 for one in ids], pa.bool_()),
            "language.code": pa.array(["en"] * len(ids), pa.string()),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.slice(0, len(ids) // 2), folder / "a.parquet")
    pq.write_table(table.slice(len(ids) // 2), folder / "b.parquet")
    return str(folder)


@pytest.fixture
def signals(shards: Folder, tmp_path: Path) -> str:
    return write_signals(tmp_path / "signals", shards)


def by_token(source: Source, values: Callable[[str], float | None]) -> list[npt.NDArray[np.float64]]:
    """Of each block, the value of each token's document; NaN for none."""
    found = []
    for (_, block), member in zip(source.blocks, block_documents(source), strict=True):
        one = np.empty(block.ntokens)
        edges = [*member.token_starts, block.ntokens]
        for name, low, high in zip(member.doc_ids, edges, edges[1:], strict=False):
            value = values(name)
            one[low:high] = np.nan if value is None else value
        found.append(one)
    return found


@pytest.mark.parametrize("packing", ["windows", "best_fit"])
@pytest.mark.parametrize("which", [SIGNAL, "length", "gopher.odd"])
def test_a_sequence_is_as_hard_as_its_labels(shards: Folder, signals: str, packing: str, which: str) -> None:
    length = 24
    data = validate(
        DataConfig,
        {
            "shards": shards.url, "sequence_length": length, "packing": packing, "global_batch": 8, "micro_batch": 8,
            "curriculum": {"signal": which, "over": 5, "signals": signals},
        },
        "",
    )  # fmt: skip
    opened = with_difficulties(data, open_shards(shards.url))
    some = 0
    for source in opened.train.values():
        sizes: dict[str, float] = {}
        for (_, block), member in zip(source.blocks, block_documents(source), strict=True):
            for name, size in zip(
                member.doc_ids, np.diff([*member.token_starts, block.ntokens]), strict=True
            ):
                sizes[name] = sizes.get(name, 0) + int(size)
        kinds: dict[str, Callable[[str], float | None]] = {
            SIGNAL: value_of, "length": sizes.__getitem__,
            "gopher.odd": lambda name: float(int(name, 16) % 2),
        }  # fmt: skip
        wanted = []
        for (_, block), values, member in zip(
            source.blocks, by_token(source, kinds[which]), block_documents(source), strict=True
        ):
            count = (block.ntokens - 1) // length
            if packing == "windows":
                rows = [np.arange(i * length + 1, (i + 1) * length + 1) for i in range(count)]
            else:
                fit = best_fit(np.array(member.token_starts), block.ntokens, length, count)
                rows = [np.concatenate([np.arange(s, s + n) for s, n in row]) for row in fit]
            for row in rows:
                known = values[row][~np.isnan(values[row])]
                wanted.append(known.mean() if len(known) else np.nan)
        assert source.difficulty is not None
        np.testing.assert_allclose(source.difficulty, wanted, rtol=1e-6)
        some += int(np.isfinite(wanted).sum())
    assert some > 30


def curriculum(
    per_block: list[int], values: npt.NDArray[np.float64], draws: int, seed: int = 5, **config: Any
) -> Curriculum:
    made = CurriculumConfig(signal="length", over=1, **config)
    return Curriculum("s", seed, 1, *runs(per_block), values, draws, made)


def order_of(one: Curriculum, epoch: int) -> npt.NDArray[np.int64]:
    """The sequences of an epoch in the order of their draws, numbered through all blocks."""
    places = np.arange(one.total)
    block, sequence = one.at(np.full_like(places, epoch), places)
    return one._firsts[block] + sequence


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=25).filter(any), st.integers(0, 900), st.integers(0, 2**40),
    st.sampled_from(["linear", "sqrt"]), st.floats(0.001, 1), st.sampled_from(["ascending", "descending"]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_each_draw_comes_from_the_part_that_it_may(
    per_block: list[int], draws: int, seed: int, pacing: Any, start: float, way: Any
) -> None:
    total = sum(per_block)
    values = np.random.default_rng(seed).integers(0, 6, total).astype(np.float64)
    values[::5] = np.nan
    one = curriculum(per_block, values, draws, seed, pacing=pacing, start=start, order=way)
    rank = np.empty(total, dtype=np.int64)
    rank[one.ranks] = np.arange(total)
    sorted_values = values[one.ranks]
    known = sorted_values[~np.isnan(sorted_values)]
    assert (np.diff(known) >= 0).all() if way == "ascending" else (np.diff(known) <= 0).all()
    assert np.isnan(sorted_values[len(known) :]).all()  # what has no value comes last
    for epoch in range(3):
        found = order_of(one, epoch)
        assert sorted(found.tolist()) == list(range(total))
        # Competence written out as Platanios et al. have it.
        t = np.minimum((epoch * total + np.arange(total)) / draws, 1) if draws else np.ones(total)
        c = start + (1 - start) * t if pacing == "linear" else np.sqrt(start**2 + (1 - start**2) * t)
        assert (rank[found] < np.maximum(np.ceil(c * total), np.arange(total) + 1)).all()
        owner, chunks = one.chunks_of(np.arange(len(per_block)), epoch)
        assert (one.at(np.full_like(chunks, epoch), chunks)[0] == owner).all()


def test_draws_are_at_random_among_those_that_are_left() -> None:
    """Over many seeds every sequence of the pool is as likely; a draw of the first part is not simply the easiest."""
    counts = np.zeros(8)
    for seed in range(4000):
        one = curriculum([8], np.arange(8.0), 10**6, seed, start=0.5, pacing="linear")
        counts[order_of(one, 0)[0]] += 1
    assert (counts[4:] <= 4000 * 0.01).all() and np.abs(counts[:4] / 4000 - 0.25).max() < 0.04
    assert counts.sum() == 4000


def test_with_the_steps_of_an_epoch_it_is_a_sort() -> None:
    values = np.random.default_rng(1).random(60)
    one = curriculum([10] * 6, values, 60, start=1e-9, pacing="linear")
    assert (np.diff(values[order_of(one, 0)]) > 0).all()
    second = values[order_of(one, 1)]
    assert abs(np.corrcoef(np.arange(60), second)[0, 1]) < 0.4 and not one.orders(1)


def staged(
    stages: list[tuple[int, tuple[int, ...]]], draws: int, batch: int | None = None, **more: Any
) -> Plan:
    """The toy's plan with curricula in its first two sources."""
    plain = toy(*stages, batch=batch, **more)
    rng = np.random.default_rng(3)
    config = CurriculumConfig(signal="length", over=1)
    sources = tuple(
        replace(
            one,
            sequences=Curriculum(
                one.name, plain.seed, 1, one.sequences.counts, one.sequences.sequences, rng.random(one.sequences.total), draws,
                config,
            ),
        )
        if number < 2
        else one
        for number, one in enumerate(plain.sources)
    )  # fmt: skip
    return replace(plain, sources=sources)


STRETCHES = st.lists(
    st.tuples(st.integers(1, 30), st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))),
    min_size=1, max_size=6,
).filter(lambda found: all(any(counts) for _, counts in found))  # fmt: skip


@given(STRETCHES, st.integers(0, 200), st.integers(0, 2**30))
@settings(max_examples=80, deadline=None)
def test_changes_of_mixture_neither_lose_nor_repeat_nor_disturb_the_order(
    changes: list[tuple[int, tuple[int, int, int]]], draws: int, seed: int
) -> None:
    first, stages = 1, list[tuple[int, tuple[int, ...]]]()
    for steps, counts in changes:
        stages.append((first, counts))
        first += steps
    stages.append((first, (3, 2, 2)))
    plan = staged(stages, draws, seed=seed)
    assert_exact(plan, first + 150)
    at = order(plan, np.arange(plan.end_of(first + 150)))
    for source in (0, 1):
        sequences = plan.sources[source].sequences
        assert isinstance(sequences, Curriculum)
        mine = at.source == source
        found = sequences._firsts[at.block[mine]] + at.sequence[mine]
        wanted = np.concatenate(
            [order_of(sequences, epoch) for epoch in range(int(at.epoch[mine].max()) + 1)]
        )
        assert (found == wanted[: len(found)]).all()


@pytest.mark.parametrize("world", [1, 2])
def test_the_cache_is_not_misled(world: int) -> None:
    plan = staged([(1, (8, 4, 0)), (12, (4, 4, 4))], 90, blocks=([10] * 64, [15] * 40, UNEQUAL[2]))
    assert plan.sequence_length == LENGTH
    for rank in range(world):
        future = Future(plan, rank, world)
        numbers = np.concatenate([plan.numbers(step, rank, world) for step in range(1, 60)])
        at = order(plan, numbers)
        for now in range(0, 300, 29):
            for source in (0, 1):
                bound = future.next_use(source, np.arange(plan.sources[source].blocks), now)
                for block in range(plan.sources[source].blocks):
                    reads = numbers[(at.source == source) & (at.block == block) & (numbers >= now)]
                    segment = plan.segment_of(plan.step_at(now))
                    if len(reads) and plan.segment_of(plan.step_at(int(reads[0]))) is segment:
                        assert bound[block] <= reads[0]


def test_draws_are_those_of_the_stages_without_skips() -> None:
    assert draws_until([(1, 8, 3, 8), (11, 8, 8, 16), (21, 4, 0, 4)], 25) == 30 + 40
    assert draws_until([(1, 8, 3, 8), (11, 8, 8, 16)], 12) == 30 + 8
    assert draws_until([(30, 8, 3, 8)], 12) == 0
    plain = staged([(1, (8, 4, 4))], 50)
    skipping = replace(plain, skip=((3, 2),))
    assert skipping.sources[0].sequences.about() == plain.sources[0].sequences.about()
    assert isinstance(plain.stages[0], StageSpec)


def stream_of(shards: Folder, **more: Any) -> StreamingTokens:
    return StreamingTokens(shards.url, **{"sequence_length": 24, "global_batch": 8, "seed": 3, **more})


def test_easy_sequences_come_first_and_processes_share_one_order(shards: Folder, signals: str) -> None:
    chosen = {"signal": SIGNAL, "over": 12, "signals": signals}
    whole = stream_of(shards, curriculum=chosen)
    parts = [stream_of(shards, curriculum=chosen, dp_rank=rank, dp_world=2) for rank in range(2)]
    opened = whole._opened
    means = []
    for step in range(1, 21):
        batch, halves = next(whole), [next(part) for part in parts]
        for name in ("tokens", "labels", "documents", "positions", "n", "source_id"):
            assert (batch[name] == torch.cat([half[name] for half in halves])).all()
        at = order(whole.plan, whole.plan.numbers(step))
        quantiles = []
        for source, block, sequence in zip(at.source, at.block, at.sequence, strict=True):
            values = opened.train[whole.sources[source]].difficulty
            assert values is not None
            of = whole.plan.sources[source].sequences
            assert isinstance(of, Curriculum)
            mine = values[of._firsts[block] + sequence]
            quantiles.append(1.0 if np.isnan(mine) else (values < mine).mean())
        means.append(np.mean(quantiles))
    assert np.mean(means[:3]) < np.mean(means[8:11]) - 0.1 and means[0] < 0.4
    plain = stream_of(shards)
    assert plain.plan.sha256 != whole.plan.sha256
    assert (plain.plan.drawn(15) == whole.plan.drawn(15)).all()  # the mixture is what it was


def test_any_step_is_resumed_exactly(shards: Folder, signals: str) -> None:
    chosen = {"signal": SIGNAL, "over": 9, "signals": signals, "order": "descending"}
    more: dict[str, Any] = {"curriculum": chosen, "batch_ramp": {4: 4}, "packing": "best_fit"}
    whole = stream_of(shards, **more)
    states, batches = [whole.state_dict()], []
    for _ in range(16):
        batches.append(next(whole)["tokens"].clone())
        states.append(whole.state_dict())
    for step in range(16):
        again = stream_of(shards, **more)
        again.load_state_dict(json.loads(json.dumps(states[step])))
        assert (next(again)["tokens"] == batches[step]).all(), step
    other = stream_of(shards, **{**more, "curriculum": {**chosen, "over": 10}})
    with pytest.raises(UserError, match=r"sources\.books\.curriculum\.draws: \d+ -> \d+"):
        other.load_state_dict(states[5])


RUN = {"schedule.steps": 6, "checkpoint.every": 1, "validation.every": 3}


def test_a_run_that_is_killed_at_any_step_ends_the_same(
    config: Make, signals: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(**RUN, **{"data.curriculum": {"signal": SIGNAL, "over": 5, "signals": signals}})
    wanted = crashed_at_every_step(run, tmp_path, monkeypatch)
    plain = {**config(**RUN), "output": str(tmp_path / "plain")}
    train(TrainConfig.model_validate(plain))
    assert outcome(plain["output"], 6) != wanted


def test_two_processes_that_are_killed_end_the_same(config: Make, signals: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "schedule.steps": 8, "checkpoint.every": 2, "data.micro_batch": 2, "parallel": {"zero": 2},
        "data.curriculum": {"signal": "length", "over": 6},
    }  # fmt: skip
    killed_in_two_processes(config, more, tmp_path)


def test_batches_and_plans_are_found(config: Make, shards: Folder, signals: str) -> None:
    chosen = {"signal": SIGNAL, "over": 40, "signals": signals}
    made = TrainConfig.model_validate(config(**{"data.curriculum": chosen}))
    rows = describe_batch(made, 2)["sequences"]
    assert rows and all(SIGNAL in row for row in rows)
    for row in rows:
        sizes = [high - low for low, high in row["tokens"]]
        assert sum(sizes) == made.data.sequence_length and row["documents"]
        if len(row["documents"]) == 1:
            assert row[SIGNAL] == pytest.approx(value_of(row["documents"][0]["doc_id"]))
    found = describe_plan(made)
    assert all(0 < one["curriculum"]["part_at_end"] < 1 for one in found["sources"].values())
    assert sum("lower data.curriculum.over to 20 or less" in line for line in found["warnings"]) == len(
        found["sources"]
    )
    plain = TrainConfig.model_validate(config())
    assert "curriculum" not in json.dumps([describe_plan(plain), plain.model_dump(mode="json")])
    opened = open_shards(shards.url)
    later = make_plan(made.data, opened, made.seed)  # opened without a word of the curriculum
    assert later.sha256 == describe_plan(made)["plan"]


def test_mistakes_are_named(shards: Folder, signals: str, tmp_path: Path) -> None:
    def opened(**more: Any) -> StreamingTokens:
        return stream_of(shards, curriculum={"signal": SIGNAL, "over": 3, **more})

    with pytest.raises(UserError, match=r"data.curriculum.signals: .*/filter/signals: no \*.parquet there"):
        opened()
    with pytest.raises(
        UserError,
        match=r"'gopher.word_cout' is not stored.*gopher.word_count.* has: length, gopher.word_count, gopher.odd",
    ):
        opened(signal="gopher.word_cout", signals=signals)
    with pytest.raises(UserError, match="'language.code' is text, not a number"):
        opened(signal="language.code", signals=signals)
    part = write_signals(tmp_path / "part", shards, without=4)
    with pytest.raises(
        UserError, match=r"has no row of document [0-9a-f]{32} of the shards \(\d+ are missing\)"
    ):
        opened(signals=part)
    with pytest.raises(UserError, match="over"):
        opened(over=0)
    config = CurriculumConfig(signal="length", over=3)
    for url in ("s3://b/runs/x/shards", "s3://b/runs/x/shards/", "s3://b/runs/x/shards/index.json"):
        assert config.signals_of(url) == "s3://b/runs/x/filter/signals"
