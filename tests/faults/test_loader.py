"""A store that breaks: the token stream stays the same, or the run stops with the block named. Nothing is skipped.

The store is the S3-compatible server behind a proxy that breaks its answers. Each test compares with the stream from
the same shards on a healthy store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import torch

import corpusmill.common.stores
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data import StreamingTokens
from corpusmill.train.data.shards import Source, open_shards
from tests.faults import proxy as faults
from tests.faults.proxy import Fault, Server, always, some
from tests.train.conftest import write_shards

Batch = dict[str, torch.Tensor]
SOURCES = {"wiki": 4, "books": 2}
BATCHES = 14  # in which every block is read, and some again
PASSING = FetchConfig(attempt_s=0.4, deadline_s=30, attempts=20)
LASTING = FetchConfig(attempt_s=0.3, deadline_s=1.5, attempts=3)
DAMAGED = FetchConfig(attempts=3)  # a store that answers at once ends nothing by a deadline

pytestmark = [pytest.mark.s3, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The shards, in a local folder."""
    return write_shards(Folder(tmp_path_factory.mktemp("loader")), SOURCES)


@pytest.fixture
def tars(healthy: Folder) -> dict[str, bytes]:
    return {
        entry.path: (healthy / entry.path).read() for entry in healthy.list() if entry.path.endswith(".tar")
    }


@pytest.fixture
def expected(healthy: Folder) -> list[Batch]:
    return read(healthy.url)


@pytest.fixture
def logged() -> list[str]:
    """The lines that a stream logs with `log=logged.append`."""
    return []


@pytest.fixture
def store(healthy: Folder, s3: str) -> str:
    """The shards on the store, as the tests may break them."""
    for entry in healthy.list():
        (Folder(s3) / entry.path).write((healthy / entry.path).read())
    return s3


@pytest.fixture
def broken(store: str, s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The proxy, through which every store is reached that is opened from now on."""
    with faults.proxy(s3_server["AWS_ENDPOINT_URL"]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        corpusmill.common.stores.open_store.cache_clear()
        yield server
    corpusmill.common.stores.open_store.cache_clear()


def opened(url: str, fetch: FetchConfig = PASSING, **options: Any) -> StreamingTokens:
    return StreamingTokens(
        url, fetch=fetch, weights={"wiki": 3, "books": 1}, sequence_length=24, global_batch=8, window_blocks=2,
        seed=5, **options,
    )  # fmt: skip


def read(url: str, fetch: FetchConfig = PASSING, **options: Any) -> list[Batch]:
    with opened(url, fetch, **options) as stream:
        return [next(stream) for _ in range(BATCHES)]


def same(a: list[Batch], b: list[Batch]) -> bool:
    return len(a) == len(b) and all(
        x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)
        for x, y in zip(a, b, strict=True)
    )


def rows_alone(batch: Batch) -> Batch:
    """What a batch holds per row."""
    return {name: batch[name] for name in ("tokens", "labels", "documents", "positions", "source_id", "n")}


def joined(ranks: list[list[Batch]]) -> list[Batch]:
    """The rows of all ranks, batch by batch."""
    return [
        {name: torch.cat([rows_alone(part)[name] for part in parts]) for name in rows_alone(parts[0])}
        for parts in zip(*ranks, strict=True)
    ]


def block_of(store: str, number: int = 4) -> tuple[Source, Any, Any]:
    """A block of 'wiki' that is not the last of its tar, so that others are as long: source, shard, block."""
    source = open_shards(store).train["wiki"]
    return source, *source.blocks[number]


def rows_of(batches: list[Batch], tokens: np.ndarray) -> list[tuple[int, int]]:
    """(batch, row) of every sequence that lies in these tokens of a block."""
    whole = tokens.astype("<i8").tobytes()
    return [
        (at, row)
        for at, batch in enumerate(batches)
        for row, sequence in enumerate(batch["tokens"])
        if whole.find(sequence.numpy().astype("<i8").tobytes()) >= 0
    ]


def tokens_of(source: Source, number: int) -> np.ndarray:
    shard, block = source.blocks[number]
    data = (source.folder / shard.url).read_range(block.offset, block.size)
    return np.frombuffer(data, source.dtype, offset=block.header)


@pytest.mark.parametrize(
    "fault",
    [
        faults.refused(503), faults.refused(403), faults.refused(404), faults.reset, faults.cut, faults.stalled,
        faults.short, faults.empty, faults.truncated, faults.flipped, faults.slow(2.0),
    ],
    ids=["503", "403", "404", "reset", "cut", "stalled", "short", "empty", "truncated", "flipped", "silent"],
)  # fmt: skip
def test_a_fault_that_passes_changes_nothing(
    store: str, broken: Server, expected: list[Batch], fault: Fault
) -> None:
    broken.policy = some(0.4, fault, times=2)
    with opened(store) as stream:
        found = [next(stream) for _ in range(BATCHES)]
        assert same(found, expected)
        assert stream._blocks.retries >= broken.faults > 4
        assert not stream._blocks.replaced


def test_bytes_of_another_place_are_noticed(
    store: str, broken: Server, expected: list[Batch], tars: dict[str, bytes]
) -> None:
    broken.policy = some(0.5, faults.swapped(tars))
    assert same(read(store), expected)
    assert broken.faults > 4


def test_everything_at_once_on_two_ranks(
    store: str, broken: Server, expected: list[Batch], tars: dict[str, bytes]
) -> None:
    kinds = (
        faults.refused(503), faults.refused(500), faults.reset, faults.cut, faults.short, faults.empty, faults.truncated,
        faults.flipped, faults.swapped(tars), faults.slow(0.2),
    )  # fmt: skip
    broken.policy = some(0.8, *kinds, times=3)
    fetch = PASSING.model_copy(update={"memory_mb": 0.001, "threads": 4})  # every block again and again
    halves = [read(store, fetch, dp_rank=rank, dp_world=2, prefetch=rank) for rank in range(2)]
    assert same(joined(halves), [rows_alone(batch) for batch in expected])
    assert broken.faults > 40


def test_slow_answers_are_asked_for_twice(store: str, broken: Server, expected: list[Batch]) -> None:
    counts: dict[str, int] = {"requests": 0}

    def policy(request: faults.Request) -> Fault | None:  # once 40 came fast, every 25th takes long
        counts["requests"] += request.path.endswith(".tar")
        return faults.slow(6) if counts["requests"] > 40 and counts["requests"] % 25 == 0 else None

    broken.policy = policy
    fetch = FetchConfig(attempt_s=60, memory_mb=0.001)
    with opened(store, fetch, prefetch=0) as stream:
        assert same([next(stream) for _ in range(BATCHES)], expected)
        assert stream._blocks.hedged >= broken.faults > 0  # no answer took 6 s, and none was asked for again
        assert stream._blocks.retries == 0


@pytest.mark.parametrize(
    "fault",
    [
        faults.refused(503),
        faults.refused(403),
        faults.reset,
        faults.cut,
        faults.stalled,
        faults.slow(60),
        None,
    ],
    ids=["503", "403", "reset", "cut", "stalled", "silent", "unreachable"],
)
def test_a_store_that_does_not_answer_stops_the_run(
    store: str, broken: Server, monkeypatch: pytest.MonkeyPatch, fault: Fault | None
) -> None:
    _, shard, block = block_of(store)
    if fault:
        broken.policy = always(fault, shard.url, block.offset, block.offset + block.size)
    with opened(store, LASTING) as stream:
        if fault is None:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            corpusmill.common.stores.open_store.cache_clear()
        with pytest.raises(WorkError) as error:
            for _ in range(BATCHES):
                next(stream)
        assert not stream._blocks.replaced  # the content of a batch does not depend on network errors
    message = str(error.value)
    if fault:
        where = f"{shard.url}: block {block.key} (bytes {block.offset} to {block.offset + block.size}): "
        assert message.startswith(f"{store}/wiki/train/{where}")
    else:
        assert "-train-" in message and ".tar: block " in message
    assert "deadline_s (1.5 s)" in message and "asked" in message and "corpusmill verify" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("kind", ["flipped", "swapped", "short", "empty", "truncated", "missing"])
def test_a_damaged_block_is_replaced_and_reported(
    store: str,
    healthy: Folder,
    broken: Server,
    expected: list[Batch],
    tars: dict[str, bytes],
    logged: list[str],
    kind: str,
) -> None:
    source, shard, block = block_of(healthy.url)
    known: dict[str, Fault] = {"swapped": faults.swapped(tars), "missing": faults.refused(404)}
    fault = known.get(kind) or getattr(faults, kind)
    broken.policy = always(fault, shard.url, block.offset, block.offset + block.size)
    with opened(store, DAMAGED, log=logged.append) as stream:
        first = [next(stream) for _ in range(BATCHES)]
        [(bad, other)] = stream._blocks.replaced.items()
    assert len(logged) == 1 and f"{shard.url}: block {block.key} " in logged[0]
    assert source.blocks[other[1]][1].key in logged[0] and "1 damaged blocks of at most 4" in logged[0]
    assert source.blocks[bad[1]][1].key == block.key

    was = rows_of(expected, tokens_of(source, bad[1]))
    differ = [
        (at, row)
        for at, batch in enumerate(expected)
        for row in range(8)
        if not torch.equal(batch["tokens"][row], first[at]["tokens"][row])
    ]
    assert differ == was and len(was) >= 3  # the slots that held it, and no other
    assert set(was) <= set(rows_of(first, tokens_of(source, other[1])))

    assert same(read(store, DAMAGED), first)  # another run
    halves = [read(store, DAMAGED, dp_rank=rank, dp_world=2) for rank in range(2)]
    assert same(joined(halves), [rows_alone(batch) for batch in first])  # other ranks


def test_too_many_damaged_blocks_stop_the_run(store: str, broken: Server) -> None:
    broken.policy = always(faults.flipped, "wiki-train-000001.tar")
    with opened(store, DAMAGED.model_copy(update={"bad_blocks": 2})) as stream:
        with pytest.raises(WorkError) as error:
            for _ in range(BATCHES):
                next(stream)
    message = str(error.value)
    assert "wiki-train-000001.tar: block wiki-train000001-" in message and "checksum differs" in message
    assert "Damaged blocks: 3; data.fetch.bad_blocks lets 2 be" in message and "corpusmill verify" in message
    broken.policy = lambda request: None
    with opened(store, DAMAGED.model_copy(update={"bad_blocks": 0})) as stream:
        next(stream)  # the store has healed, and nothing is kept of its damage


def test_a_missing_tar_stops_the_run(store: str, broken: Server) -> None:
    Folder(store).delete(["wiki/train/wiki-train-000002.tar"])
    with pytest.raises(WorkError, match=r"wiki-train-000002\.tar: block .* not found"):
        read(store, DAMAGED.model_copy(update={"bad_blocks": 2}))


def test_the_same_object_put_there_again_changes_nothing(
    store: str,
    broken: Server,
    expected: list[Batch],
    tars: dict[str, bytes],
    logged: list[str],
) -> None:
    fetch = PASSING.model_copy(update={"memory_mb": 0.001})
    with opened(store, fetch, prefetch=0, log=logged.append) as stream:
        found = [next(stream) for _ in range(4)]
        for name in ("wiki-train-000000.tar", "wiki-train-000001.tar"):
            file = Folder(store) / f"wiki/train/{name}"
            before = file.entry().tag
            obstore.put(
                file.store, file.path, tars[f"wiki/train/{name}"], use_multipart=True
            )  # the same bytes, another ETag
            assert file.entry().tag != before
        found += [next(stream) for _ in range(BATCHES - 4)]
        assert not stream._blocks.replaced
    assert same(found, expected)
    assert len(logged) == 2 and all("replaced since it was first read" in line for line in logged)
    assert sum(count for tag, count in broken.conditions.items() if tag) > 20  # If-Match


def test_another_object_in_its_place_is_damage(store: str, broken: Server, tars: dict[str, bytes]) -> None:
    fetch = DAMAGED.model_copy(update={"memory_mb": 0.001, "bad_blocks": 0})
    with opened(store, fetch, prefetch=0) as stream:
        for _ in range(6):  # all tars are read from
            next(stream)
        for number in range(4):
            file = Folder(store) / f"wiki/train/wiki-train-{number:06d}.tar"
            file.write(bytes(byte ^ 1 for byte in tars[f"wiki/train/{file.name}"]))
        with pytest.raises(
            WorkError, match=r"wiki-train-.*\.tar: block .* \(the object was replaced since: ETag .*, now "
        ):
            for _ in range(BATCHES):
                next(stream)


@pytest.fixture
def cached(tmp_path: Path) -> Callable[..., FetchConfig]:
    def config(**settings: Any) -> FetchConfig:
        return FetchConfig(cache=str(tmp_path / "cache"), **settings)

    return config


def test_the_second_run_reads_the_disk_alone(
    store: str, broken: Server, expected: list[Batch], cached: Callable[..., FetchConfig]
) -> None:
    assert same(read(store, cached()), expected)
    first = broken.tar_gets()
    assert first == 18  # each block once
    assert same(read(store, cached()), expected)
    assert broken.tar_gets() == first


def test_a_damaged_file_of_the_cache_is_fetched_again(
    store: str, broken: Server, expected: list[Batch], cached: Callable[..., FetchConfig], tmp_path: Path,
    logged: list[str],
) -> None:  # fmt: skip
    read(store, cached())
    files = sorted((tmp_path / "cache").iterdir())
    files[0].write_bytes(faults.flip(files[0].read_bytes()))
    files[1].write_bytes(files[1].read_bytes()[:-7])
    files[2].write_bytes(b"")
    files[3].write_bytes(files[4].read_bytes())
    before = broken.tar_gets()
    logged.clear()
    assert same(read(store, cached(), log=logged.append), expected)
    assert broken.tar_gets() == before + 4
    assert len(logged) == 4 and all("damaged in the cache, fetched again" in line for line in logged)
    assert same(read(store, cached()), expected)
    assert broken.tar_gets() == before + 4


def test_the_cache_keeps_to_its_size(
    store: str, broken: Server, expected: list[Batch], cached: Callable[..., FetchConfig], tmp_path: Path
) -> None:
    limit = 6000
    for _ in range(3):  # across restarts
        assert same(read(store, cached(cache_gb=limit / 2**30, memory_mb=0.001)), expected)
        held = sum(file.stat().st_size for file in (tmp_path / "cache").iterdir())
        assert 0 < held <= limit


def test_the_cache_serves_no_other_object(
    store: str,
    broken: Server,
    expected: list[Batch],
    tars: dict[str, bytes],
    cached: Callable[..., FetchConfig],
) -> None:
    read(store, cached())
    first = broken.tar_gets()
    name = "wiki/train/wiki-train-000000.tar"
    file = Folder(store) / name
    obstore.put(file.store, file.path, tars[name], use_multipart=True)
    assert same(read(store, cached()), expected)
    assert broken.tar_gets() == first + 3  # its blocks
    file.write(bytes(len(tars[name])))
    with pytest.raises(WorkError, match=r"wiki-train-000000\.tar: block .*checksum differs"):
        read(store, cached(attempts=2, bad_blocks=0))
