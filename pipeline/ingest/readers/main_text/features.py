"""What is known of each block of a page's text: its own text, where it stands, what is around it, and how the elements above it score.

The score of elements is that of Readability (Arc90; Mozilla's Readability.js): paragraphs give points to what holds them. Densities of
text and links follow Kohlschütter, Fankhauser and Nejdl (2010), "Boilerplate detection using shallow text features".
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.ingest.readers.main_text.scan import (
    B_BREAKS,
    B_CAPITALS,
    B_CHARS,
    B_COMMAS,
    B_DIGITS,
    B_LINK_CHARS,
    B_MARKED,
    B_OPENED,
    B_STOPS,
    B_WORDS,
    BLOCK_COUNT,
    CHARS,
    COMMAS,
    DEPTH,
    IMAGES,
    ITEMS,
    LINK_CHARS,
    LINKS,
    OWNER,
    PARAGRAPHS,
    PARENT,
    TAG,
    Scanned,
)
from corpusmill.pipeline.ingest.readers.main_text.vocabulary import GROUPS, NUMBER

# Elements whose distance above a block is a feature.
AROUND: Final = (
    "p", "li", "td", "pre", "blockquote", "figcaption", "dd", "article", "main", "nav", "aside", "header", "footer", "form",
    "figure", "table", "ul", "section", "ol", "h1", "h2", "h3", "h4",
)  # fmt: skip
FAR = 12  # levels above a block that are looked at
ALIKE_LEVELS = 6  # of the elements above it whose like beside them are counted
LEVELS = 4  # of the elements above it whose text is a feature
_OWN = (
    "chars", "words", "link_share", "commas", "stops", "digits", "capitals", "word_length", "marked", "breaks", "opened", "tag",
    "depth", "place", "place_chars", "blocks", "page_chars", "page_links", "siblings",
    "comma_rate",
)  # fmt: skip
_NEAR = tuple(
    f"{name}_{place}"
    for place in ("before2", "before", "after", "after2")
    for name in ("chars", "links", "tag", "stops")
)
_ABOVE = tuple(
    f"{name}_{level}"
    for level in range(LEVELS)
    for name in ("chars", "links", "per_block", "paragraphs", "images", "items", "share", "score")
)
_TOP = (
    "in_top",
    "up_to_shared",
    "top_up_to_shared",
    "best_score",
    "best_level",
    "shared_share",
    "before_top",
    "after_top",
)
_ALIKE = tuple(f"alike_{level}" for level in range(ALIKE_LEVELS))
NAMES: Final = (
    *_OWN, *_NEAR, *_ABOVE, *_TOP, *(f"in_{name}" for name in AROUND), *(f"says_{name}" for name in GROUPS), "says_inline", *_ALIKE,
)  # fmt: skip
_AROUND = np.array([NUMBER[name] for name in AROUND])
_BIT = {name: np.uint64(1 << bit) for bit, name in enumerate(GROUPS)}
_GOOD = _BIT["content"] | _BIT["body"]
_BAD = np.uint64(sum(int(_BIT[name]) for name in (
    "comment", "share", "related", "navigation", "advertisement", "footer", "header", "sidebar", "offer", "topics", "hidden", "tool",
)))  # fmt: skip
_PARAGRAPH = np.array([NUMBER[name] for name in ("p", "pre", "td")])
_HEADING_LOW, _HEADING_HIGH = NUMBER["h1"], NUMBER["h6"]
_P, _DIV, _LI, _FORM, _ASIDE, _NAV = (NUMBER[name] for name in ("p", "div", "li", "form", "aside", "nav"))
_ARTICLE, _MAIN, _SECTION, _PRE, _TD, _QUOTE = (
    NUMBER[name] for name in ("article", "main", "section", "pre", "td", "blockquote")
)


def features(page: Scanned) -> npt.NDArray[np.float32]:
    """float32[blocks, len(NAMES)]."""
    out = np.zeros((len(page.blocks), len(NAMES)), np.float32)
    if len(page.blocks):
        _features(page.nodes, page.node_words, page.blocks, page.block_words, _AROUND, _alike(page), out)
    return out


def _alike(page: Scanned) -> npt.NDArray[np.float32]:
    """For each element, log2 of how many of the same tag and words its parent holds: entries of a list, comments, teasers."""
    keys = page.nodes[:, PARENT].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys ^= (page.nodes[:, TAG].astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    keys ^= page.node_words * np.uint64(0x165667B19E3779F9)
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(np.log2(counts[group]), np.float32)


@compiled
def _scores(nodes: Any, words: Any, blocks: Any) -> Any:
    """Readability's score of each element; sums of all that is below an element into `nodes`."""
    count = len(nodes)
    score = np.zeros(count)
    candidate = np.zeros(count, np.bool_)
    for b in range(len(blocks)):
        owner = blocks[b, OWNER]
        chars = blocks[b, B_CHARS]
        nodes[owner, CHARS] += chars
        nodes[owner, LINK_CHARS] += blocks[b, B_LINK_CHARS]
        nodes[owner, COMMAS] += blocks[b, B_COMMAS]
        nodes[owner, BLOCK_COUNT] += 1
        tag = nodes[owner, TAG]
        if tag == _P:
            nodes[owner, PARAGRAPHS] += chars
        if chars < 25 or (_HEADING_LOW <= tag <= _HEADING_HIGH):
            continue
        points = 1.0 + blocks[b, B_COMMAS] + min(chars // 100, 3)
        node = nodes[owner, PARENT] if tag in (_P, _PRE, _TD, _LI, _QUOTE) else owner
        for level in range(5):
            if node < 0:
                break
            candidate[node] = True
            score[node] += points if level == 0 else points / 2 if level == 1 else points / (3 * level)
            node = nodes[node, PARENT]
    for node in range(count - 1, 0, -1):
        parent = nodes[node, PARENT]
        if nodes[node, TAG] == _LI:
            nodes[node, ITEMS] += 1
        for column in (CHARS, LINK_CHARS, COMMAS, PARAGRAPHS, IMAGES, LINKS, ITEMS, BLOCK_COUNT):
            nodes[parent, column] += nodes[node, column]
    for node in range(count):
        if candidate[node]:
            tag = nodes[node, TAG]
            if tag in (_DIV, _ARTICLE, _MAIN, _SECTION):
                score[node] += 5
            elif tag in (_PRE, _TD, _QUOTE):
                score[node] += 3
            elif tag in (_FORM, _LI, _ASIDE, _NAV):
                score[node] -= 3
            if words[node] & _GOOD:
                score[node] += 25
            if words[node] & _BAD:
                score[node] -= 25
            score[node] *= 1 - nodes[node, LINK_CHARS] / max(nodes[node, CHARS], 1)
    return score


@compiled
def _features(
    nodes: Any, words: Any, blocks: Any, block_words: Any, around: Any, alike: Any, out: Any
) -> None:
    score = _scores(nodes, words, blocks)
    top = 0
    for node in range(1, len(nodes)):
        if score[node] > score[top]:
            top = node
    top_up = np.full(len(nodes), -1, np.int64)  # levels from the best element up to each one above it
    node, level = top, 0
    while node >= 0:
        top_up[node] = level
        node, level = nodes[node, PARENT], level + 1
    total = max(nodes[0, CHARS], 1)
    first_of_top = last_of_top = -1
    for b in range(len(blocks)):
        node = blocks[b, OWNER]
        while node > top:
            node = nodes[node, PARENT]
        if node == top:
            if first_of_top < 0:
                first_of_top = b
            last_of_top = b
    before = 0
    number = len(blocks)
    for b in range(number):
        owner = blocks[b, OWNER]
        chars = max(blocks[b, B_CHARS], 1)
        row = out[b]
        row[0] = np.log2(chars)
        row[1] = np.log2(blocks[b, B_WORDS] + 1)
        row[2] = blocks[b, B_LINK_CHARS] / chars
        row[3] = min(blocks[b, B_COMMAS], 10)
        row[4] = min(blocks[b, B_STOPS], 10)
        row[5] = blocks[b, B_DIGITS] / chars
        row[6] = blocks[b, B_CAPITALS] / chars
        row[7] = chars / max(blocks[b, B_WORDS], 1)
        row[8] = blocks[b, B_MARKED] / chars
        row[9] = blocks[b, B_BREAKS]
        row[10] = blocks[b, B_OPENED]
        row[11] = nodes[owner, TAG]
        row[12] = nodes[owner, DEPTH]
        row[13] = b / number
        row[14] = before / total
        row[15] = np.log2(number)
        row[16] = np.log2(total)
        row[17] = nodes[0, LINK_CHARS] / total
        row[18] = np.log2(nodes[owner, BLOCK_COUNT] + 1)
        row[19] = blocks[b, B_COMMAS] / max(blocks[b, B_WORDS], 1)
        before += blocks[b, B_CHARS]
        k = 20
        for step in (-2, -1, 1, 2):
            other = b + step
            if 0 <= other < number:
                length = max(blocks[other, B_CHARS], 1)
                row[k] = np.log2(length)
                row[k + 1] = blocks[other, B_LINK_CHARS] / length
                row[k + 2] = nodes[blocks[other, OWNER], TAG]
                row[k + 3] = min(blocks[other, B_STOPS], 10)
            else:
                row[k] = row[k + 1] = row[k + 2] = row[k + 3] = -1
            k += 4
        node = nodes[owner, PARENT]
        for _ in range(LEVELS):
            if node >= 0:
                length = max(nodes[node, CHARS], 1)
                row[k] = np.log2(length)
                row[k + 1] = nodes[node, LINK_CHARS] / length
                row[k + 2] = np.log2(length / max(nodes[node, BLOCK_COUNT], 1))
                row[k + 3] = nodes[node, PARAGRAPHS] / length
                row[k + 4] = np.log2(nodes[node, IMAGES] + 1)
                row[k + 5] = np.log2(nodes[node, ITEMS] + 1)
                row[k + 6] = length / total
                row[k + 7] = score[node] / max(score[top], 1.0)
                node = nodes[node, PARENT]
            else:
                for column in range(8):
                    row[k + column] = -1
            k += 8
        shared, up = owner, 0
        while top_up[shared] < 0:
            shared, up = nodes[shared, PARENT], up + 1
        row[k] = top_up[shared] == 0
        row[k + 1] = up
        row[k + 2] = top_up[shared]
        best, best_level, node = -1e9, 0, owner
        for level in range(FAR):
            if node < 0:
                break
            if score[node] > best:
                best, best_level = score[node], level
            node = nodes[node, PARENT]
        row[k + 3] = best / max(score[top], 1.0)
        row[k + 4] = best_level
        row[k + 5] = nodes[shared, CHARS] / total
        row[k + 6] = max(first_of_top - b, 0)
        row[k + 7] = max(b - last_of_top, 0)
        k += 8
        width = len(around)
        groups = 24
        for column in range(width + groups):
            row[k + column] = FAR
        node = owner
        seen = np.uint64(0)
        for level in range(FAR):
            if node < 0:
                break
            tag = nodes[node, TAG]
            for column in range(width):
                if tag == around[column]:
                    row[k + column] = min(row[k + column], level)
            new = words[node] & ~seen
            seen |= new
            column = 0
            while new:
                if new & np.uint64(1):
                    row[k + width + column] = level
                new >>= np.uint64(1)
                column += 1
            node = nodes[node, PARENT]
        inside = block_words[b]
        column = 0
        while inside:
            if inside & np.uint64(1):
                row[k + width + column] = -1
            inside >>= np.uint64(1)
            column += 1
        row[k + width + groups] = block_words[b] != 0
        k += width + groups + 1
        node = owner
        for level in range(ALIKE_LEVELS):
            row[k + level] = -1
            if node >= 0:
                row[k + level] = alike[node]
                node = nodes[node, PARENT]


assert len(GROUPS) == 24
