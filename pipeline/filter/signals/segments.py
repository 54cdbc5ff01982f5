"""Lines and paragraphs as each tool cuts them, blank ones, white space at their ends and all, and how often each
comes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.repetition import table_size
from corpusmill.pipeline.filter.text.words import hash_of
from corpusmill.pipeline.text.eight_bytes import below, equal_to, first_of, read_word
from corpusmill.pipeline.text.unicode_tables import SPACE, tool_table
from corpusmill.pipeline.text.utf8 import before, decode, is_at

# How a text is cut. The comments are what a Python tool calls.
SPLITLINES: Final = 0  # text.splitlines()
NEWLINE: Final = 1  # text.split("\n")
NEWLINES: Final = 2  # re.split("\n+", text)
BLANK_LINES: Final = 3  # re.split("\n{2,}", text.strip())
TWO_NEWLINES: Final = 4  # text.split("\n\n")


class Segments(NamedTuple):
    """Segments of D documents: `offsets` int64[D + 1]; bytes [`starts`, `ends`) of the data, `chars` code points,
    `hashes` uint64 of the bytes."""

    offsets: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    chars: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]


def segments(data: Any, offsets: Any, how: int, strip: bool = False, blank: bool = True) -> Segments:
    """Cut documents `data[offsets[d]:offsets[d + 1]]`; `strip` white space off segments, leave `blank` ones out."""
    none = np.empty(0, np.int64)
    found = np.empty(len(offsets), np.int64)
    total = _cut(data, offsets, tool_table(), how, strip, blank, found, none, none)
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    _cut(data, offsets, tool_table(), how, strip, blank, found, starts, ends)
    chars, hashes = _described(data, starts, ends)
    return Segments(found, starts, ends, chars, hashes)


def marked(
    data: Any, found: Segments, leads: Sequence[str], tails: Sequence[str], strip: bool = False
) -> npt.NDArray[np.int64]:
    """int64[D, 2]: segments that begin with one of `leads`, that end in one of `tails`, in either case of ASCII.

    Marks are in lower case; `strip` looks behind the white space around a segment.
    """
    lead, tail = "".join(leads).encode(), "".join(tails).encode()
    counts: npt.NDArray[np.int64] = _marked(
        data, found.offsets, found.starts, found.ends, tool_table(), strip,
        np.frombuffer(lead, np.uint8), np.cumsum([len(mark.encode()) for mark in leads]),
        np.frombuffer(tail, np.uint8), np.cumsum([len(mark.encode()) for mark in tails]),
    )  # fmt: skip
    return counts


@compiled
def _marked(
    data: Any, offsets: Any, starts: Any, ends: Any, table: Any, strip: bool,
    leads: Any, lead_ends: Any, tails: Any, tail_ends: Any,
) -> Any:  # fmt: skip
    out = np.zeros((len(offsets) - 1, 2), np.int64)
    for d in range(len(offsets) - 1):
        for k in range(offsets[d], offsets[d + 1]):
            a, b = starts[k], ends[k]
            if strip:
                a, b = stripped(data, a, b, table)
            first = 0
            for last in lead_ends:
                if is_at(data, a, a, b, leads[first:last]):
                    out[d, 0] += 1
                    break
                first = last
            first = 0
            for last in tail_ends:
                if is_at(data, b - (last - first), a, b, tails[first:last]):
                    out[d, 1] += 1
                    break
                first = last
    return out


@compiled
def stripped(data: Any, a: int, b: int, table: Any) -> Any:
    """[a, b) without the white space at both ends."""
    while a < b:
        point, size = decode(data, a)
        if not table[point] & SPACE:
            break
        a += size
    while b > a:
        i = before(data, a, b)
        if not table[decode(data, i)[0]] & SPACE:
            break
        b = i
    return a, b


@compiled
def _separator(data: Any, i: int, last: int, how: int) -> int:
    """Bytes of the separator at byte `i`, 0 if there is none."""
    b = data[i]
    if how == SPLITLINES:
        if b > 0x1E:
            if b == 0xC2:
                return 2 if data[i + 1] == 0x85 else 0
            if b == 0xE2:
                return 3 if data[i + 1] == 0x80 and (data[i + 2] == 0xA8 or data[i + 2] == 0xA9) else 0
            return 0
        if b == 13:
            return 2 if i + 1 < last and data[i + 1] == 10 else 1
        return 1 if 10 <= b <= 12 or b >= 0x1C else 0
    if b != 10:
        return 0
    if how == NEWLINE:
        return 1
    end = i + 1
    while end < last and data[end] == 10 and (how != TWO_NEWLINES or end < i + 2):
        end += 1
    return end - i if how == NEWLINES or end - i > 1 else 0


@compiled
def _next(data: Any, i: int, last: int, how: int) -> Any:
    """The first byte from `i` that a separator may begin with; `last` if there is none."""
    while i + 8 <= last:
        word = read_word(data, i)
        if how == SPLITLINES:
            flags = below(word, 0x1F) | equal_to(word, 0xC2) | equal_to(word, 0xE2)
        else:
            flags = equal_to(word, 10)
        if flags:
            return i + first_of(flags)
        i += 8
    while i < last:
        b = data[i]
        if b == 10 or (how == SPLITLINES and (b < 0x1F or b == 0xC2 or b == 0xE2)):
            break
        i += 1
    return i


@compiled
def _cut(
    data: Any,
    offsets: Any,
    table: Any,
    how: int,
    strip: bool,
    blank: bool,
    found: Any,
    starts: Any,
    ends: Any,
) -> int:
    """Fill `found`, and `starts` and `ends` as far as they are long enough; returns the number of segments."""
    n = 0
    found[0] = 0
    for d in range(len(offsets) - 1):
        i, last = offsets[d], offsets[d + 1]
        if how == BLANK_LINES:
            i, last = stripped(data, i, last, table)
        start = i
        while i <= last:
            size = _separator(data, i, last, how) if i < last else 1
            if size == 0:
                i = _next(data, i + 1, last, how)
                continue
            a, b = start, i
            if strip or not blank:
                inner_a, inner_b = stripped(data, a, b, table)
                full = inner_b > inner_a
                if strip:
                    a, b = inner_a, inner_b
            else:
                full = True
            # `splitlines` gives no empty line after the last end of line, nor for an empty text.
            if (blank or full) and not (how == SPLITLINES and i == last and start == last):
                if n < len(starts):
                    starts[n], ends[n] = a, b
                n += 1
            i += size
            start = i
        found[d + 1] = n
    return n


@compiled
def _described(data: Any, starts: Any, ends: Any) -> Any:
    chars, hashes = np.empty(len(starts), np.int32), np.empty(len(starts), np.uint64)
    for k in range(len(starts)):
        count = 0
        for i in range(starts[k], ends[k]):
            count += (data[i] & 0xC0) != 0x80
        chars[k] = count
        hashes[k] = hash_of(data, starts[k], ends[k])
    return chars, hashes


def repeats(found: Segments) -> npt.NDArray[np.int64]:
    """int64[D, 6]: segments and their characters; those that are later copies of another and their characters;
    those of which there are several, the first one included, and their characters."""
    return np.asarray(_repeats(found.hashes, found.chars, found.offsets))


@compiled
def _repeats(hashes: Any, chars: Any, offsets: Any) -> Any:
    out = np.zeros((len(offsets) - 1, 6), np.int64)
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        size = table_size(last - first)
        holder = np.full(size, -1, np.int64)  # the first segment of that content
        again = np.zeros(last - first, np.bool_)  # whether it has come twice
        row = out[d]
        for i in range(first, last):
            row[0] += 1
            row[1] += chars[i]
            slot = np.int64(hashes[i] & np.uint64(size - 1))
            while holder[slot] >= 0 and hashes[holder[slot]] != hashes[i]:
                slot = (slot + 1) & (size - 1)
            if holder[slot] < 0:
                holder[slot] = i
                continue
            row[2] += 1
            row[3] += chars[i]
            if not again[holder[slot] - first]:
                again[holder[slot] - first] = True
                row[4] += 1
                row[5] += chars[holder[slot]]
            row[4] += 1
            row[5] += chars[i]
    return out
