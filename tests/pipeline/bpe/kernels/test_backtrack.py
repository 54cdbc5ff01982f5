"""The longest tokens with steps back are what merging gives, where the longest are wrong and where merges have no order."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.bpe.engine import vocabulary
from corpusmill.pipeline.bpe.kernels.buffers import pointer
from corpusmill.pipeline.bpe.kernels.merge import Merges, pointers
from corpusmill.pipeline.bpe.kernels.scan import encode_piece, stay_apart
from corpusmill.pipeline.bpe.kernels.tokens import Tokens, token_pointers
from tests.pipeline.bpe.kernels.test_merge import any_merges, defined

Triples = list[tuple[int, int, int]]


@nb.njit
def run(data: Any, ends: Any, merges: Merges, tokens: Tokens, ids: Any, scratch: Any, counts: Any) -> None:
    start = 0
    for piece, end in enumerate(ends):
        counts[piece] = encode_piece(
            pointer(data), start, end - start, pointers(merges), token_pointers(tokens), pointer(ids[start:]),
            pointer(scratch[0]), pointer(scratch[1]), pointer(scratch[2]),
        )  # fmt: skip
        start = end


@nb.njit
def apart(first: int, second: int, tokens: Tokens) -> bool:
    return stay_apart(first, second, False, token_pointers(tokens))


def bytes_of(merges: Triples) -> list[bytes]:
    """The bytes of every token, by id."""
    names = {byte: bytes([byte]) for byte in range(256)}
    while any(made not in names for _, _, made in merges):
        names |= {
            made: names[left] + names[right] for left, right, made in merges if {left, right} <= {*names}
        }
    return [names.get(token, b"") for token in range(max(names) + 1)]


def kernels_of(merges: Triples, whole: bool = False) -> tuple[Merges, Tokens]:
    table = np.array(merges, np.int32).reshape(-1, 3)
    return vocabulary(
        np.arange(256, dtype=np.int32), table[:, :2].copy(), table[:, 2].copy(), bytes_of(merges), whole
    )


def encoded(texts: list[bytes], kernels: tuple[Merges, Tokens]) -> list[list[int]]:
    """Of each text its tokens; they lie end to end, so that a look beyond the end of one meets the next."""
    data, ends = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts])
    ids, counts = np.empty(len(data), np.int32), np.empty(len(texts), np.int64)
    run(data, ends, *kernels, ids, np.empty((3, len(data)), np.int32), counts)
    starts = [0, *ends[:-1]]
    return [ids[start : start + count].tolist() for start, count in zip(starts, counts, strict=True)]


@pytest.mark.parametrize("in_order", [True, False])
@settings(max_examples=300)
@given(data=st.data(), texts=st.lists(st.text("abcx", min_size=1, max_size=100).map(str.encode), max_size=8))
def test_as_merged(in_order: bool, data: st.DataObject, texts: list[bytes]) -> None:
    merges = data.draw(any_merges(in_order))
    kernels = kernels_of(merges)
    names = [name for name in bytes_of(merges) if name]
    texts += [bytes([byte]) for byte in range(256)] + [a + b for a in names[255:] for b in names[255:]]
    assert encoded(texts, kernels) == [defined(text, merges)[0] for text in texts]


@given(
    merges=any_merges(in_order=True), texts=st.lists(st.text("abc", min_size=1).map(str.encode), max_size=8)
)
def test_a_piece_that_is_a_token_is_not_merged(merges: Triples, texts: list[bytes]) -> None:
    names = bytes_of(merges)
    kernels = kernels_of(merges, whole=True)
    texts = [*texts, *filter(None, names)]
    wanted = [[names.index(text)] if text in names else defined(text, merges)[0] for text in texts]
    assert encoded(texts, kernels) == wanted


@settings(max_examples=200)
@given(merges=any_merges(in_order=True))
def test_neighbours_stay_apart_if_merging_keeps_them(merges: Triples) -> None:
    _, tokens = kernels_of(merges)
    if tokens.ordered:
        names = bytes_of(merges)
        some = {*range(tokens.single, tokens.made), *np.flatnonzero(np.isin(tokens.ids, [*b"abc"])).tolist()}
        for a in some & {*range(tokens.made)}:
            for b in some & {*range(tokens.made)}:
                pair = [int(tokens.ids[a]), int(tokens.ids[b])]
                assert apart(a, b, tokens) == (defined(names[pair[0]] + names[pair[1]], merges)[0] == pair)


def words(*parts: str) -> Triples:
    """Merges by rank, each written as its halves: "ab c"."""
    ids = {chr(byte): byte for byte in range(256)}
    merges = []
    for part in parts:
        left, right = part.split()
        merges.append((ids[left], ids[right], ids.setdefault(left + right, len(ids))))
    return merges


# What is longest is wrong; what must be taken back is far behind; ends in the middle of a run of equal letters; a token that
# merging never makes ("abc": "b c" comes first).
HARD = [
    (words("b c", "a b", "c d", "ab cd"), b"abcd"),
    (words("b c", "a b", "ab c", "bc d", "a bcd"), b"abcabcdab"),
    (words("a a", "aa aa", "aaaa a"), b"a" * 77),
    (words("a a", "a b", "aa ab"), b"a" * 64 + b"b" + b"a" * 63 + b"b"),
    (words("a b", "ab ab", "abab abab", "b a", "ba ba"), b"ab" * 31 + b"a" + b"ba" * 40),
    (words("c c", "b cc", "a b", "ab c"), b"abcc" * 20),
]


@pytest.mark.parametrize("case", range(len(HARD)))
def test_where_the_longest_token_is_wrong(case: int) -> None:
    merges, text = HARD[case]
    parts = [text[start:] for start in range(len(text))]
    assert encoded(parts, kernels_of(merges)) == [defined(part, merges)[0] for part in parts]


def test_merges_in_no_order_are_noticed() -> None:
    assert kernels_of(words("a b", "ab c"))[1].ordered
    ab, abc = words("a b", "ab c")
    assert not kernels_of([abc, ab])[1].ordered
    dead = words("b c", "a b", "ab c", "a bc")
    kernels = kernels_of(dead)[1]
    assert kernels.ordered and kernels.made == 256 + 3


def test_a_byte_without_a_token_is_merged_as_defined() -> None:
    merges = words("a b")
    names = bytes_of(merges)
    names[0xC0] = b""
    byte_ids = np.arange(256, dtype=np.int32)
    byte_ids[0xC0] = 0
    table = np.array(merges, np.int32)
    kernels = vocabulary(byte_ids, table[:, :2].copy(), table[:, 2].copy(), names, False)
    assert encoded([b"ab\xc0ab"], kernels) == [[merges[0][2], 0, merges[0][2]]]
