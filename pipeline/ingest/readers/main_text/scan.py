"""One pass over a serialised page: its block elements, and its text as runs of bytes gathered into blocks.

The page comes from an HTML5 parser, so that tags nest, attributes are quoted and text holds no `<`. Time is linear in its size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.ingest.readers.main_text.vocabulary import (
    BLOCKS,
    BREAK,
    IMAGE,
    IS_RAW,
    IS_SKIPPED,
    IS_VOID,
    LINK,
    NUMBER,
    tables,
)

_A, _BR, _IMG, _PRE, _LI = NUMBER[LINK], NUMBER[BREAK], NUMBER[IMAGE], NUMBER["pre"], NUMBER["li"]
IN_LINK, AFTER_BREAK, IN_PRE = 1, 2, 4
MAX_OPEN = 4_096  # elements open at once; what nests deeper counts as of the last of them
MAX_VALUE = 400  # bytes of a class or id that are looked at

# Columns of `Scanned.nodes`.
PARENT, TAG, DEPTH, FIRST, LAST, CHARS, LINK_CHARS, COMMAS, PARAGRAPHS, IMAGES, LINKS, ITEMS, BLOCK_COUNT = (
    range(13)
)
NODE_COLUMNS = 13
# Columns of `Scanned.blocks`.
(OWNER, RUN, RUNS, B_CHARS, B_LINK_CHARS, B_WORDS, B_COMMAS, B_STOPS, B_DIGITS, B_CAPITALS, B_BREAKS, B_PLACE, B_MARKED,
 B_OPENED) = range(14)  # fmt: skip
BLOCK_COLUMNS = 14


class Scanned(NamedTuple):
    """A page's block elements, blocks of text and runs.

    `nodes`: int64[nodes, NODE_COLUMNS], the root first; a node's numbers are of all that is below it. `node_words`:
    uint64[nodes], the groups of words in its class and id. `blocks`: int64[blocks, BLOCK_COLUMNS]; `block_words`: those of
    inline elements around its text. `runs`: int64[runs, 3], first byte, end, and flags.
    """

    nodes: npt.NDArray[np.int64]
    node_words: npt.NDArray[np.uint64]
    blocks: npt.NDArray[np.int64]
    block_words: npt.NDArray[np.uint64]
    runs: npt.NDArray[np.int64]


def scan(data: npt.NDArray[np.uint8]) -> Scanned:
    """The blocks of a serialised page, uint8[bytes]."""
    tags = int(np.count_nonzero(data == ord("<")))
    nodes = np.zeros((tags + 2, NODE_COLUMNS), np.int64)
    node_words = np.zeros(tags + 2, np.uint64)
    blocks = np.zeros((tags + 2, BLOCK_COLUMNS), np.int64)
    block_words = np.zeros(tags + 2, np.uint64)
    runs = np.zeros((tags + 2, 3), np.int64)
    counts = _scan(data, *tables(), nodes, node_words, blocks, block_words, runs)
    made, filled, written = int(counts[0]), int(counts[1]), int(counts[2])
    return Scanned(nodes[:made], node_words[:made], blocks[:filled], block_words[:filled], runs[:written])


@compiled
def _tag(data: Any, start: Any, stop: Any, hashes: Any, numbers: Any) -> Any:
    """The number of an element's name, 0 for one that is not known."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    place = np.int64(value % np.uint64(len(hashes)))
    while numbers[place]:
        if hashes[place] == value:
            return numbers[place]
        place = (place + 1) % len(hashes)
    return np.int64(0)


@compiled
def _words(data: Any, start: Any, stop: Any, steps: Any, found: Any) -> Any:
    """The groups of words in a value."""
    state = steps[0, 0]
    mask = np.uint64(0)
    for i in range(start, min(stop, start + MAX_VALUE)):
        letter = data[i] | 32
        state = steps[state, letter - 96 if 97 <= letter <= 122 else 0]
        mask |= found[state]
    return mask | found[steps[state, 0]]


@compiled
def _attributes(data: Any, i: Any, size: Any, steps: Any, found: Any) -> Any:
    """(groups of words of a tag's attributes, whether it is hidden, the place behind the tag) from behind its name."""
    mask = np.uint64(0)
    hidden = False
    while i < size and data[i] != 62:
        if data[i] == 32 or data[i] == 47 or data[i] == 10:
            i += 1
            continue
        start = i
        while i < size and data[i] != 61 and data[i] != 62 and data[i] != 32:
            i += 1
        stop = i
        value = end = i
        if i + 1 < size and data[i] == 61 and data[i + 1] == 34:
            value = i + 2
            end = value
            while end < size and data[end] != 34:
                end += 1
            i = end + 1
        elif i < size and data[i] == 61:
            i += 1
        length = stop - start
        first = data[start]
        if (
            (length == 5 and first == 99 and data[start + 1] == 108 and data[start + 2] == 97)
            or (length == 2 and first == 105 and data[start + 1] == 100)
            or (length == 4 and first == 114 and data[start + 1] == 111)
            or (length == 8 and first == 105 and data[start + 4] == 112)
        ):  # class
            mask |= _words(data, value, end, steps, found)
        elif length == 6 and first == 104 and data[start + 1] == 105 and data[start + 5] == 110:  # hidden
            hidden = True
        elif (
            length == 11 and first == 97 and data[start + 5] == 104 and end - value == 4
        ):  # aria-hidden="true"
            hidden = hidden or (data[value] == 116 and data[start + 6] == 105)
        elif length == 5 and first == 115 and data[start + 1] == 116 and data[start + 4] == 101:  # style
            hidden = hidden or _none(data, value, end)
    return mask, hidden, i + 1


@compiled
def _none(data: Any, start: Any, stop: Any) -> Any:
    """Whether a style says `display: none` or `visibility: hidden`."""
    for i in range(start, stop - 10):
        shown = data[i] == 100 and data[i + 1] == 105 and data[i + 6] == 121  # di....y
        seen = data[i] == 118 and data[i + 1] == 105 and data[i + 9] == 121  # vi.......y
        if shown or seen:
            k = i + 7 if shown else i + 10
            while k < stop and (data[k] == 32 or data[k] == 58):
                k += 1
            if k + 4 <= stop and shown and data[k] == 110 and data[k + 1] == 111 and data[k + 2] == 110:
                return True
            if k + 4 <= stop and seen and data[k] == 104 and data[k + 1] == 105 and data[k + 2] == 100:
                return True
    return False


@compiled
def _scan(
    data: Any, hashes: Any, numbers: Any, kinds: Any, steps: Any, found: Any,
    nodes: Any, node_words: Any, blocks: Any, block_words: Any, runs: Any,
) -> Any:  # fmt: skip
    """Fills the arrays of `Scanned`; (nodes, blocks, runs)."""
    size = len(data)
    open_tags = np.zeros(MAX_OPEN + 1, np.int64)  # number of each open element, block or not
    open_nodes = np.zeros(MAX_OPEN + 1, np.int64)  # the block element that it is, or is in
    open_words = np.zeros(MAX_OPEN + 1, np.uint64)  # groups of words of the inline elements around
    open_links = np.zeros(MAX_OPEN + 1, np.int64)
    open_marks = np.zeros(MAX_OPEN + 1, np.int64)
    level = deeper = 0
    nodes[0, PARENT] = -1
    made, filled, written = 1, 0, 0
    skip_level = -1  # the level of the element whose content is left out
    in_block = False
    after_break = breaks = 0
    pre = 0
    opened = 0  # elements opened since the last block: its weight as a boundary
    i = 0
    while i < size:
        if data[i] != 60:
            start = i
            while i < size and data[i] != 60:
                i += 1
            if skip_level >= 0:
                continue
            node = open_nodes[level]
            chars = words = commas = stops = digits = capitals = 0
            between = True
            k = start
            while k < i:
                c = data[k]
                if c == 32 or c == 10 or c == 9 or c == 13:
                    between = True
                    k += 1
                    continue
                if c == 38 and k + 5 < i and data[k + 1] == 110 and data[k + 5] == 59:  # &nbsp;
                    between = True
                    k += 6
                    continue
                if between:
                    words += 1
                    between = False
                if c < 128 or c >= 192:
                    chars += 1
                    if c == 44:
                        commas += 1
                    elif c == 46 or c == 33 or c == 63:
                        stops += 1
                    elif 48 <= c <= 57:
                        digits += 1
                    elif 65 <= c <= 90:
                        capitals += 1
                    elif c >= 224:
                        # Ideographs are words of about two; their comma and full stop count as ours.
                        if c == 227 and k + 2 < i and data[k + 1] == 128:
                            commas += data[k + 2] == 129
                            stops += data[k + 2] == 130
                        elif c == 239 and k + 2 < i and data[k + 1] == 188 and data[k + 2] == 140:
                            commas += 1
                        if c >= 227:
                            words += chars & 1
                k += 1
            if not chars and not in_block:
                continue
            if not in_block:
                in_block = True
                blocks[filled, OWNER] = node
                blocks[filled, RUN] = written
                blocks[filled, B_PLACE] = start
                blocks[filled, B_OPENED] = opened
                opened = 0
                filled += 1
                breaks = after_break = 0
            b = filled - 1
            flags = after_break * AFTER_BREAK
            if open_links[level]:
                flags |= IN_LINK
                blocks[b, B_LINK_CHARS] += chars
            if pre:
                flags |= IN_PRE
            after_break = 0
            breaks = 0 if chars else breaks
            runs[written, 0], runs[written, 1], runs[written, 2] = start, i, flags
            written += 1
            blocks[b, RUNS] = written - blocks[b, RUN]
            blocks[b, B_CHARS] += chars
            blocks[b, B_WORDS] += words
            blocks[b, B_COMMAS] += commas
            blocks[b, B_STOPS] += stops
            blocks[b, B_DIGITS] += digits
            blocks[b, B_CAPITALS] += capitals
            if open_marks[level]:
                blocks[b, B_MARKED] += chars
            block_words[b] |= open_words[level]
            continue
        # A tag, or what looks like one.
        if i + 3 < size and data[i + 1] == 33:  # comment or doctype
            if data[i + 2] == 45 and data[i + 3] == 45:
                i += 4
                while i + 2 < size and not (data[i] == 45 and data[i + 1] == 45 and data[i + 2] == 62):
                    i += 1
                i += 3
            else:
                while i < size and data[i] != 62:
                    i += 1
                i += 1
            continue
        closing = i + 1 < size and data[i + 1] == 47
        start = i + 2 if closing else i + 1
        stop = start
        while stop < size and data[stop] != 62 and data[stop] != 32 and data[stop] != 47:
            stop += 1
        tag = _tag(data, start, stop, hashes, numbers)
        is_block = 1 <= tag <= BLOCKS
        if closing:
            i = stop
            while i < size and data[i] != 62:
                i += 1
            i += 1
            if deeper:
                deeper -= 1
                continue
            if level:
                if skip_level >= 0:
                    if level == skip_level:
                        skip_level = -1
                elif open_tags[level] == _PRE:
                    pre -= 1
                level -= 1
            if is_block and skip_level < 0:
                in_block = False
            continue
        mask, hidden, i = _attributes(data, stop, size, steps, found)
        if tag == _BR and skip_level < 0:
            after_break = 1
            breaks += 1
            if in_block:
                blocks[filled - 1, B_BREAKS] += 1
                if breaks >= 2 and not pre:
                    in_block = False
            continue
        if tag == _IMG and skip_level < 0:
            nodes[open_nodes[level], IMAGES] += 1
        kind = kinds[tag]
        if kind & IS_VOID:
            if is_block:
                in_block = False
            continue
        if level == MAX_OPEN:
            deeper += 1
            continue
        level += 1
        open_tags[level] = tag
        open_nodes[level] = open_nodes[level - 1]
        open_words[level] = open_words[level - 1] | mask
        open_links[level] = open_links[level - 1] + (tag == _A)
        open_marks[level] = open_marks[level - 1] + (tag > 0 and not is_block and tag != _A)
        if skip_level < 0 and (kind & IS_SKIPPED or hidden):
            skip_level = level
        if kind & IS_RAW:  # to its end tag, whatever is between
            while i < size:
                if data[i] == 60 and i + 1 < size and data[i + 1] == 47:
                    same = i + 2 + (stop - start) <= size
                    k = 0
                    while same and k < stop - start:
                        same = (data[i + 2 + k] | 32) == (data[start + k] | 32)
                        k += 1
                    if same:
                        break
                i += 1
            continue
        if skip_level >= 0:
            continue
        if tag == _A:
            nodes[open_nodes[level], LINKS] += 1
        if is_block:
            in_block = False
            opened += 1
            parent = open_nodes[level - 1]
            nodes[made, PARENT] = parent
            nodes[made, TAG] = tag
            nodes[made, DEPTH] = nodes[parent, DEPTH] + 1
            nodes[made, FIRST] = filled
            node_words[made] = mask
            open_nodes[level] = made
            open_words[level] = np.uint64(0)
            open_links[level] = open_links[level - 1]
            made += 1
            if tag == _PRE:
                pre += 1
    return made, filled, written
