"""Numba kernels that take URLs apart and look their parts up, over the buffers of a column."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.lists.keys import find
from corpusmill.pipeline.filter.text.scan import decode

# Columns of what `look_up` finds.
DOMAIN, SUBDOMAIN, PAGE, HARD, SOFT = range(5)

_SOFT_TOLD_APART = 64  # different soft words of one URL; more count no further


@compiled
def put(out: Any, at: int, point: int) -> int:
    """Write a code point as UTF-8; the place after it."""
    if point < 0x80:
        out[at] = point
        return at + 1
    if point < 0x800:
        out[at], out[at + 1] = 0xC0 | point >> 6, 0x80 | (point & 0x3F)
        return at + 2
    if point < 0x10000:
        out[at], out[at + 1], out[at + 2] = (
            0xE0 | point >> 12,
            0x80 | (point >> 6 & 0x3F),
            0x80 | (point & 0x3F),
        )
        return at + 3
    out[at], out[at + 1] = 0xF0 | point >> 18, 0x80 | (point >> 12 & 0x3F)
    out[at + 2], out[at + 3] = 0x80 | (point >> 6 & 0x3F), 0x80 | (point & 0x3F)
    return at + 4


@compiled
def small_letters(data: Any, first: int, last: int, small: Any, out: Any) -> int:
    """Write the URL in small letters; its bytes."""
    i, n = first, 0
    while i < last:
        point, width = decode(data, i)
        n = put(out, n, small[point])
        i += width
    return n


@compiled
def parts(url: Any, n: int) -> Any:
    """(start of the host, its end, end of the page) in `url[:n]`, in which the path is moved to the end of the host.

    The scheme, a user's name and the port are no part of the host, nor dots at its end; a fragment and slashes at the
    end are no part of the page, which begins at the host.
    """
    first, i = 0, 0
    while i < n and (
        97 <= url[i] <= 122 or 48 <= url[i] <= 57 or url[i] == 43 or url[i] == 45 or url[i] == 46
    ):
        i += 1
    if i + 2 < n and url[i] == 58 and url[i + 1] == 47 and url[i + 2] == 47:
        first = i + 3
    elif n >= 2 and url[0] == 47 and url[1] == 47:
        first = 2
    end = first
    while end < n and url[end] != 47 and url[end] != 63 and url[end] != 35 and url[end] != 92:  # / ? # \
        end += 1
    start = first
    for i in range(first, end):
        if url[i] == 64:
            start = i + 1
    host = start
    if host < end and url[host] == 91:  # an IPv6 address in brackets
        while host < end and url[host] != 93:
            host += 1
        host = min(host + 1, end)
    else:
        while host < end and url[host] != 58:
            host += 1
    while host > start and url[host - 1] == 46:
        host -= 1
    page = end
    while page < n and url[page] != 35:
        page += 1
    while page > end and url[page - 1] == 47:
        page -= 1
    for i in range(end, page):
        url[host + i - end] = url[i]
    return start, host, host + page - end


@compiled
def _digit(byte: Any) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


@compiled
def _unescaped(data: Any, first: int, last: int, out: Any) -> int:
    """Write the bytes of the URL, `%C3` as one; their number."""
    i, n = first, 0
    while i < last:
        value: Any = np.int64(data[i])
        if value == 37 and i + 2 < last:
            high, low = _digit(np.int64(data[i + 1])), _digit(np.int64(data[i + 2]))
            if high >= 0 and low >= 0:
                value = high << 4 | low
                i += 2
        out[n] = value
        n += 1
        i += 1
    return n


@compiled
def _point(data: Any, i: int, n: int) -> Any:
    """(code point, bytes) at `i`; (-1, 1) at the end and where there is no valid UTF-8."""
    if i >= n:
        return np.int64(-1), 1
    b = data[i]
    size = (
        1 if b < 0x80 else 2 if 0xC2 <= b < 0xE0 else 3 if 0xE0 <= b < 0xF0 else 4 if 0xF0 <= b < 0xF5 else 0
    )
    if size == 0 or i + size > n:
        return np.int64(-1), 1
    for k in range(1, size):
        if data[i + k] & 0xC0 != 0x80:
            return np.int64(-1), 1
    point, _ = decode(data, i)
    if (size == 3 and (point < 0x800 or 0xD800 <= point < 0xE000)) or (
        size == 4 and not 0x10000 <= point < 0x110000
    ):
        return np.int64(-1), 1
    return point, size


@compiled
def look_up(
    data: Any, offsets: Any, small: Any, joins: Any, domains: Any, hosts: Any, pages: Any, hard: Any, soft: Any,
    found: Any, letters: Any, bounds: Any,
) -> None:  # fmt: skip
    """Fill `found`, int64[D, 5], and the letters and digits of each URL, `letters[bounds[d]:bounds[d + 1]]`.

    `domains` to `soft` are (data, offsets, slots) of `lists.keys.Keys`. Words are runs of letters and digits, escapes
    such as `%C3` resolved; soft words count once each.
    """
    longest = 0
    for d in range(len(offsets) - 1):
        longest = max(longest, offsets[d + 1] - offsets[d])
    url, plain = np.empty(2 * longest + 8, np.uint8), np.empty(longest + 8, np.uint8)
    seen = np.empty(_SOFT_TOLD_APART, np.int64)
    bounds[0], end = 0, 0
    for d in range(len(offsets) - 1):
        n = small_letters(data, offsets[d], offsets[d + 1], small, url)
        start, host, page = parts(url, n)
        row = found[d]
        row[SUBDOMAIN] = host > start and find(hosts[0], hosts[1], hosts[2], url, start, host) >= 0
        row[PAGE] = page > start and find(pages[0], pages[1], pages[2], url, start, page) >= 0
        at = start
        while at < host:
            if find(domains[0], domains[1], domains[2], url, at, host) >= 0:
                row[DOMAIN] = 1
                break
            while at < host and url[at] != 46:
                at += 1
            at += 1
        n = _unescaped(data, offsets[d], offsets[d + 1], plain)
        at, word, told = 0, end, 0
        while at <= n:
            point, size = _point(plain, at, n)
            at += size
            if point >= 0 and point != 95 and joins[point] != 0:
                end = put(letters, end, small[point])
                continue
            if end > word:
                row[HARD] += find(hard[0], hard[1], hard[2], letters, word, end) >= 0
                key = find(soft[0], soft[1], soft[2], letters, word, end)
                if key >= 0 and told < _SOFT_TOLD_APART:
                    known = False
                    for k in range(told):
                        known = known or seen[k] == key
                    if not known:
                        seen[told] = key
                        told += 1
                word = end
        row[SOFT] = told
        bounds[d + 1] = end
