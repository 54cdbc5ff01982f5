"""Numba kernels that take URLs apart and look their parts up, over the buffers of a column; and the sets of byte strings
that they look them up in: hash tables, with the bytes compared at each hit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.text.words import hash_of
from corpusmill.pipeline.text.utf8 import decode, encode

_SHIFT = np.uint64(32)


class Keys(NamedTuple):
    """Distinct keys, `data[offsets[k]:offsets[k + 1]]`; `slots` int32, a power of two of them: key + 1, 0 is free."""

    data: Array
    offsets: Array
    slots: Array


def keys(entries: Sequence[str]) -> Keys:
    """The set of `entries`, which are distinct."""
    coded = [entry.encode("utf-8") for entry in entries]
    offsets = np.zeros(len(coded) + 1, np.int64)
    np.cumsum([len(entry) for entry in coded], out=offsets[1:])
    data = np.frombuffer(b"".join(coded), np.uint8)
    slots = np.zeros(1 << max(3, (2 * len(coded)).bit_length()), np.int32)
    _fill(data, offsets, slots)
    return Keys(data, offsets, slots)


@compiled
def _fill(data: Any, offsets: Any, slots: Any) -> None:
    mask = np.uint64(len(slots) - 1)
    for k in range(len(offsets) - 1):
        at = (hash_of(data, offsets[k], offsets[k + 1]) >> _SHIFT) & mask
        while slots[np.int64(at)] != 0:
            at = (at + np.uint64(1)) & mask
        slots[np.int64(at)] = k + 1


@compiled
def find(keys: Keys, text: Any, first: int, last: int) -> Any:
    """The number of the key `text[first:last]`, -1 if there is none."""
    data, offsets, slots = keys
    mask = np.uint64(len(slots) - 1)
    at = (hash_of(text, first, last) >> _SHIFT) & mask
    while slots[np.int64(at)] != 0:
        k = slots[np.int64(at)] - 1
        if offsets[k + 1] - offsets[k] == last - first:
            same = True
            for i in range(last - first):
                if data[offsets[k] + i] != text[first + i]:
                    same = False
                    break
            if same:
                return k
        at = (at + np.uint64(1)) & mask
    return -1


# Columns of what `look_up` finds.
DOMAIN, SUBDOMAIN, PAGE, HARD, SOFT = range(5)

_MOST_SOFT = 64  # different soft words of one URL; more are not counted


@compiled
def lower_case(data: Any, first: int, last: int, lower: Any, out: Any) -> int:
    """Write the URL in lower case to `out`; returns its number of bytes."""
    i, n = first, 0
    while i < last:
        point, width = decode(data, i)
        n = encode(lower[point], out, n)
        i += width
    return n


@compiled
def parts(url: Any, n: int) -> Any:
    """(start of the host, its end, end of the page) in `url[:n]`, in which the path is moved to the end of the host.

    The host excludes the scheme, a user's name, the port and dots at its end; the page begins at the host and excludes a
    fragment and slashes at its end.
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
def _digit(byte: Any) -> Any:
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
    data: Any, offsets: Any, lower: Any, joins: Any, domains: Any, hosts: Any, pages: Any, hard: Any, soft: Any,
    found: Any, letters: Any, bounds: Any,
) -> None:  # fmt: skip
    """Fill `found`, int64[D, 5], and the letters and digits of each URL, `letters[bounds[d]:bounds[d + 1]]`.

    `domains` to `soft` are `Keys`. Words are runs of letters and digits, escapes
    such as `%C3` resolved; soft words count once each.
    """
    longest = 0
    for d in range(len(offsets) - 1):
        longest = max(longest, offsets[d + 1] - offsets[d])
    url, plain = np.empty(2 * longest + 8, np.uint8), np.empty(longest + 8, np.uint8)
    seen = np.empty(_MOST_SOFT, np.int64)
    bounds[0], end = 0, 0
    for d in range(len(offsets) - 1):
        n = lower_case(data, offsets[d], offsets[d + 1], lower, url)
        start, host, page = parts(url, n)
        row = found[d]
        row[SUBDOMAIN] = host > start and find(hosts, url, start, host) >= 0
        row[PAGE] = page > start and find(pages, url, start, page) >= 0
        at = start
        while at < host:
            if find(domains, url, at, host) >= 0:
                row[DOMAIN] = 1
                break
            while at < host and url[at] != 46:
                at += 1
            at += 1
        n = _unescaped(data, offsets[d], offsets[d + 1], plain)
        at, word, distinct = 0, end, 0
        while at <= n:
            point, size = _point(plain, at, n)
            at += size
            if point >= 0 and point != 95 and joins[point] != 0:
                end = encode(lower[point], letters, end)
                continue
            if end > word:
                row[HARD] += find(hard, letters, word, end) >= 0
                key = find(soft, letters, word, end)
                if key >= 0 and distinct < _MOST_SOFT:
                    known = False
                    for k in range(distinct):
                        known = known or seen[k] == key
                    if not known:
                        seen[distinct] = key
                        distinct += 1
                word = end
        row[SOFT] = distinct
        bounds[d + 1] = end
