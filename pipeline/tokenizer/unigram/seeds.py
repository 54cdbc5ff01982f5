"""The pieces that Unigram begins with: the 256 bytes, and the substrings of words that occur most, by occurrences times length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.tokenizer.words import Words

SEEDS = 1_000_000  # besides the bytes, as in SentencePiece; the kernels' trie numbers a few more
LONGEST = 16  # characters of a piece, likewise
LEAST = 2  # occurrences of a piece
_POINTS = 0x110000  # code points
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Found(NamedTuple):
    """Substrings of one length: the character at which each occurs first, and how often it occurs in the texts."""

    at: I64
    counts: F64


def seeds(words: Words, longest: int | None, most: int = SEEDS) -> tuple[list[bytes], F64]:
    """(pieces in the order of their bytes, their weights): every byte, and up to `most` substrings of whole characters.

    `longest`: bytes of a piece at most. A substring that is always followed by the same character, as is `quic` where only
    `quick` occurs, is left out for the longer one; characters by themselves are not. The suffix array of SentencePiece finds the
    same.
    """
    text = words.data.tobytes()
    points = np.frombuffer(text.decode("utf-8").encode("utf-32-le"), np.uint32).astype(np.int64)
    widths = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
    begins = np.zeros(len(points) + 1, np.int64)
    np.cumsum(widths, out=begins[1:])
    places: list[I64] = []
    weights: list[F64] = []
    sizes: list[I64] = []
    for length, found in enumerate(_substrings(words, points, begins), 1):
        size = begins[found.at + length] - begins[found.at]
        fits = (size > 1) & (size <= (longest or np.inf))
        places.append(begins[found.at[fits]])
        sizes.append(size[fits])
        weights.append(found.counts[fits] * length)
    at, weight, size = np.concatenate(places), np.concatenate(weights), np.concatenate(sizes)
    order = np.lexsort((size, at, -weight))[:most]
    rows = zip(at[order].tolist(), size[order].tolist(), weight[order].tolist(), strict=True)
    found_pieces = {text[begin : begin + count]: value for begin, count, value in rows}
    owners = np.repeat(words.counts, np.diff(words.bounds)).astype(np.float64)
    alone = np.maximum(np.bincount(words.data, weights=owners, minlength=256), 0.5)
    found_pieces |= {bytes([byte]): value for byte, value in enumerate(alone.tolist())}
    pieces = sorted(found_pieces)
    return pieces, np.array([found_pieces[piece] for piece in pieces])


def _substrings(words: Words, points: I64, begins: I64) -> list[Found]:
    """Those of 1, 2, ... `LONGEST` characters that occur `LEAST` times in the texts, within words."""
    edges = begins.searchsorted(words.bounds)  # characters at which words begin
    lengths = np.diff(edges)
    left = np.repeat(edges[1:], lengths) - np.arange(len(points))  # characters of the word from here on
    weight = np.repeat(words.counts, lengths).astype(np.float64)
    result = []
    at = np.arange(len(points))  # characters at which a substring begins that may go on
    same = np.zeros(len(points), np.int64)  # of each, which substring it is
    before = Found(np.zeros(0, np.int64), np.zeros(0))
    for length in range(1, LONGEST + 1):
        fits = left[at] >= length
        at, same = at[fits], same[fits]
        _, first, which = np.unique(
            same * _POINTS + points[at + length - 1], return_index=True, return_inverse=True
        )
        counts: F64 = np.bincount(which, weights=weight[at], minlength=len(first)).astype(np.float64)
        often = counts >= LEAST
        if length > 1:
            parents = same[first]
            kept = np.ones(len(before.at), np.bool_)
            kept[parents[often & (counts == before.counts[parents])]] = (
                length == 2
            )  # a single character stays
            result.append(Found(before.at[kept], before.counts[kept]))
        before = Found(at[first[often]], counts[often])
        new = np.cumsum(often) - 1
        stays = often[which]
        at, same = at[stays], new[which[stays]]
    return [*result, before]
