"""Documents whose first line may be the heads of a table's columns: a necessary condition for `columns`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels.hints import hint_at
from corpusmill.pipeline.redact.kernels.labels import ends_label

LONGEST: Final = 512  # bytes of a row of heads


def heads(buffer: bytes) -> list[int]:
    """The starts of texts (a zero byte behind each) whose first line has a cell that may name a telephone or an identifier, and
    whose second has as many delimiters, or quotation marks."""
    starts, at = [0], buffer.find(0)  # which is much faster than a loop over the bytes
    while at >= 0:
        starts.append(at + 1)
        at = buffer.find(0, at + 1)
    found = np.array(starts)
    return [int(start) for start in found[_may_be_heads(np.frombuffer(buffer, np.uint8), found)]]


@compiled
def _delimiters(data: Any, start: Any) -> Any:
    """(how many commas, semicolons, tabs and bars a line of at most LONGEST bytes has, where it ends)."""
    counts = np.zeros(4, np.int64)
    i, end = start, min(start + LONGEST, len(data))
    while i < end and data[i] != 10 and data[i] != 0:
        c = data[i]
        counts[0] += c == 44
        counts[1] += c == 59
        counts[2] += c == 9
        counts[3] += c == 124
        i += 1
    return counts, i


@compiled
def _quotes(data: Any, start: Any, end: Any) -> int:
    count = 0
    for i in range(start, end):
        count += data[i] == 34
    return count


@compiled
def _may_be_heads(data: Any, starts: Any) -> Any:
    out = np.zeros(len(starts), np.bool_)
    for s in range(len(starts)):
        start = starts[s]
        first, end = _delimiters(data, start)
        if first.max() == 0 or end >= len(data) or data[end] != 10:
            continue
        second, after = _delimiters(data, end + 1)
        most = first.argmax()
        if second[most] != first[most] and _quotes(data, end + 1, after) == 0:
            continue
        named = ends_label(data, end)
        for i in range(start, end - 2):
            c = data[i]
            named = (
                named
                or hint_at(data, i)
                or ((c == 44 or c == 59 or c == 9 or c == 124) and ends_label(data, i))
            )
        out[s] = named
    return out
