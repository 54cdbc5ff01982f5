"""What hangs on a single byte: e-mail and credentials on `@` and `://`, addresses on `:`, keys on `=`, `-` and `_`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels import (
    ASSIGNED,
    AT,
    FORMAT,
    IP6,
    IS_ALNUM,
    IS_DIGIT,
    IS_DOMAIN,
    IS_HEX,
    IS_LETTER,
    IS_LOCAL,
    IS_VALUE,
    IS_WORD,
    MAC,
    PEM,
    QUERY,
    USERINFO,
    put,
)

MAX_DOMAIN: Final = 320  # bytes
MAX_USERINFO: Final = 256
MIN_SECRET: Final = 16  # characters of an assigned value
MIN_QUERY: Final = 4

# How keys of known issuers begin, up to the byte that the outer loop stops at; `secrets.FORMATS` knows the rest.
PREFIXES = (
    b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"sk_live_", b"sk_test_", b"rk_live_", b"rk_test_",
    b"npm_", b"hf_", b"dop_v1_", b"doo_v1_", b"dor_v1_", b"shpat_", b"shpss_", b"shpca_", b"shppa_", b"lin_api_",
    b"gsk_", b"glsa_", b"dckr_pat_", b"rubygems_", b"whsec_",
    b"glpat-", b"xoxa-", b"xoxb-", b"xoxe-", b"xoxo-", b"xoxp-", b"xoxr-", b"xoxs-", b"xapp-", b"sk-", b"pypi-",
    b"GOCSPX-", b"AGE-SECRET-KEY-", b"SG.", b"AIza", b"AKIA", b"ASIA", b"eyJ",
)  # fmt: skip
_STOPS = frozenset(b"_-KSzJG")


def _prefix_table() -> npt.NDArray[np.uint8]:
    """uint8[prefixes, 24]: the offset of the first byte that stops the loop, the length, the bytes."""
    table = np.zeros((len(PREFIXES), 24), np.uint8)
    for row, prefix in enumerate(PREFIXES):
        table[row, 0] = next(i for i, byte in enumerate(prefix) if byte in _STOPS)
        table[row, 1] = len(prefix)
        table[row, 2 : 2 + len(prefix)] = list(prefix)
    return table


TABLE = _prefix_table()


@compiled
def prefix(data: Any, at: int, found: Any, count: int) -> Any:
    """A known prefix whose first stopping byte is at `at`, not in the middle of a word."""
    for row in range(len(TABLE)):
        if TABLE[row, 2 + TABLE[row, 0]] != data[at]:
            continue
        start: Any = at - np.int64(TABLE[row, 0])
        size: Any = np.int64(TABLE[row, 1])
        if start < 0 or start + size > len(data) or (start > 0 and IS_WORD[data[start - 1]]):
            continue
        same = True
        for i in range(size):
            if data[start + i] != TABLE[row, 2 + i]:
                same = False
                break
        if same:
            return put(found, count, FORMAT, start, start + size)
    return count


@compiled
def at_sign(data: Any, at: int, found: Any, count: int) -> Any:
    """`@` with what may be a local part before it and a dotted domain behind it."""
    n = len(data)
    if at == 0 or at + 1 >= n or not IS_LOCAL[data[at - 1]]:
        return count
    if data[at + 1] == 45 or data[at + 1] == 46:
        return count
    end, stop, dotted = at + 1, min(n, at + MAX_DOMAIN), False
    while end < stop and IS_DOMAIN[data[end]]:
        dotted |= data[end] == 46 and end + 2 < n and IS_LETTER[data[end + 1]] and IS_LETTER[data[end + 2]]
        end += 1
    if dotted:
        count = put(found, count, AT, at, end)
    return count


@compiled
def armour(data: Any, at: int, found: Any, count: int) -> Any:
    """`-----BEGIN `, the `-` at `at` its first."""
    n = len(data)
    if at + 11 > n or (at > 0 and data[at - 1] == 45):
        return count
    for i in range(1, 5):
        if data[at + i] != 45:
            return count
    if data[at + 5] == 66 and data[at + 6] == 69 and data[at + 7] == 71 and data[at + 10] == 32:
        count = put(found, count, PEM, at, at + 11)
    return count


@compiled
def hardware(data: Any, at: int, found: Any, count: int) -> Any:
    """Six pairs of hexadecimal digits with `:` or `-` between them, the first of those at `at`."""
    n, mark = len(data), data[at]
    start, end = at - 2, at + 15
    if start < 0 or end > n or not (IS_HEX[data[start]] and IS_HEX[data[start + 1]]):
        return count
    if start > 0 and (IS_WORD[data[start - 1]] or data[start - 1] == mark):
        return count
    if end < n and (IS_WORD[data[end]] or (data[end] == mark and end + 1 < n and IS_WORD[data[end + 1]])):
        return count
    for pair in range(1, 6):
        i = start + 3 * pair
        if data[i - 1] != mark or not (IS_HEX[data[i]] and IS_HEX[data[i + 1]]):
            return count
    return put(found, count, MAC, start, end)


@compiled
def sixth(data: Any, at: int, found: Any, count: int) -> Any:
    """(count, end): the run of hexadecimal digits and colons around the `:` at `at`, if its groups are those
    of an IPv6 address: eight, or at least two and `::`."""
    n, start, end = len(data), at, at
    while start > 0 and IS_HEX[data[start - 1]] and at - start <= 4:
        start -= 1
    size, groups, gaps, good = 0, 0, 0, at - start <= 4
    digits = False
    end = start
    while end < n and (IS_HEX[data[end]] or data[end] == 58):
        if data[end] == 58:
            gaps += end > start and data[end - 1] == 58
            groups += size > 0
            size = 0
        else:
            size += 1
            good &= size <= 4
            digits |= IS_DIGIT[data[end]]
        end += 1
    groups += size > 0
    stop = end
    if end - start > 2 and data[end - 1] == 58 and data[end - 2] != 58:
        end -= 1
    if not good or gaps > 1 or not digits or (groups != 8 if gaps == 0 else not 2 <= groups <= 7):
        return count, stop
    if start > 0 and (IS_WORD[data[start - 1]] or data[start - 1] == 46 or data[start - 1] == 58):
        return count, stop
    if end < n and IS_WORD[data[end]]:
        return count, stop
    return put(found, count, IP6, start, end), stop


@compiled
def userinfo(data: Any, at: int, found: Any, count: int) -> Any:
    """`://` at `at` with an `@` before the next slash, blank or quote."""
    n = len(data)
    if at == 0 or not IS_ALNUM[data[at - 1]]:
        return count
    for i in range(at + 3, min(n, at + 3 + MAX_USERINFO)):
        c = data[i]
        if c == 64:
            return put(found, count, USERINFO, at, i)
        if c <= 32 or c == 47 or c == 63 or c == 35 or c == 34 or c == 60 or c == 62 or c == 92:
            break
    return count


@compiled
def assignment(data: Any, at: int, wanted: Any, found: Any, count: int) -> Any:
    """A telling name before the `=` or `:` at `at`, and enough of a value behind it."""
    n, name = len(data), at
    query = False
    if wanted[QUERY] and data[at] == 61:
        while name > 0 and (IS_WORD[data[name - 1]] or data[name - 1] == 45) and at - name < 40:
            name -= 1
        query = (
            name < at and name > 0 and (data[name - 1] == 63 or data[name - 1] == 38 or data[name - 1] == 59)
        )
    i = at + 1
    if i < n and (data[i] == 61 or data[i] == 62):
        i += 1
    if query:
        end = i
        while end < n and end - i < MIN_QUERY and (IS_VALUE[data[end]] or data[end] == 37):
            end += 1
        if end - i >= MIN_QUERY and _telling(data, at):
            count = put(found, count, QUERY, name, at)
    if not wanted[ASSIGNED]:
        return count
    for _ in range(4):
        if i < n and (data[i] == 32 or data[i] == 9):
            i += 1
    if i < n and (data[i] == 34 or data[i] == 39):
        i += 1
    # `Authorization: Bearer …`, `… Basic …`
    if i + 6 < n and (data[i] == 66 or data[i] == 98) and data[i + 1] != 32:
        word = i
        while word < n and IS_LETTER[data[word]] and word - i < 7:
            word += 1
        if word < n and data[word] == 32 and (word - i == 6 or word - i == 5):
            i = word + 1
    end = i
    letters, digits = False, False
    while end < n and end - i < MIN_SECRET and IS_VALUE[data[end]]:
        end += 1
    if end - i < MIN_SECRET:
        return count
    while end < n and end - i < 512 and IS_VALUE[data[end]] and not (letters and digits):
        letters |= IS_LETTER[data[end]]
        digits |= IS_DIGIT[data[end]]
        end += 1
    for k in range(i, i + MIN_SECRET):
        letters |= IS_LETTER[data[k]]
        digits |= IS_DIGIT[data[k]]
    if letters and digits and _telling(data, at):
        count = put(found, count, ASSIGNED, at, end)
    return count


@compiled
def _telling(data: Any, at: int) -> Any:
    """Whether the word before `at` ends like key, secret, token, password, passwd, pwd, pass, sig, signature, auth,
    credential or authorization."""
    i = at - 1
    for _ in range(4):
        if i > 2 and (data[i] == 32 or data[i] == 9 or data[i] == 34 or data[i] == 39 or data[i] == 58):
            i -= 1
    if i < 2:
        return False
    a, b, c = data[i - 2] | 32, data[i - 1] | 32, data[i] | 32
    if c == 121:
        return a == 107 and b == 101  # key
    if c == 116:
        return b == 101 and a == 114  # secret
    if c == 110:
        return (b == 101 and a == 107) or (b == 111 and a == 105)  # token, authorization
    if c == 100:
        return (b == 114 and a == 111) or b == 119  # password, passwd, pwd
    if c == 115:
        return b == 115 and a == 97  # pass
    if c == 103:
        return b == 105 and a == 115  # sig
    if c == 101:
        return b == 114 and a == 117  # signature
    if c == 104:
        return b == 116 and a == 117  # auth
    return c == 108 and b == 97 and a == 105  # credential
