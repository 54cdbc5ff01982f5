"""Lines of JSON as documents, by a kernel over bytes: for the records that most files hold, one object a line with its text in a string.

Strings go from the line into Arrow's buffers; what has no column of its own is left as JSON, for orjson to check. A line that the kernel is not
sure of, by RFC 8259 and by what `corpusmill.pipeline.ingest.fields.document` does with values, is left to Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.eight_bytes import (
    HIGH,
    continuations,
    ends_run,
    first_bytes,
    first_of,
    read_word,
)
from corpusmill.pipeline.text.utf8 import encode
from corpusmill.pipeline.text.word_hashes import byte_at

SLOW, BLANK, DOCUMENT = 0, 1, 2  # what a line is
# Columns of what is found of each line: what it is, its bounds, what the builder counts its text as, and where its part ends in each buffer.
KIND, BEGIN, END, SIZE, TEXT, SOURCE_ID, URL, DATE, REST = range(9)
COLUMNS = 9
NAMED = 4  # text, source_id, url, date
DIGITS = 18  # of a number, at most, that is taken as it stands

_QUOTE, _BACKSLASH, _SLASH, _NEWLINE, _COLON, _COMMA = 0x22, 0x5C, 0x2F, 0x0A, 0x3A, 0x2C
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D


@compiled(inline="always")
def _copy(data: Any, begin: Any, stop: Any, out: Any, end: Any) -> None:
    """Bytes to `out[end:]`. (Unsigned places: with others, which may be negative, the loop is not vectorised.)"""
    for k in range(stop - begin):
        out[np.uint64(end + k)] = data[np.uint64(begin + k)]


@compiled(inline="always")
def _space(data: Any, i: Any) -> Any:
    while byte_at(data, i) == 0x20 or byte_at(data, i) == 0x09 or byte_at(data, i) == 0x0D:
        i += 1
    return i


@compiled
def _hex(data: Any, i: int) -> Any:
    """The number of four hex digits; -1 if they are none."""
    value: Any = 0
    for k in range(i, i + 4):
        byte = np.int64(byte_at(data, k))
        if 0x30 <= byte <= 0x39:
            digit = byte - 0x30
        elif 0x61 <= byte | 0x20 <= 0x66:
            digit = (byte | 0x20) - 0x57
        else:
            return -1
        value = value << 4 | digit
    return value


@compiled
def _escaped(data: Any, i: int) -> Any:
    """(character, bytes) of the escape sequence at `i`; (-1, 0) for none, and for half of a pair of surrogates."""
    kind = byte_at(data, i + 1)
    if kind == 0x6E:
        return 0x0A, 2
    if kind in (_QUOTE, _BACKSLASH, _SLASH):
        return np.int64(kind), 2
    if kind == 0x74:
        return 0x09, 2
    if kind == 0x72:
        return 0x0D, 2
    if kind == 0x62:
        return 0x08, 2
    if kind == 0x66:
        return 0x0C, 2
    if kind != 0x75:
        return -1, 0
    point = _hex(data, i + 2)
    if point < 0xD800 or point > 0xDFFF:
        return point, 6
    if point > 0xDBFF or byte_at(data, i + 6) != _BACKSLASH or byte_at(data, i + 7) != 0x75:
        return -1, 0
    second = _hex(data, i + 8)
    if second < 0xDC00 or second > 0xDFFF:
        return -1, 0
    return 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00), 12


@compiled
def _copied(data: Any, i: int, stop: int, out: Any, end: int) -> Any:
    """The string whose first character is at `i`, at `out[end:]`: (behind its quote, new end, characters); (-1, 0, 0) for none."""
    more: Any = 0  # bytes that are not the first of a character
    first = end
    while True:
        run, flags = i, np.uint64(0)
        while i + 8 <= stop:
            word = read_word(data, i)
            flags = ends_run(word)
            if flags:
                size = first_of(flags)
                word = first_bytes(word, size)
                i += size
            if word & HIGH:
                more += np.int64(continuations(word))
            if flags:
                break
            i += 8
        byte = byte_at(data, i)
        while not flags and byte >= 0x20 and byte != _QUOTE and byte != _BACKSLASH:  # at the end of the block
            more += byte & 0xC0 == 0x80
            i += 1
            byte = byte_at(data, i)
        _copy(data, run, i, out, end)
        end += i - run
        if byte == _QUOTE:
            return i + 1, end, end - first - more
        if byte != _BACKSLASH:
            return -1, 0, 0
        point, size = _escaped(data, i)
        if point < 0:
            return -1, 0, 0
        behind = encode(point, out, end)
        more += behind - end - 1
        end = behind
        i += size


@compiled
def _passed(data: Any, i: int, stop: int) -> int:
    """Behind the quote that ends the string whose first character is at `i`; -1 if none does. What it holds is not checked."""
    while True:
        flags = np.uint64(0)
        while i + 8 <= stop and not flags:
            flags = ends_run(read_word(data, i))
            i += first_of(flags) if flags else 8
        byte = byte_at(data, i)
        while not flags and byte >= 0x20 and byte != _QUOTE and byte != _BACKSLASH:
            i += 1
            byte = byte_at(data, i)
        if byte == _QUOTE:
            return i + 1
        if byte != _BACKSLASH or byte_at(data, i + 1) < 0x20:
            return -1
        i += 2


@compiled
def _behind(data: Any, i: int, stop: int) -> int:
    """Where the value at `i` ends, by brackets and strings alone; -1 if it does not within the line."""
    depth = 0
    while True:
        byte = byte_at(data, i)
        if byte == _QUOTE:
            i = _passed(data, i + 1, stop)
            if i < 0 or not depth:
                return i
            continue
        if byte in (_OPEN, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_LIST):
            if depth <= 1:
                return i + depth
            depth -= 1
        elif (byte == _COMMA and not depth) or byte == _NEWLINE:
            return i if depth == 0 and byte == _COMMA else -1
        i += 1


@compiled
def _name(data: Any, i: int, size: int, names: Any, bounds: Any) -> int:
    """Which of the names stands at `data[i : i + size]`; -1 for none."""
    for n in range(NAMED):
        if bounds[n + 1] - bounds[n] == size:
            k = 0
            while k < size and byte_at(data, i + k) == byte_at(names, bounds[n] + k):
                k += 1
            if k == size:
                return n
    return -1


@compiled
def _number(data: Any, i: int) -> int:
    """Behind the whole number at `i`, if it is one as Python writes it; else -1."""
    k = i
    while 0x30 <= byte_at(data, k) <= 0x39:
        k += 1
    byte = byte_at(data, k)
    if (
        byte not in (_COMMA, _CLOSE, 0x20, 0x09, 0x0D)
        or k - i > DIGITS
        or (byte_at(data, i) == 0x30 and k - i > 1)
    ):
        return -1
    return k


@compiled
def _record(data: Any, i: int, stop: int, names: Any, bounds: Any, buffers: Any, ends: Any) -> Any:
    """The object at `i` into the buffers, from `ends` on: (behind it, what its text counts as); (-1, 0) if Python must look at it.

    `buffers`: of text, source_id, url, date and the other members; `ends`: int64[5], moved.
    """
    text, rest = buffers[0], buffers[NAMED]
    size, seen = 0, 0
    first = ends[NAMED]
    i = _space(data, i + 1)
    while True:
        if byte_at(data, i) != _QUOTE:
            return -1, 0
        member = i
        i += 1
        while byte_at(data, i) >= 0x20 and byte_at(data, i) != _QUOTE and byte_at(data, i) != _BACKSLASH:
            i += 1
        if byte_at(data, i) != _QUOTE:
            return -1, 0
        which = _name(data, member + 1, i - member - 1, names, bounds)
        i = _space(data, i + 1)
        if byte_at(data, i) != _COLON:
            return -1, 0
        i = _space(data, i + 1)
        kept = False  # among the other members
        if which >= 0:
            if seen & 1 << which:
                return -1, 0
            seen |= 1 << which
        if which == 0:
            if byte_at(data, i) != _QUOTE:
                return -1, 0
            begin = ends[0]
            i, end, size = _copied(data, i + 1, stop, text, begin)
            if i < 0:
                return -1, 0
            if size < end - begin:
                size *= 3
            ends[0] = end
        elif which > 0 and byte_at(data, i) == _QUOTE:
            begin = ends[which]
            i, end, _ = _copied(data, i + 1, stop, buffers[which], begin)
            if i < 0:
                return -1, 0
            kept = end == begin
            ends[which] = end
        elif which > 0 and (byte_at(data, i) == 0x2D or 0x30 <= byte_at(data, i) <= 0x39):
            begin, k = i, ends[which]
            i = _number(data, i)
            if i < 0 or byte_at(data, begin) == 0x2D:
                return -1, 0
            _copy(data, begin, i, buffers[which], k)
            ends[which] = k + i - begin
        else:
            i = _behind(data, i, stop)
            if i < 0:
                return -1, 0
            kept = True
        if kept:
            end = ends[NAMED]
            rest[end] = _OPEN if end == first else _COMMA
            _copy(data, member, i, rest, end + 1)
            ends[NAMED] = end + 1 + i - member
        i = _space(data, i)
        if byte_at(data, i) == _CLOSE:
            break
        if byte_at(data, i) != _COMMA:
            return -1, 0
        i = _space(data, i + 1)
    if not seen & 1:
        return -1, 0
    if ends[NAMED] > first:
        rest[ends[NAMED]] = _CLOSE
        ends[NAMED] += 1
    return i + 1, size


@compiled
def scan(data: Any, limit: int, names: Any, bounds: Any, buffers: Any, found: Any) -> None:
    """What each line of `data` is: rows of `found`, int64[lines, `COLUMNS`].

    `data`: whole lines of valid UTF-8, each with its newline; with more than `limit` bytes before it a line is `SLOW`. `names`, int64[5] `bounds`:
    UTF-8 names of the fields of text, source_id, url and date, each another. `buffers`: uint8, as long as `data` each, for these and for the
    other members of a line's object, as JSON.
    """
    stop = len(data)
    ends, before = np.zeros(NAMED + 1, np.int64), np.zeros(NAMED + 1, np.int64)
    at = 0
    for row in range(len(found)):
        begin, kind, size = at, SLOW, 0
        at = _space(data, at)
        before[:] = ends
        if byte_at(data, at) == _NEWLINE:
            kind = BLANK
        elif byte_at(data, at) == _OPEN:
            behind, size = _record(data, at, stop, names, bounds, buffers, ends)
            if behind >= 0:
                at = _space(data, behind)
                if byte_at(data, at) == _NEWLINE:
                    kind = DOCUMENT
        while byte_at(data, at) != _NEWLINE:
            at += 1
        if at - begin > limit:
            kind = SLOW
        if kind != DOCUMENT:
            ends[:] = before
        found[row, KIND], found[row, BEGIN], found[row, END], found[row, SIZE] = kind, begin, at, size
        for n in range(NAMED + 1):
            found[row, TEXT + n] = ends[n]
        at += 1
