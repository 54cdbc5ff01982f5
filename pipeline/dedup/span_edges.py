"""Numba kernels that cut spans out of texts: what a cut takes with it, and what it leaves.

A cut is described by its core: the span without the white space at its ends. What becomes of the white space
around the core depends on that white space alone, not on how much of it the span had, so that cutting is
stable: spans already settled settle to themselves. Cuts with nothing but white space between them are one.

- The core fills whole lines: the longer of the line breaks before and after it stays, the other goes (a line
  takes its newline with it, a paragraph its blank line; the next line keeps its indentation).
- It begins inside a line and ends at a line's end: the blanks before it go. The other way round: those after.
- It lies inside a line: one of the blanks before and after it stays. If it crosses lines, a line break of its
  own stays (a blank line, if it has one), because its neighbours stood in different lines.
- It has no white space on either side, and two words would become one: the first blank inside it stays, else
  its first separator, else its first letter of an unspaced script; if it has none of them, it is a piece of
  one word, and nothing is cut.

White space is ASCII white space; words are those of `pipeline/text/word_rule.py`. Positions are bytes from the start
of the text. Spans never cut a code point in two: one that would is made smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.word_hashes import code_point, entry_of

_SHIFT, _FOLDED = np.uint32(word_rule.CLASS_SHIFT), np.uint32((1 << word_rule.CLASS_SHIFT) - 1)
_SEPARATOR, _ALONE, _COMPOSED = (
    np.uint32(kind) for kind in (word_rule.SEPARATOR, word_rule.ALONE, word_rule.COMPOSED)
)
NEWLINE = 10


@compiled(inline="always")
def white(byte: Any) -> Any:
    """ASCII white space, line breaks among it."""
    return byte == 32 or 9 <= byte <= 13


@compiled
def _kind(data: Any, i: int, stop: int, rule: Any) -> Any:
    """(class of the character at `i` by the word rule, where the next one begins)."""
    point, after = code_point(data, i, stop)
    entry = entry_of(point, rule)
    if entry >> _SHIFT == _COMPOSED:
        entry = rule.pieces[entry & _FOLDED, 0]
    return entry >> _SHIFT, after


@compiled
def _joins(data: Any, i: int, stop: int, rule: Any) -> Any:
    """Whether the character at `i` is part of a word that goes on to its neighbours."""
    kind, _ = _kind(data, i, stop, rule)
    return kind != _SEPARATOR and kind != _ALONE


@compiled
def snap(offsets: Any, data: Any, rows: Any, starts: Any, stops: Any) -> None:
    """Makes spans that begin or end inside a code point smaller, in place; an empty one has stop <= start."""
    for i in range(len(rows)):
        low, high = offsets[rows[i]], offsets[rows[i] + 1]
        while low + starts[i] < high and data[low + starts[i]] & 0xC0 == 0x80:
            starts[i] += 1
        while stops[i] > starts[i] and low + stops[i] < high and data[low + stops[i]] & 0xC0 == 0x80:
            stops[i] -= 1


@compiled
def _core(data: Any, start: int, stop: int) -> Any:
    """The span without the white space at its ends."""
    while start < stop and white(data[start]):
        start += 1
    while stop > start and white(data[stop - 1]):
        stop -= 1
    return start, stop


@compiled
def _breaks(data: Any, start: int, stop: int) -> Any:
    """(line breaks, the first, the last) in `data[start:stop]`; positions mean nothing if there are none."""
    count, first, last = 0, stop, start
    for i in range(start, stop):
        if data[i] == NEWLINE:
            if count == 0:
                first = i
            last = i
            count += 1
    return count, first, last


@compiled
def _own_break(data: Any, start: int, stop: int) -> Any:
    """(start, stop) of the line break inside a core that stays: its first blank line, else its first break,
    else nothing (start == stop). A carriage return belongs to its newline."""
    found, end = stop, stop
    for i in range(start, stop):
        if data[i] == NEWLINE:
            head = i - 1 if i > start and data[i - 1] == 13 else i
            after = i + 1
            if after < stop and data[after] == 13:
                after += 1
            if after < stop and data[after] == NEWLINE:
                return head, after + 1
            if found == stop:
                found, end = head, i + 1
    return found, end


@compiled
def _own_separator(data: Any, start: int, stop: int, rule: Any) -> Any:
    """(start, stop) of the character inside a core that keeps the words beside it apart; (start, start) if it
    has none."""
    separator, separator_end, alone, alone_end = start, start, start, start
    i = start
    while i < stop:
        if white(data[i]):
            return i, i + 1
        kind, after = _kind(data, i, stop, rule)
        if kind == _SEPARATOR and separator == separator_end:
            separator, separator_end = i, after
        elif kind == _ALONE and alone == alone_end:
            alone, alone_end = i, after
        i = after
    if separator < separator_end:
        return separator, separator_end
    return alone, alone_end


@compiled
def _cut_around(data: Any, low: int, high: int, rule: Any, start: int, stop: int) -> Any:
    """Cut (start, stop) around a core, but for what stays inside it: (start, stop, from, to); absolute."""
    left, right = start, stop
    while left > low and white(data[left - 1]):
        left -= 1
    while right < high and white(data[right]):
        right += 1
    before, first_before, last_before = _breaks(data, left, start)
    after, first_after, last_after = _breaks(data, stop, right)
    if left == low and right == high:
        return low, high, high, high
    if right == high:  # what the text ended with, it ends with still
        return left, stop, stop, stop
    if left == low:
        if after == 0:
            return start, right, right, right
        return (last_before + 1 if before else low), last_after + 1, right, right
    if before and after:
        if before >= after:
            return last_before + 1, last_after + 1, right, right
        return first_before, first_after, right, right
    if before:
        return start, right, right, right
    if after:
        return left, stop, stop, stop
    own, own_end = _own_break(data, start, stop)
    if own < own_end:
        return left, right, own, own_end
    if left < start:
        return start, right, right, right
    if right > stop:
        return start, stop, stop, stop
    previous = left - 1
    while previous > low and data[previous] & 0xC0 == 0x80:
        previous -= 1
    if _joins(data, previous, high, rule) and _joins(data, right, high, rule):
        own, own_end = _own_separator(data, start, stop, rule)
        if own == own_end:
            return start, start, start, start
        return start, stop, own, own_end
    return start, stop, stop, stop


@compiled
def settle(offsets: Any, data: Any, rule: Any, rows: Any, starts: Any, stops: Any) -> Any:
    """What is really cut for spans sorted by (row, start), already snapped.

    Returns int64[pieces, 5]: row, start and stop in its text, and the first and last + 1 of the spans that
    the piece comes from. Pieces are sorted and do not touch.
    """
    pieces = np.empty((2 * len(rows), 5), np.int64)
    count = 0
    i = 0
    while i < len(rows):
        row, first = rows[i], i
        low, high = offsets[row], offsets[row + 1]
        start, stop = _core(data, low + starts[i], low + stops[i])
        i += 1
        if start >= stop:
            continue
        while i < len(rows) and rows[i] == row:
            next_start, next_stop = _core(data, low + starts[i], low + stops[i])
            if next_start < next_stop:
                between = stop
                while between < next_start and white(data[between]):
                    between += 1
                if between < next_start:
                    break
                stop = max(stop, next_stop)
            i += 1
        start, stop, own, own_end = _cut_around(data, low, high, rule, start, stop)
        for a, b in ((start, min(own, stop)), (own_end, stop)):
            if a < b:
                pieces[count] = row, a - low, b - low, first, i
                count += 1
    return pieces[:count].copy()


@compiled
def credit(pieces: Any, starts: Any, stops: Any, kinds: Any) -> Any:
    """Whose work the pieces are: int64[edits, 4] of row, kind, start, stop, clipped to the pieces.

    White space that a piece took along counts for the kind whose span it follows (at a piece's start: comes
    before). The union of all edits is the union of the pieces.
    """
    total = 0
    for piece in pieces:
        total += 2 * (piece[4] - piece[3]) + 1
    edits = np.empty((total, 4), np.int64)
    count = 0
    for piece in pieces:
        row, low, high = piece[0], piece[1], piece[2]
        reach, owner = low, -1
        for i in range(piece[3], piece[4]):
            start, stop = max(starts[i], low), min(stops[i], high)
            if start > stop:
                continue
            if owner < 0:
                owner = kinds[i]
            if start > reach:
                edits[count] = row, owner, reach, start
                count += 1
            if start < stop:
                edits[count] = row, kinds[i], start, stop
                count += 1
            if stop > reach:
                reach, owner = stop, kinds[i]
        if reach < high:
            edits[count] = row, owner if owner >= 0 else kinds[piece[3]], reach, high
            count += 1
    return edits[:count].copy()
