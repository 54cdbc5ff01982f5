"""Walks over texts and their tokens. `data` is uint8[N], a batch's UTF-8; text k is `data[offsets[k]:offsets[k + 1]]`, its
tokens are `ids[starts[k]:starts[k + 1]]`; token i stands for the bytes `pieces[bounds[i]:bounds[i + 1]]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled

MIN_LINE = 16  # bytes of a line, white space around it left out, that can be boilerplate
REPEATED, TAG = 1, 2
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled
def _blank(byte: Any) -> bool:
    return byte == 32 or 9 <= byte <= 13


@compiled
def _line(data: Any, start: int, stop: int) -> tuple[int, int, int, Any]:
    """(where the line's text begins, where it ends, where the next line begins, hash) of the line at `start`; the hash is 0
    for a line shorter than `MIN_LINE`."""
    end = start
    while end < stop and data[end] != 10:
        end += 1
    after = min(end + 1, stop)
    while start < end and _blank(data[start]):
        start += 1
    while end > start and _blank(data[end - 1]):
        end -= 1
    if end - start < MIN_LINE:
        return start, end, after, np.uint64(0)
    value = _BASIS
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * _PRIME
    value = (value ^ (value >> _SHIFT)) * _MIX
    return start, end, after, (value ^ (value >> _SHIFT)) | np.uint64(1)


@compiled
def line_hashes(data: Any, offsets: Any, hashes: Any, owners: Any) -> int:
    """The lines of at least `MIN_LINE` bytes: `hashes` (uint64, FNV-1a, mixed) and the text of each, `owners` (int32); how many.
    Both need one place for every `MIN_LINE` bytes of text, and one more."""
    count = 0
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        while at < stop:
            _, _, at, value = _line(data, at, stop)
            if value:
                hashes[count], owners[count] = value, k
                count += 1
    return count


@compiled
def mark(data: Any, offsets: Any, repeated: Any, names: Any, ends: Any, marks: Any) -> None:
    """Set `REPEATED` in `marks` (uint8[N], zeros) for the bytes of lines whose hash is in `repeated` (sorted uint64), and `TAG` for
    those of `<NAME>`, where NAME is one of `names[ends[i]:ends[i + 1]]`."""
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        while at < stop:
            first, last, at, value = _line(data, at, stop)
            if value and len(repeated):
                place = np.searchsorted(repeated, value)
                if place < len(repeated) and repeated[place] == value:
                    for i in range(first, last):
                        marks[i] |= REPEATED
        i = offsets[k]
        while i < stop:
            if data[i] == 60:  # <
                for name in range(len(ends) - 1):
                    size = ends[name + 1] - ends[name]
                    if i + size + 1 >= stop or data[i + size + 1] != 62:  # >
                        continue
                    equal = True
                    for b in range(size):
                        if data[i + 1 + b] != names[ends[name] + b]:
                            equal = False
                            break
                    if equal:
                        for b in range(i, i + size + 2):
                            marks[b] |= TAG
            i += 1


@compiled
def count_tokens(offsets: Any, ids: Any, starts: Any, bounds: Any, marks: Any, counts: Any) -> None:
    """Add each token to `counts` (int64[3, V]): all, those whose middle byte lies in a repeated line, those in a tag."""
    for k in range(len(offsets) - 1):
        at = offsets[k]
        for j in range(starts[k], starts[k + 1]):
            token = ids[j]
            size = bounds[token + 1] - bounds[token]
            counts[0, token] += 1
            if size:
                flags = marks[at + size // 2]
                if flags & REPEATED:
                    counts[1, token] += 1
                if flags & TAG:
                    counts[2, token] += 1
            at += size
