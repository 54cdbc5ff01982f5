"""Shards are written window by window: the same bytes for any window, in memory that the window bounds."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard import segments as merge
from corpusmill.pipeline.shard.segments import HEADER, copy, in_order, packed, weigh
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.shard.write import Routed, gather, write_blocks
from tests.pipeline.corpus import contents
from tests.pipeline.shard.helpers import corpus, prepared, tables

Document = tuple[bytes, int, list[int]]  # id, hash, tokens


def published(folder: Folder, partitions: list[list[Document]], buckets: int = 1) -> list[Routed]:
    """What phase 1 leaves of these partitions: the hash modulo `buckets` chooses the shard."""
    routed = []
    for number, docs in enumerate(partitions):
        headers = np.zeros(len(docs), dtype=HEADER)
        ids = np.frombuffer(b"".join(doc_id for doc_id, _, _ in docs), dtype=">u8").reshape(-1, 2)
        headers["high"], headers["low"] = ids[:, 0], ids[:, 1]
        headers["hash"] = [number for _, number, _ in docs]
        headers["text_bytes"] = [len(tokens) for _, _, tokens in docs]
        lists = [tokens for _, _, tokens in docs]
        offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
        tokens = np.array([token for one in lists for token in one], dtype=np.uint32)
        sets = np.zeros(len(docs), dtype=np.int64)
        pieces, segments = packed(
            headers, sets, (headers["hash"] % buckets).astype(np.int64), tokens, offsets, np.uint16
        )
        (folder / f"{number}.bin").write(b"".join(pieces))
        routed.append(Routed(f"{number}.bin", segments))
    return routed


documents = st.lists(
    st.tuples(
        st.binary(min_size=16, max_size=16), st.integers(0, 9), st.lists(st.integers(0, 65535), max_size=5)
    ),
    unique_by=lambda doc: doc[0],
    max_size=14,
)


@given(
    documents, st.lists(st.integers(0, 14), max_size=3), st.integers(1, 3), st.sampled_from([1, 4, 10, 1000])
)
def test_documents_come_by_hash_then_id(
    tmp_path_factory: pytest.TempPathFactory,
    docs: list[Document],
    edges: list[int],
    buckets: int,
    window: int,
) -> None:
    cuts = sorted({0, len(docs), *(edge for edge in edges if edge < len(docs))})
    parts = [docs[low:high] for low, high in itertools.pairwise(cuts)] or [[]]
    folder = Folder(tmp_path_factory.mktemp("scratch"))
    found: list[Document] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "WINDOW", window)
        for number, bucket in enumerate(gather(published(folder, parts, buckets))):
            assert bucket.number == number
            for some in in_order(folder, bucket.files, bucket.segments, np.uint16, gap=1):
                assert len(some.ids) == 1 or 2 * int(some.offsets[-1] - len(some.ids)) <= window
                ends = itertools.pairwise(some.offsets.tolist())
                found += [
                    (doc.tobytes(), 0, some.elements[low : high - 1].tolist())
                    for doc, (low, high) in zip(some.ids, ends, strict=True)
                ]
    wanted = sorted(docs, key=lambda doc: (doc[1] % buckets, doc[1], doc[0]))
    assert found == [(doc_id, 0, tokens) for doc_id, _, tokens in wanted]


@pytest.mark.parametrize("place", [8, 20, -3])
def test_damage_between_the_phases_is_named(tmp_path: Path, place: int) -> None:
    (routed,) = published(Folder(tmp_path), [[(bytes([i] * 16), i, [i, i + 1]) for i in range(5)]])
    data = bytearray((tmp_path / "0.bin").read_bytes())
    data[place] ^= 1
    (tmp_path / "0.bin").write_bytes(data)
    (bucket,) = gather([routed])
    with pytest.raises(WorkError, match=r"0\.bin: its bytes changed"):
        list(in_order(Folder(tmp_path), bucket.files, bucket.segments, np.uint16))


@pytest.mark.parametrize("window", [1, 3000])
def test_the_window_changes_no_byte(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(merge, "WINDOW", window)
    stage, here = prepared(tmp_path, corpus())
    Shards(stage).run(here)
    assert contents(tmp_path / "shards") == contents(made / "shards")


class Nowhere(io.RawIOBase):
    """Takes a tar and keeps nothing."""

    def write(self, data: object, /) -> int:
        return 0


def test_memory_is_that_of_the_window_and_not_of_the_tar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, block_tokens = 1 << 20, 2**17  # a block of 256 KiB
    monkeypatch.setattr(merge, "WINDOW", window)
    tokens = list(range(5000))
    parts = [[(bytes([p, i]) * 8, i * 7919 % 400, tokens) for i in range(200)] for p in range(8)]
    (bucket,) = gather(published(Folder(tmp_path), parts))
    bpe = tables(9999, np.ones(10_000, np.int32))
    windows = in_order(Folder(tmp_path), bucket.files, bucket.segments, np.uint16, gap=1)
    write_blocks(itertools.islice(windows, 1), bpe, "warm", block_tokens, Nowhere())  # what is compiled once
    tracemalloc.start()
    windows = in_order(Folder(tmp_path), bucket.files, bucket.segments, np.uint16, gap=1)
    made = write_blocks(windows, bpe, "a-train-000000", block_tokens, Nowhere())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.shard.filesize > 15 * window
    assert peak < 5 * window + 4 * 2 * block_tokens


def copied(
    documents: list[list[int]], order: list[int], gap: int, dtype: type
) -> tuple[list[list[int]], list[int]]:
    """The documents as `copy` put them, and their sums."""
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    source: npt.NDArray[Any] = np.array([x for doc in documents for x in doc], dtype=dtype)
    lengths = np.diff(offsets)[order]
    out: npt.NDArray[Any] = np.zeros(int(lengths.sum()) + gap * len(order), dtype=dtype)
    places, sums = np.zeros(len(order) + 1, dtype=np.int64), np.zeros(len(order), dtype=np.uint64)
    copy(source, offsets[:-1][order], lengths, gap, out, places, sums)
    assert int(places[-1]) == len(out)
    ends = places[1:] - gap
    return [out[a:b].tolist() for a, b in zip(places[:-1], ends, strict=True)], sums.tolist()


@given(st.data())
def test_documents_come_in_the_order_asked_for(data: st.DataObject) -> None:
    dtype, top = data.draw(st.sampled_from([(np.uint16, 2**16), (np.uint32, 2**32), (np.uint64, 2**64)]))
    documents = data.draw(st.lists(st.lists(st.integers(0, top - 1), max_size=6), min_size=1, max_size=8))
    order = data.draw(st.permutations(range(len(documents))))
    gap = data.draw(st.integers(0, 2))
    found, sums = copied(documents, list(order), gap, dtype)
    assert found == [documents[i] for i in order]
    again, same = copied(documents, list(range(len(documents))), 0, dtype)
    assert [same[i] for i in order] == sums and again == documents


@pytest.mark.parametrize(
    "change", [lambda d: d[::-1], lambda d: [*d, 0], lambda d: d[:-1], lambda d: [d[0] ^ 1, *d[1:]]]
)
def test_a_changed_document_has_another_sum(
    change: Callable[[list[int]], list[int]],
) -> None:
    document = [3, 1, 4, 1, 5]
    assert copied([document], [0], 0, np.uint16)[1] != copied([change(document)], [0], 0, np.uint16)[1]


def test_weights_are_added_up_by_document() -> None:
    out = np.empty(4, dtype=np.int64)
    weights = np.array([10, 20, 30], dtype=np.int32)
    weigh(np.array([0, 1, 2, 2], dtype=np.uint16), np.array([0, 1, 1, 3, 4]), weights, out)
    assert out.tolist() == [10, 0, 50, 30]
