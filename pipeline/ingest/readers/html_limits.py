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
SMALL_BYTES = 1 << 16  # a page of fewer can have neither
_OPTION = re.compile(r"<option", re.I)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_UNNESTED = frozenset(
    re.findall(
        r"\w+",
        "area base br col embed hr img input link meta param source track wbr html head body title script"
        " style textarea p li dt dd tr td th tbody thead tfoot colgroup caption option optgroup rp rt",
    )
)


class TooComplex(ValueError):
    """The page would keep the parser busy for longer, or take more memory, than any page is worth."""


def check_complexity(page: str) -> None:
    """Raise `TooComplex` for a page beyond the limits above; nearly free for an ordinary one."""
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
    after = code[np.minimum(np.flatnonzero(code == ord("<")) + 1, len(code) - 1)]
    letter = after | 32
    opened = ((letter >= ord("a")) & (letter <= ord("z"))).astype(np.int64)
    depth = np.cumsum(opened - (after == ord("/")))
    # Void elements and unclosed <p> count as open here, so this is an upper bound.
    deepest = int((depth - np.minimum(np.minimum.accumulate(depth), 0)).max())
    if deepest <= MAX_DEPTH and deepest * tags <= MAX_REOPENED:
        return
    now = deepest = 0
    for close, name in _TAG.findall(page):
        if name.lower() not in _UNNESTED:
            now = max(now - 1, 0) if close else now + 1
            deepest = max(deepest, now)
    if deepest > MAX_DEPTH or deepest * tags > MAX_REOPENED:
        raise TooComplex(f"{tags} tags, up to {deepest} of them open at once")


def _check_attributes(code: Any) -> None:
    elements, attributes, comparisons = (int(count) for count in _counts(code))
    if elements + attributes > MAX_PARTS:
        detail = f"{elements} elements with {attributes} attributes; allowed are {MAX_PARTS} of both"
        raise TooComplex(detail)
    if comparisons > MAX_COMPARISONS:
        raise TooComplex(f"{attributes} attributes, too many of them in one tag or in each of many")


@compiled
def _counts(code: Any) -> Any:
    """(elements, attributes, sum of the squares of the attributes of each tag / 2), as a tokenizer of HTML takes them.

    Scripts and comments are read as if they were markup, so that these are upper bounds.
    """
    elements = attributes = comparisons = 0
    i, size = 0, len(code)
    while i < size:
        if code[i] != 60:  # <
            i += 1
            continue
        i += 1
        if i >= size or not 97 <= code[i] | 32 <= 122:
            continue
        elements += 1
        own = 0
        while (
            i < size and code[i] > 32 and code[i] != 47 and code[i] != 62
        ):  # the name, up to white space, / or >
            i += 1
        while i < size and code[i] != 62:
            if code[i] <= 32 or code[i] == 47:
                i += 1
                continue
            own += 1
            i += 1  # = may be the first character of a name
            while i < size and code[i] > 32 and code[i] != 47 and code[i] != 62 and code[i] != 61:
                i += 1
            while i < size and code[i] <= 32:
                i += 1
            if i < size and code[i] == 61:
                i += 1
                while i < size and code[i] <= 32:
                    i += 1
                if i < size and (code[i] == 34 or code[i] == 39):
                    quote = code[i]
                    i += 1
                    while i < size and code[i] != quote:
                        i += 1
                    i += 1
                else:
                    while i < size and code[i] > 32 and code[i] != 62:
                        i += 1
        attributes += own
        comparisons += own * own // 2
    return np.array([elements, attributes, comparisons])
