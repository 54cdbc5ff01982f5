"""Pages built to exhaust a parser are refused before it sees them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled

# Browsers stop nesting at 512. Extraction takes time in the square of the depth: 3,000 cost a second at most.
MAX_DEPTH = 3_000
# Unclosed formatting elements are opened again in every block after them, so the tree grows as the product.
MAX_REOPENED = 20_000_000
# Each takes some 350 bytes of the tree: together less than a gigabyte.
MAX_PARTS = 1_500_000  # elements and attributes of a page
# Both are kept in lists that the parser searches from the start for each new one.
MAX_COMPARISONS = 1_000_000_000  # of attributes with those before them in their tag: a second
MAX_OPTIONS = 20_000  # of a page's <select> lists
SMALL_BYTES = 1 << 16  # a page of fewer can have neither too many parts nor too many comparisons
_FOREIGN = re.compile(r"<(?:svg|math)", re.I)
_OPTION = re.compile(r"<option", re.I)
_NAMES, _PROBES = 4096, 64  # of a table of the names of open elements: its size, and the places of one name
_UNNESTED = (
    "area base br col embed hr img input link meta param source track wbr html head body title script"
    " style textarea p li dt dd tr td th tbody thead tfoot colgroup caption option optgroup rp rt"
)
_RAW = "script style textarea title xmp iframe noembed noframes"  # whose content is text up to their end tag


class TooComplex(ValueError):
    """The page would keep the parser busy for longer, or take more memory, than any page is worth."""


def check_complexity(page: str) -> None:
    """Raise `TooComplex` for a page beyond the limits above; cheap for an ordinary one.

    The limit of parts holds whatever the page. That of depth holds for pages that close elements by name; how a
    browser would mend wrong nesting is not computed.
    """
    tags = page.count("<")
    if tags <= MAX_DEPTH and len(page) < SMALL_BYTES:
        return
    code = np.frombuffer(page.encode("utf-8", "replace"), np.uint8)
    if len(code) >= SMALL_BYTES:
        _check_attributes(code)
    if tags <= MAX_DEPTH:
        return
    if tags > MAX_OPTIONS and sum(1 for _ in _OPTION.finditer(page)) > MAX_OPTIONS:
        raise TooComplex(f"more than {MAX_OPTIONS} options to select")
    deepest = int(_depth(code, _UNNESTED_HASHES, _RAW_HASHES))
    if _FOREIGN.search(page):  # where styles and titles have elements
        deepest = max(deepest, int(_depth(code, _UNNESTED_HASHES, _RAW_HASHES[:0])))
    if deepest > MAX_DEPTH or deepest * tags > MAX_REOPENED:
        raise TooComplex(f"{tags} tags, up to {deepest} of them open at once")


def _check_attributes(code: Any) -> None:
    # Every attribute has a separator or a quote before it, every element a <.
    before = int(np.count_nonzero(_SEPARATES[code]))
    if before <= MAX_PARTS and before * before // 2 <= MAX_COMPARISONS:
        return
    parts, comparisons = (int(count) for count in _most(code, MAX_PARTS + 1, MAX_COMPARISONS + 1))
    if parts > MAX_PARTS:
        raise TooComplex(f"{parts} or more elements and attributes; allowed are {MAX_PARTS} of both")
    if comparisons > MAX_COMPARISONS:
        raise TooComplex("too many attributes in one tag or in each of many")


_SEPARATES = np.zeros(256, np.bool_)
_SEPARATES[[ord(c) for c in "\t\n\f\r \"'/<"]] = True


@compiled
def _most(code: Any, parts_limit: int, comparisons_limit: int) -> Any:
    """(elements and attributes, sum of the squares of the attributes of each tag / 2): the most that a tokenizer of HTML can
    find, wherever it takes comments, scripts and values to begin and end; not beyond the limits.

    Read backwards: for each state of the tokenizer (HTML standard 13.2.5.8 and on) how many attributes follow in its tag
    and where that ends. Every `<` and letter may begin a tag; tags do not overlap.
    """
    size = len(code)
    parts, comparisons = np.zeros(size + 2, np.int32), np.zeros(size + 2, np.int32)
    # States: name of the tag, before a name, a name, behind a name, before a value, in " and ', in a value without.
    count, end = np.zeros(8, np.int64), np.full(8, size, np.int64)
    beyond_count, beyond_end = np.int64(0), np.int64(size)  # of the tag's name, one byte later
    for i in range(size - 1, -1, -1):
        c = code[i]
        parts[i], comparisons[i] = parts[i + 1], comparisons[i + 1]
        if c == 60 and i + 1 < size:  # <
            own, last = np.int64(-1), np.int64(0)
            if 97 <= code[i + 1] | 32 <= 122:
                own, last = count[0], end[0]
            elif code[i + 1] == 47 and i + 2 < size and 97 <= code[i + 2] | 32 <= 122:
                own, last = beyond_count, beyond_end
            if own >= 0:
                parts[i] = max(parts[i], min(parts[last] + 1 + own, parts_limit))
                comparisons[i] = max(
                    comparisons[i], min(comparisons[last] + own * own // 2, comparisons_limit)
                )
        beyond_count, beyond_end = count[0], end[0]
        # `count` and `end` become those of the states before byte i.
        if c == 62:  # >
            for state in (0, 1, 2, 3, 4, 7):
                count[state], end[state] = 0, i + 1
        elif c == 32 or c == 9 or c == 10 or c == 12 or c == 13:
            count[0], end[0] = count[1], end[1]
            count[2], end[2] = count[3], end[3]
            count[7], end[7] = count[1], end[1]
        elif c == 47:  # /
            for state in (0, 2, 3):
                count[state], end[state] = count[1], end[1]
            count[4], end[4] = count[7], end[7]
        else:
            named, named_end = count[2] + 1, end[2]
            value, value_end = count[4], end[4]
            if c == 34:
                count[4], end[4] = count[5], end[5]
                count[5], end[5] = count[1], end[1]
            elif c == 39:
                count[4], end[4] = count[6], end[6]
                count[6], end[6] = count[1], end[1]
            else:
                count[4], end[4] = count[7], end[7]
            count[1], end[1] = named, named_end
            if c == 61:  # =
                for state in (2, 3):
                    count[state], end[state] = value, value_end
            else:
                count[3], end[3] = named, named_end
    return np.array([parts[0], comparisons[0]], np.int64)


@compiled
def _hashed(code: Any, i: int, limit: int) -> Any:
    """(hash of up to `limit` bytes of an element's name in lower case, where they end); FNV-1a."""
    value = np.uint64(0xCBF29CE484222325)
    limit = min(i + limit, len(code))
    while i < limit and code[i] > 32 and code[i] != 47 and code[i] != 62:
        c = code[i] | 32 if 65 <= code[i] <= 90 else code[i]
        value = (value ^ np.uint64(c)) * np.uint64(0x100000001B3)
        i += 1
    return value, i


def _hashes(names: str) -> Any:
    found = []
    for name in names.split():
        value = 0xCBF29CE484222325
        for c in name.encode():
            value = (value ^ c) * 0x100000001B3 % 2**64
        found.append(value)
    return np.array(found, np.uint64)


_UNNESTED_HASHES, _RAW_HASHES = _hashes(_UNNESTED), _hashes(_RAW)


@compiled
def _behind_tag(code: Any, i: int) -> Any:
    """Where a tag ends, from the end of its name on."""
    state = 1  # as in `_most`
    for at in range(i, len(code)):
        c = code[at]
        space = c == 32 or c == 9 or c == 10 or c == 12 or c == 13
        if state == 5 or state == 6:
            if c == (34 if state == 5 else 39):
                state = 1
        elif c == 62:
            return at + 1
        elif state == 1:
            state = 1 if space or c == 47 else 2
        elif state == 2 or state == 3:
            state = 3 if space else 1 if c == 47 else 4 if c == 61 else 2
        elif state == 4 and not space:
            state = 5 if c == 34 else 6 if c == 39 else 7
        elif state == 7 and space:
            state = 1
    return len(code)


@compiled
def _depth(code: Any, unnested: Any, raw: Any) -> Any:
    """The most elements open at once, if each end tag closes one of its name. Void elements and those that end by
    themselves (`unnested`) are left out; the content of `raw` ones is no markup."""
    names, numbers = np.zeros(_NAMES, np.uint64), np.zeros(_NAMES, np.int64)
    now = deepest = i = 0
    size = len(code)
    while i + 1 < size:
        if code[i] != 60:  # <
            i += 1
            continue
        i += 1
        if code[i] == 33 and i + 2 < size and code[i + 1] == 45 and code[i + 2] == 45:  # <!--
            i += 1
            while i + 2 < size and not (code[i] == 45 and code[i + 1] == 45 and code[i + 2] == 62):
                i += 1
            continue
        close = code[i] == 47  # /
        i += close
        if i >= size or not 97 <= code[i] | 32 <= 122:
            continue
        name, i = _hashed(code, i, size)
        i = _behind_tag(code, i)
        if not close and (raw == name).any():
            while i + 2 < size and not (
                code[i] == 60 and code[i + 1] == 47 and _hashed(code, i + 2, 16)[0] == name
            ):
                i += 1
            continue
        if (unnested == name).any():
            continue
        slot = np.int64(name % np.uint64(_NAMES))
        for _ in range(_PROBES):
            if names[slot] == name or names[slot] == 0:
                break
            slot = (slot + 1) % _NAMES
        known = names[slot] == name
        if not close:
            now += 1
            deepest = max(deepest, now)
            if known or names[slot] == 0:
                names[slot] = name
                numbers[slot] += 1
        elif known and numbers[slot]:
            numbers[slot] -= 1
            now -= 1
    return deepest
