"""Blocks: fetched once however many want them, within the memory, ahead of their use, replaced alike everywhere."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder, Tagged
from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data.fetch import Blocks, Key
from corpusmill.train.data.reader import decode, memory_of, spans, substitutes
from corpusmill.train.data.requests import Closed, Wrong
from corpusmill.train.data.shards import Source, open_shards
from tests.train.conftest import write_shards

QUICK: dict[str, Any] = {"attempts": 2, "deadline_s": 1.0}


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    """Two sources of 12 and 6 blocks, the last of each three shorter; may be written to."""
    folder = write_shards(Folder(tmp_path / "shards"), {"wiki": 4, "books": 2})
    return list(open_shards(folder.url).train.values())


def damage(source: Source, number: int, member: str = "offset") -> None:
    shard, block = source.blocks[number]
    file = source.folder / shard.url
    tar = bytearray(file.read())
    tar[getattr(block, member) + 130] ^= 1
    file.write(bytes(tar))


@pytest.fixture
def reads(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Counter[int], Callable[[Callable[[Folder, int], None]], None]]:
    """How often each offset was read, and a way to do something before each read."""
    counts: Counter[int] = Counter()
    hooks: list[Callable[[Folder, int], None]] = []
    real = Folder.read_tagged

    def read(self: Folder, offset: int, size: int, if_match: str = "") -> Tagged:
        counts[offset] += 1
        for hook in hooks:
            hook(self, offset)
        return real(self, offset, size, if_match)

    monkeypatch.setattr(Folder, "read_tagged", read)
    return counts, hooks.append


def keys_of(sources: list[Source]) -> list[Key]:
    return [(s, b) for s, source in enumerate(sources) for b in range(len(source.blocks))]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_blocks_hold_what_the_tars_hold(tmp_path: Path, dtype: str) -> None:
    folder = write_shards(Folder(tmp_path), {"wiki": 2}, dtype=dtype)
    source = open_shards(folder.url).train["wiki"]
    blocks = Blocks([source])
    found = blocks.get(keys_of([source]))
    for (_, number), data in found.items():
        shard, block = source.blocks[number]
        tar = (source.folder / shard.url).read()
        tokens = np.frombuffer(tar, dtype, block.ntokens, block.offset + block.header)
        assert data.tokens.dtype == dtype and data.tokens.tolist() == tokens.tolist()
        assert data.starts.dtype == np.int64 and len(data.starts) == block.ndocs and data.starts[0] == 0
        assert blocks.documents((0, number)).token_starts == data.starts.tolist()
    blocks.close()


def test_members_that_lie_far_apart_take_two_requests(sources: list[Source]) -> None:
    shard, block = sources[0].blocks[0]
    file = sources[0].folder / shard.url
    tar = file.read()
    far = len(tar) + (1 << 20)
    docs = tar[block.docs_offset : block.docs_offset + block.docs_size]
    file.write(tar.ljust(far, b"\0") + docs)
    moved = block.model_copy(update={"docs_offset": far})
    blocks = Blocks(sources)
    expected = blocks.get([(0, 0)])[0, 0]
    assert blocks.requests == 1
    sources[0].blocks[0] = shard, moved
    apart = Blocks(sources)
    data = apart.get([(0, 0)])[0, 0]
    assert apart.requests == 2 and memory_of(moved) == moved.size + moved.docs_size + 8 * moved.ndocs
    assert (
        data.tokens.tolist() == expected.tokens.tolist() and data.starts.tolist() == expected.starts.tolist()
    )
    blocks.close()
    apart.close()


def test_an_index_that_is_wrong_about_right_bytes(sources: list[Source]) -> None:
    source = sources[0]
    _, block = source.blocks[0]
    tar = (source.folder / source.blocks[0][0].url).read()
    payload = memoryview(tar)[block.offset : block.offset + block.size]
    docs = memoryview(tar)[block.docs_offset : block.docs_offset + block.docs_size]
    decode(source, block, payload, docs)
    small = replace(source, index=source.index.model_copy(update={"vocab_size": 50}))
    for of, entry, messages in [
        (source, block.model_copy(update={"ntokens": block.ntokens + 1}), "the index says 151"),
        (source, block.model_copy(update={"ndocs": block.ndocs - 1}), "rising starts"),
        (small, block, "not in a vocabulary of 50"),
    ]:
        with pytest.raises(Wrong, match=messages):
            decode(of, entry, payload, docs)


def test_two_that_want_a_block_cause_one_request(sources: list[Source], reads: Any) -> None:
    counts, before = reads
    both = threading.Barrier(2)
    wait = threading.Event()
    before(lambda file, offset: wait.wait(60) and None)
    blocks = Blocks(sources, FetchConfig(threads=4))

    def get(_: int) -> Any:
        both.wait()
        return blocks.get([(0, 1)])[0, 1]

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(get, number) for number in range(2)]
        blocks.read_ahead([(0, 1)])
        wait.set()
        first, second = [future.result() for future in found]
    assert first is second and counts.total() == blocks.requests == 1
    blocks.close()


def test_many_threads_get_what_is_right(sources: list[Source]) -> None:
    keys = keys_of(sources)
    whole = Blocks(sources)
    expected = {key: data.tokens.tolist() for key, data in whole.get(keys).items()}
    whole.close()
    size = max(memory_of(block) for source in sources for _, block in source.blocks)
    blocks = Blocks(sources, FetchConfig(threads=3, memory_mb=5 * size / 2**20))

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for n in range(60):
            wanted = chance.sample(keys, chance.randint(1, 4))
            blocks.read_ahead(chance.sample(keys, 3), n)
            assert {key: data.tokens.tolist() for key, data in blocks.get(wanted, n).items()} == {
                key: expected[key] for key in wanted
            }

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert blocks._memory.used <= blocks._memory.capacity
    assert not blocks._pinned
    blocks.close()


def test_memory_keeps_what_the_order_reads_soonest(sources: list[Source]) -> None:
    reads = [(0, b) for b in (0, 1, 3, 0, 1, 4, 0, 1, 6, 0, 1)]

    def next_use(source: int, blocks: Any, n: int) -> Any:
        return np.array(
            [next((i for i in range(n, len(reads)) if reads[i] == (source, b)), np.inf) for b in blocks]
        )

    size = memory_of(sources[0].blocks[0][1]) + 40
    fetch = FetchConfig(memory_mb=3 * size / 2**20)
    for use, requests in ((next_use, 5), (None, 5)):
        blocks = Blocks(sources, fetch, use)
        for n, key in enumerate(reads):
            blocks.get([key], n)
        assert blocks.requests == requests
        blocks.close()
    tight = FetchConfig(memory_mb=2 * size / 2**20)
    counts = []
    for use in (next_use, None):
        blocks = Blocks(sources, tight, use)
        for n, key in enumerate(reads):
            blocks.get([key], n)
        counts.append(blocks.requests)
        blocks.close()
    assert counts == [8, 11]  # the least recently used is, here, always the one that comes next


def test_a_get_that_needs_more_than_the_memory(sources: list[Source]) -> None:
    blocks = Blocks(sources, FetchConfig(memory_mb=1e-6))
    assert len(blocks.get(keys_of(sources))) == 18
    assert blocks._memory.used == 0 and not blocks._memory.kept
    blocks.close()


def test_reading_ahead(sources: list[Source], reads: Any) -> None:
    counts, _ = reads
    keys = keys_of(sources)
    blocks = Blocks(sources, FetchConfig(threads=2))
    blocks.read_ahead(keys)
    blocks.read_ahead(keys)
    assert len(blocks.get(keys)) == 18
    assert counts.total() == 18
    blocks.close()
    size = memory_of(sources[0].blocks[0][1]) + 40
    small = Blocks(sources, FetchConfig(memory_mb=3 * size / 2**20))
    small.read_ahead(keys)
    assert small._memory.used <= small._memory.capacity and len(small._flights) + len(small._memory.kept) == 3
    small.close()


def test_what_someone_waits_for_comes_first(sources: list[Source], reads: Any) -> None:
    _, before = reads
    order: list[tuple[str, int]] = []
    begun, first = threading.Event(), threading.Event()

    def hook(file: Folder, offset: int) -> None:
        order.append((file.name, offset))
        begun.set()
        if len(order) == 1:
            first.wait(60)

    before(hook)
    blocks = Blocks(sources, FetchConfig(threads=1))
    blocks.read_ahead((0, number) for number in range(11))
    assert begun.wait(60)  # the only thread is at the first of them when others become urgent
    with ThreadPoolExecutor(1) as pool:
        wanted = pool.submit(blocks.get, [(0, 8), (1, 3)])
        while len(blocks._urgent) < 2:
            time.sleep(0.001)
        first.set()
        wanted.result()
        names = [
            (source.blocks[number][0].url, spans(source.blocks[number][1])[0].start)
            for source, number in ((sources[0], 8), (sources[1], 3))
        ]
    assert order[1:3] == names
    blocks.close()


def test_a_failure_ahead_shows_when_the_block_is_asked_for(sources: list[Source]) -> None:
    damage(sources[0], 2)
    blocks = Blocks(sources, FetchConfig(bad_blocks=0, threads=1, **QUICK))
    blocks.read_ahead([(0, 2), (0, 3)])
    assert len(blocks.get([(0, 3), (0, 4)])) == 2
    used = blocks._memory.used
    with pytest.raises(
        WorkError, match=r"wiki-train-000000\.tar: block wiki-train000000-000002 .*\.tokens\.npy"
    ):
        blocks.get([(0, 2)])
    assert blocks._memory.used <= used and not blocks._flights  # nothing stays taken for it
    blocks.close()


def test_substitutes_depend_on_the_index_and_the_number_alone(sources: list[Source]) -> None:
    source = sources[0]
    sizes = [block.ntokens for _, block in source.blocks]
    first = list(substitutes(source, 4))
    assert first == list(substitutes(open_shards(str(source.folder.parent.parent)).train["wiki"], 4))
    assert sorted(first) == [b for b in range(12) if b != 4 and sizes[b] >= sizes[4]]  # each once
    assert first != list(substitutes(source, 3)) and first != list(
        substitutes(replace(source, xxh3="other"), 4)
    )
    assert sorted(substitutes(source, 2)) == [b for b in range(12) if b != 2 and sizes[b] >= sizes[2]]


def test_a_damaged_substitute_gives_way_to_the_next(sources: list[Source]) -> None:
    source, messages = sources[0], list[str]()
    bad = 4
    first, second, *_ = substitutes(source, bad)
    damage(source, bad, "docs_offset")
    damage(source, first)
    blocks = Blocks(sources, FetchConfig(**QUICK), log=messages.append)
    data = blocks.get([(0, bad)])[0, bad]
    assert blocks.replaced == {(0, bad): (0, second)}
    assert data.tokens.tolist() == blocks.get([(0, second)])[0, second].tokens.tolist()
    assert blocks.documents((0, bad)) == blocks.documents((0, second))
    assert (
        len(messages) == 1
        and source.blocks[bad][1].key in messages[0]
        and source.blocks[second][1].key in messages[0]
    )
    assert (
        ".docs.npy" in messages[0] and "(2 damaged blocks of at most 4; data.fetch.bad_blocks)" in messages[0]
    )
    blocks.close()
    # Whichever comes first, the same blocks stand in.
    other = Blocks(sources, FetchConfig(threads=1, memory_mb=1e-6, **QUICK), log=messages.append)
    other.get([(0, first)])
    for _ in range(3):  # fetched again each time, logged and counted once
        assert other.get([(0, bad)])[0, bad].tokens.tolist() == data.tokens.tolist()
    assert other.replaced[0, bad] == (0, second) and len(other.replaced) == 2 and len(messages) == 3
    other.close()


def test_with_nothing_as_long_there_is_no_substitute(tmp_path: Path) -> None:
    folder = write_shards(Folder(tmp_path), {"wiki": 1}, blocks=1)
    source = open_shards(folder.url).train["wiki"]
    damage(source, 0)
    blocks = Blocks([source], FetchConfig(**QUICK))
    with pytest.raises(
        WorkError, match=r"wiki-train000000-000000 .* No undamaged block of 'wiki' is as long\. "
    ):
        blocks.get([(0, 0)])
    blocks.close()


def test_too_many_damaged_blocks(sources: list[Source]) -> None:
    for number in (0, 1, 4):
        damage(sources[0], number)
    blocks = Blocks(sources, FetchConfig(bad_blocks=2, threads=1, **QUICK), log=lambda line: None)
    with pytest.raises(WorkError, match=r"Damaged blocks: 3; data\.fetch\.bad_blocks lets 2 be replaced"):
        for key in keys_of(sources):
            blocks.get([key])
    blocks.close()


def test_damaged_documents_are_named(sources: list[Source]) -> None:
    damage(sources[0], 1, "json_offset")
    blocks = Blocks(sources, FetchConfig(**QUICK))
    blocks.get([(0, 1)])
    with pytest.raises(
        WorkError, match=r"wiki-train000000-000001 .*: its documents: .*\.json .*checksum differs"
    ):
        blocks.documents((0, 1))
    blocks.close()


def test_closing_while_threads_wait(sources: list[Source], reads: Any) -> None:
    _, before = reads
    begun, go_on = threading.Event(), threading.Event()

    def hook(file: Folder, offset: int) -> None:
        begun.set()
        go_on.wait(60)

    before(hook)
    blocks = Blocks(sources, FetchConfig(threads=1))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(blocks.get, [(0, 0), (0, 1)])
        assert begun.wait(60)
        closing = pool.submit(blocks.close)
        while not blocks._closed:
            time.sleep(0.001)
        go_on.set()
        closing.result()
        with pytest.raises(Closed):
            waiting.result()
    with pytest.raises(Closed):
        blocks.get([(0, 5)])
    blocks.read_ahead([(0, 5)])
    blocks.close()  # once more does no harm
    assert not any(thread.is_alive() for thread in blocks._threads)
