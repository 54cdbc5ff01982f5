"""Numba kernels of line rules, over the flat arrays of a view whose text begins at byte 0.

`owner`, int16 a byte, says who cuts it: 0 stays, else 1 + the number of a rule. It is all that a cut is: spans are
its runs, the text that stays is where it is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.scan import decode
from corpusmill.pipeline.text.unicode_tables import ALPHA, PUNCT

# Columns of `line_counts`.
LETTERS, PUNCTS = range(2)
MARKER = 0xFF  # stands in no UTF-8: set around what a pattern found


@compiled
def line_counts(data: Any, table: Any, starts: Any, ends: Any) -> Any:
    """int32[lines, 2]: letters and punctuation."""
    counts = np.zeros((len(starts), 2), np.int32)
    for line in range(len(starts)):
        i = starts[line]
        while i < ends[line]:
            point, size = decode(data, i)
            c = np.int64(table[point])
            counts[line, LETTERS] += (c & ALPHA) != 0
            counts[line, PUNCTS] += (c & PUNCT) != 0
            i += size
    return counts


@compiled
def elements(starts: Any, ends: Any) -> Any:
    """int64[2 x lines]: offsets of an Arrow array whose even elements are the lines, without a copy of the text."""
    offsets = np.empty(2 * len(starts), np.int64)
    for line in range(len(starts)):
        offsets[2 * line], offsets[2 * line + 1] = starts[line], ends[line]
    return offsets


@compiled
def claim_found(marked: Any, marked_offsets: Any, allowed: Any, first: int, owner: Any, code: int) -> int:
    """Give what a pattern found to `code`, from a copy of the `elements` with `MARKER` before and after each find.

    `first` is the byte of the text that the copy begins at; lines that are not `allowed` keep what is in them.
    Returns the number of bytes claimed.
    """
    claimed, at, inside = 0, first, False
    for element in range(len(marked_offsets) - 1):
        takes = element % 2 == 0 and allowed[element // 2]
        for i in range(marked_offsets[element], marked_offsets[element + 1]):
            if marked[i] == MARKER:
                inside = not inside
                continue
            if inside and takes:
                owner[at] = code
                claimed += 1
            at += 1
    return claimed


@compiled
def whole_lines(data: Any, offsets: Any, line_offsets: Any, starts: Any, ends: Any) -> Any:
    """int64[lines, 2]: first byte and end of each line with the white space around it, its line feed left out."""
    bounds = np.empty((len(starts), 2), np.int64)
    for d in range(len(offsets) - 1):
        for line in range(line_offsets[d], line_offsets[d + 1]):
            i = starts[line]
            while i > offsets[d] and data[i - 1] != 10:
                i -= 1
            j = ends[line]
            while j < offsets[d + 1] and data[j] != 10:
                j += 1
            bounds[line, 0], bounds[line, 1] = i, j
    return bounds


@compiled
def claim_lines(data: Any, line_offsets: Any, bounds: Any, verdict: Any, owner: Any) -> None:
    """Give lines with a `verdict` (the rule that cuts them; 0: it stays) to it, with the line feeds that go along.

    Of the gaps before, between and after lines that go together the one with most line feeds stays: lines before
    it take the gap before them along, lines after it the gap after them. A text begins and ends as it did.
    """
    for d in range(len(line_offsets) - 1):
        head, tail = line_offsets[d], line_offsets[d + 1]
        line = head
        while line < tail:
            if verdict[line] == 0:
                line += 1
                continue
            first = line
            while line < tail and verdict[line] != 0:
                line += 1
            if first == head and line == tail:
                for k in range(first, line):
                    end = bounds[k + 1, 0] if k + 1 < tail else bounds[k, 1]
                    owner[bounds[k, 0] : end] = verdict[k]
                continue
            stays = first
            if line == tail:
                stays = tail
            elif first > head:
                most = -1
                for k in range(first, line + 1):
                    feeds = 0
                    for i in range(bounds[k - 1, 1], bounds[k, 0]):
                        feeds += data[i] == 10
                    if feeds > most:
                        most, stays = feeds, k
            for k in range(first, line):
                if k < stays:
                    owner[bounds[k - 1, 1] : bounds[k, 1]] = verdict[k]
                else:
                    owner[bounds[k, 0] : bounds[k + 1, 0]] = verdict[k]


@compiled
def runs(offsets: Any, owner: Any) -> Any:
    """int64[spans, 4]: document, first byte and end counted from its start, owner; sorted."""
    count = 0
    for d in range(len(offsets) - 1):
        last = 0
        for i in range(offsets[d], offsets[d + 1]):
            count += owner[i] != 0 and owner[i] != last
            last = owner[i]
    spans = np.empty((count, 4), np.int64)
    count = 0
    for d in range(len(offsets) - 1):
        last = 0
        for i in range(offsets[d], offsets[d + 1]):
            if owner[i] != 0:
                if owner[i] != last:
                    spans[count, 0], spans[count, 1], spans[count, 3] = d, i - offsets[d], owner[i]
                    count += 1
                spans[count - 1, 2] = i + 1 - offsets[d]
            last = owner[i]
    return spans
