"""Zstandard in large steps against the same frames in slices of 256 bytes: the same output before damage, noticed in the same step."""

from __future__ import annotations

import random

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.ingest import streams
from corpusmill.pipeline.ingest.zstd_blocks import SLICE, ZstdBlocks

BLOCK = 1 << 17


class Slices(ZstdBlocks):
    """Every slice alone."""

    def within(self, there: int) -> int:
        return SLICE


def _content(kind: str, size: int, seed: int) -> bytes:
    rng = random.Random(seed)
    if kind == "noise":
        return rng.randbytes(size)  # blocks that are stored as they are
    if kind == "one byte":
        return b"a" * size
    words = [rng.randbytes(5).hex() for _ in range(300)]
    return " ".join(rng.choices(words, k=size // 11 + 1)).encode()[:size]


def _frame(content: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    how = zstandard.ZstdCompressor(
        level=rng.choice([1, 3, 19]), write_checksum=rng.random() < 0.5, write_content_size=rng.random() < 0.5
    )
    if rng.random() < 0.3:  # blocks of other sizes
        out = how.compressobj()
        cut = rng.randrange(len(content) + 1)
        flushed = out.compress(content[:cut]) + out.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return flushed + out.compress(content[cut:]) + out.flush()
    return how.compress(content)


def steps(data: bytes, piece: int, blocks: type[ZstdBlocks]) -> list[tuple[str, bytes]]:
    """Of each step that is given new input, the output until it needs more, and how it ended."""
    original, streams.ZstdBlocks = streams.ZstdBlocks, blocks  # type: ignore[misc]
    try:
        step = streams.DECODERS["zstd"]()
    finally:
        streams.ZstdBlocks = original  # type: ignore[misc]
    found = []
    for begin in range(0, len(data), piece):
        given, out, first = data[begin : begin + piece], b"", True
        while True:
            try:
                more, given, ended = step(given)
            except streams.BAD_DATA as error:
                found.append((f"{type(error).__name__} {error} {first}", out))
                return found
            out += more
            first = False
            if ended:
                found.append((f"ended {given!r}", out))
                return found
            if not (more or given):
                break
        found.append(("", out))
    return found


@pytest.mark.parametrize("kind", ["words", "noise", "one byte"])
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1 << 30), st.sampled_from([0, 1, 255, 300, 5_000, BLOCK, 3 * BLOCK + 77, 700_001]), st.sampled_from([100, 4_096, 1 << 18]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), max_size=2), st.floats(0.2, 1) | st.just(1.0),
)  # fmt: skip
def test_steps_give_the_same(
    kind: str, seed: int, size: int, piece: int, damage: list[tuple[float, int]], part: float
) -> None:
    data = bytearray(_frame(_content(kind, size, seed), seed) + b"behind" * (seed % 2))
    for place, bit in damage:
        data[int(place * (len(data) - 1))] ^= 1 << bit
    whole = bytes(data[: int(part * len(data))])
    assert steps(whole, piece, ZstdBlocks) == steps(whole, piece, Slices)


@pytest.mark.parametrize(("kind", "fewer"), [("words", 4), ("noise", 100)])
def test_blocks_are_passed_in_few_steps(kind: str, fewer: int) -> None:
    data = zstandard.ZstdCompressor().compress(_content(kind, 8 * BLOCK, 1))
    blocks, at, count = ZstdBlocks(), 0, 0
    while at < len(data):
        piece = data[at : at + blocks.within(len(data) - at)]
        blocks.pass_over(piece)
        at, count = at + len(piece), count + 1
    assert count * fewer < len(data) // SLICE


def test_a_slice_of_tiny_blocks_is_passed_alone() -> None:
    """A bomb: each block of 4 bytes stands for 128 KiB."""
    header = b"\x28\xb5\x2f\xfd\x00\x58"
    block = (BLOCK << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    data = header + block * 10_000
    step = streams.DECODERS["zstd"]()
    sizes = []
    while True:
        out, data, _ = step(data)
        if not (out or data):
            break
        sizes.append(len(out))
    assert max(sizes) <= SLICE // 4 * BLOCK and np.sum(sizes) == 10_000 * BLOCK
