"""Which parts of a document the models read: its start, or windows spread over it; and sentences inside those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.model_words import BLANK, Words, tables
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.text.eight_bytes import continuations, read_word
from corpusmill.pipeline.text.utf8 import decode

if TYPE_CHECKING:
    from corpusmill.pipeline.filter.toxicity.tokens import Tokens

NEAR: Final = 40  # characters: how far a cut is moved on to white space, so that it parts no word
SHORT_SENTENCE: Final = 3  # words: a shorter one ("Mr.") is put together with the next


def windows_of(data: Array, offsets: Array, chars: int, most: int) -> tuple[Array, Array, Array]:
    """(first, last, owner): windows data[first[w]:last[w]], those of document d being owner[d]:owner[d + 1].

    A document of more than `chars` characters is cut at white space into windows of about that length, evenly
    spread if they would be more than `most`; a shorter one is one window.
    """
    most_windows = int(np.minimum((offsets[1:] - offsets[:-1]) // chars + 1, most).sum())
    first, last = np.empty(most_windows, np.int64), np.empty(most_windows, np.int64)
    owner = np.zeros(len(offsets), np.int64)
    count = int(_windows(data, offsets, chars, most, tables()[0], first, last, owner))
    return first[:count], last[:count], owner


def sentences_of(words: Words | Tokens, first: Array, last: Array, owner: Array) -> tuple[Array, Array]:
    """(int64[S, 2] words of each sentence, int64[D + 1] sentences of each document) of the windows.

    A sentence that goes on in the next window is one; between windows that do not touch it ends.
    """
    bounds = np.empty((len(words.starts), 2), np.int64)
    offsets = np.zeros(len(owner), np.int64)
    count = int(_sentences(words.breaks, words.bounds, first, last, owner, bounds, offsets))
    return bounds[:count], offsets


def blank(data: Array, offsets: Array) -> Array:
    """bool[D]: whether a document holds nothing but white space of any script."""
    out = np.ones(len(offsets) - 1, np.bool_)
    _blank(data, offsets, tables()[0], out)
    return out


@compiled
def characters(data: Any, start: Any, end: Any) -> Any:
    """How many characters of valid UTF-8 begin in data[start:end]."""
    i, more = start, np.int64(0)
    while i + 8 <= end:
        more += np.int64(continuations(read_word(data, i)))
        i += 8
    for k in range(i, end):
        more += data[k] & 0xC0 == 0x80
    return end - start - more


@compiled
def _seek(data: Any, at: Any, place: Any, target: Any, end: Any, plain: Any) -> Any:
    """The byte of character `target`, going from byte `at`, which is character `place`, on or back. `plain`: all are of one byte."""
    if plain:
        return at + target - place
    while place < target and at < end:
        at += 1
        while at < end and data[at] & 0xC0 == 0x80:
            at += 1
        place += 1
    while place > target:
        at -= 1
        while data[at] & 0xC0 == 0x80:
            at -= 1
        place -= 1
    return at


@compiled
def _edge(data: Any, at: Any, place: Any, end: Any, bits: Any) -> Any:
    """(byte, character) of the next white space at or after a place, near it; else the place."""
    i = at
    for k in range(NEAR):
        if i >= end:
            break
        c, size = decode(data, i)
        if bits[c] & BLANK:
            return i, place + k
        i += size
    return at, place


@compiled
def _windows(
    data: Any, offsets: Any, chars: Any, most: Any, bits: Any, first: Any, last: Any, owner: Any
) -> Any:
    count = 0
    for d in range(len(offsets) - 1):
        start, end = offsets[d], offsets[d + 1]
        size = characters(data, start, end)
        plain = size == end - start
        if size <= chars:
            first[count], last[count] = start, end
            count += 1
        else:
            pieces = min(most, (size + chars - 1) // chars)
            step = size / pieces
            at, place = start, 0
            for k in range(pieces):
                first[count] = at
                begin = place
                goal = np.int64(np.rint((k + 1) * step))
                if goal >= size:
                    next_at, next_place = end, size
                else:
                    next_at, next_place = _edge(
                        data, _seek(data, at, place, goal, end, plain), goal, end, bits
                    )
                if step <= chars or begin + chars >= next_place:
                    last[count] = next_at
                else:
                    goal = begin + chars
                    last[count] = _edge(data, _seek(data, at, place, goal, end, plain), goal, end, bits)[0]
                at, place = next_at, next_place
                count += 1
        owner[d + 1] = count
    return count


@compiled
def _sentences(breaks: Any, bounds: Any, first: Any, last: Any, owner: Any, out: Any, offsets: Any) -> Any:
    count = 0
    for d in range(len(owner) - 1):
        begin = -1
        for p in range(owner[d], owner[d + 1]):
            apart = p > owner[d] and first[p] != last[p - 1]
            for w in range(bounds[p, 0], bounds[p, 1]):
                if begin >= 0 and (
                    (breaks[w] and w - begin >= SHORT_SENTENCE) or (apart and w == bounds[p, 0])
                ):
                    out[count, 0], out[count, 1] = begin, w
                    count += 1
                    begin = w
                elif begin < 0:
                    begin = w
            if begin >= 0 and p + 1 == owner[d + 1]:
                out[count, 0], out[count, 1] = begin, bounds[p, 1]
                count += 1
        offsets[d + 1] = count
    return count


@compiled
def _blank(data: Any, offsets: Any, bits: Any, out: Any) -> None:
    for d in range(len(offsets) - 1):
        i = offsets[d]
        while i < offsets[d + 1]:
            c, size = decode(data, i)
            if not bits[c] & BLANK:
                out[d] = False
                break
            i += size
