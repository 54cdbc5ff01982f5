"""Lines that are boilerplate by the words in them: counters ("3 likes"), and three phrases of menus and shops.

RefinedWeb's line rules as DCLM has them (`counter_line_modifier`, `substring_line_modifier`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.unicode_tables import DIGIT, MARK, OTHER, SPACE
from corpusmill.pipeline.text.utf8 import before, decode, holds, is_at

COUNTER: Final = 1  # a number, such as 1,200 or 3.5k, one of `COUNTED`, nothing else but marks around them
PHRASE: Final = (
    2  # at most ten words, with "items in cart", "read more..." at the end or "sign-in" at the start
)

MOST_WORDS: Final = 10
COUNTED: Final = (
    "likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes", "downvotes",
    "downloads", "views", "followers",
)  # fmt: skip

_COUNTED = np.frombuffer("".join(COUNTED).encode(), np.uint8)
_ENDS = np.cumsum([len(word) for word in COUNTED])
_CART = np.frombuffer(b"items in cart", np.uint8)
_MORE = np.frombuffer(b"read more...", np.uint8)
_SIGN_IN = np.frombuffer(b"sign-in", np.uint8)


@compiled
def _in_word(data: Any, i: int, table: Any) -> bool:
    """Whether the character at `i` is one of a regular expression's \\w: a letter, a number or an underscore."""
    if data[i] == 95:
        return True
    return not table[decode(data, i)[0]] & (SPACE | OTHER | MARK)


@compiled
def _is_counter(data: Any, first: int, last: int, table: Any) -> bool:
    """^\\W*\\d[,.\\d]*[kmb]?\\s+(likes|shares|...)\\W*$, ASCII letters in either case."""
    i = first
    while i < last and not _in_word(data, i, table):
        i += decode(data, i)[1]
    if i >= last or not table[decode(data, i)[0]] & DIGIT:
        return False
    while i < last and (data[i] == 44 or data[i] == 46 or table[decode(data, i)[0]] & DIGIT):
        i += decode(data, i)[1]
    if i < last and (data[i] | 32 == 107 or data[i] | 32 == 109 or data[i] | 32 == 98):
        i += 1
    gap = i
    while i < last and table[decode(data, i)[0]] & SPACE:
        i += decode(data, i)[1]
    if i == gap:
        return False
    end = last
    while end > i and not _in_word(data, before(data, i, end), table):
        end = before(data, i, end)
    start = 0
    for stop in _ENDS:
        if end - i == stop - start and is_at(data, i, i, end, _COUNTED[start:stop]):
            return True
        start = stop
    return False


@compiled
def _has_phrase(data: Any, first: int, last: int) -> bool:
    return (
        is_at(data, first, first, last, _SIGN_IN)
        or is_at(data, last - len(_MORE), first, last, _MORE)
        or holds(data, first, last, _CART)
    )


@compiled
def line_kinds(data: Any, line_start: Any, line_end: Any, line_words: Any, table: Any) -> Any:
    """uint8[lines]: `COUNTER` and `PHRASE`, of lines at bytes [line_start, line_end)."""
    kinds = np.zeros(len(line_start), np.uint8)
    for line in range(len(line_start)):
        first, last = line_start[line], line_end[line]
        if line_words[line] <= MOST_WORDS and _has_phrase(data, first, last):
            kinds[line] |= PHRASE
        if _is_counter(data, first, last, table):
            kinds[line] |= COUNTER
    return kinds
