"""The blocks that stay, as text: paragraphs apart by an empty line, items of lists with `-` or their number, cells of a table apart by a
tab and its rows by a line end, code as it stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.ingest.readers.main_text.scan import (
    AFTER_BREAK,
    IN_PRE,
    OWNER,
    PARENT,
    RUN,
    RUNS,
    TAG,
    Scanned,
)
from corpusmill.pipeline.ingest.readers.main_text.vocabulary import NUMBER

_LI, _OL, _UL, _TR, _TABLE, _TD, _TH, _DT, _DD, _DL = (
    NUMBER[name] for name in ("li", "ol", "ul", "tr", "table", "td", "th", "dt", "dd", "dl")
)
_INDENT = 2  # spaces for each list around an item's list
_DEEPEST = 8  # lists that are indented for
_MARK = 2 * _DEEPEST + 24  # bytes at most that stand before a block


def assemble(data: npt.NDArray[np.uint8], page: Scanned, keep: npt.NDArray[np.bool_]) -> str:
    """The text of the blocks in `keep`, bool[blocks]; `data` is the serialised page that was scanned."""
    if not keep.any():
        return ""
    lengths = page.runs[:, 1] - page.runs[:, 0]
    out = np.empty(int(lengths.sum()) + len(page.runs) + len(page.blocks) * _MARK, np.uint8)
    size = _assemble(data, page.nodes, page.blocks, page.runs, keep, out)
    return out[:size].tobytes().decode("utf-8", "replace")


@compiled
def _above(nodes: Any, node: Any, one: Any, other: Any) -> Any:
    """The nearest element of either tag, this one or above it; -1 if there is none."""
    while node >= 0 and nodes[node, TAG] != one and nodes[node, TAG] != other:
        node = nodes[node, PARENT]
    return node


@compiled
def _item_marks(nodes: Any) -> Any:
    """(the number of each list item among its list's, the lists around each list)."""
    ordinal = np.zeros(len(nodes), np.int64)
    items = np.zeros(len(nodes), np.int64)
    lists = np.zeros(len(nodes), np.int64)
    for node in range(1, len(nodes)):
        parent = nodes[node, PARENT]
        tag = nodes[node, TAG]
        lists[node] = lists[parent] + (tag in (_OL, _UL))
        if tag == _LI:
            items[parent] += 1
            ordinal[node] = items[parent]
    return ordinal, lists


@compiled
def _assemble(data: Any, nodes: Any, blocks: Any, runs: Any, keep: Any, out: Any) -> Any:
    """Writes the text to `out`; returns its length in bytes."""
    ordinal, lists = _item_marks(nodes)
    marked = np.zeros(len(nodes), np.bool_)
    size = 0
    last_owner = last_cell = last_item = last_entry = np.int64(-1)
    for b in range(len(blocks)):
        if not keep[b]:
            continue
        owner = blocks[b, OWNER]
        cell = _above(nodes, owner, _TD, _TH)
        item = _above(nodes, owner, _LI, _LI)
        entry = _above(nodes, owner, _DT, _DD)
        if size:
            ends = 2
            if cell >= 0 and last_cell >= 0:
                row, last_row = _above(nodes, cell, _TR, _TR), _above(nodes, last_cell, _TR, _TR)
                if cell == last_cell:
                    ends = 2 if owner == last_owner else 1
                elif row == last_row:
                    ends = 0
                elif _above(nodes, cell, _TABLE, _TABLE) == _above(nodes, last_cell, _TABLE, _TABLE):
                    ends = 1
            elif (item >= 0 and last_item >= 0 and (item != last_item or owner != last_owner)) or (
                entry >= 0 and last_entry >= 0 and nodes[entry, PARENT] == nodes[last_entry, PARENT]
            ):
                ends = 1
            if ends == 0:
                out[size] = 9
                size += 1
            for _ in range(ends):
                out[size] = 10
                size += 1
        if item >= 0 and not marked[item]:
            marked[item] = True
            parent = nodes[item, PARENT]
            for _ in range(_INDENT * min(max(lists[parent] - 1, 0), _DEEPEST)):
                out[size] = 32
                size += 1
            if nodes[parent, TAG] == _OL:
                number = ordinal[item]
                digits = 1
                while number >= 10**digits:
                    digits += 1
                for place in range(digits - 1, -1, -1):
                    out[size] = 48 + number // 10**place % 10
                    size += 1
                out[size] = 46
            else:
                out[size] = 45
            out[size + 1] = 32
            size += 2
        size = _write(data, runs, blocks[b, RUN], blocks[b, RUN] + blocks[b, RUNS], out, size)
        last_owner, last_cell, last_item, last_entry = owner, cell, item, entry
    return size


@compiled
def _write(data: Any, runs: Any, first: Any, last: Any, out: Any, size: Any) -> Any:
    """A block's runs: white space as one space, except in code; the four entities of a serialised page as characters."""
    begin = size
    space = False
    for r in range(first, last):
        i, end, flags = runs[r, 0], runs[r, 1], runs[r, 2]
        code = flags & IN_PRE
        if flags & AFTER_BREAK and size > begin:
            while size > begin and out[size - 1] == 32:
                size -= 1
            out[size] = 10
            size += 1
            space = False
        while i < end:
            c = data[i]
            i += 1
            if c == 38:  # &
                if i + 3 < end and data[i] == 97 and data[i + 1] == 109:  # amp;
                    i += 4
                elif i + 2 < end and data[i] == 108 and data[i + 1] == 116 and data[i + 2] == 59:  # lt;
                    c = np.uint8(60)
                    i += 3
                elif i + 2 < end and data[i] == 103 and data[i + 1] == 116 and data[i + 2] == 59:  # gt;
                    c = np.uint8(62)
                    i += 3
                elif i + 4 < end and data[i] == 110 and data[i + 1] == 98 and data[i + 4] == 59:  # nbsp;
                    c = np.uint8(32)
                    i += 5
            if not code and (c == 32 or c == 10 or c == 9 or c == 13 or c == 12):
                space = True
                continue
            if space and size > begin and out[size - 1] != 10:
                out[size] = 32
                size += 1
            space = False
            out[size] = c
            size += 1
    while size > begin and (out[size - 1] == 32 or out[size - 1] == 10):
        size -= 1
    return size
