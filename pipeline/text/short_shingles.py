"""The preset `short`: shingles of characters inside words, for texts too short for runs of words.

The text is first made plain: URLs, mentions (`@name`) and HTML entities are left out, every ASCII digit is a zero, and what
is no letter or digit by the word rule (punctuation, emoji) separates words; case is folded. Then a character that repeats is
one (`sooo`, `00`), and each word has a space on either side. A shingle is a run of `ngram` characters of which at most the
first and the last are spaces, so that no shingle knows which word is next: "call me now" and "now call me" have the same
ones. (Of 3 they are fastText's subwords, Bojanowski et al. 2017, or `char_wb` of scikit-learn.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.minhash import ROLL, ordered, roll
from corpusmill.pipeline.text.word_hashes import CHUNK, FNV_BASIS, FNV_PRIME, byte_at, mix64

RULE = "1"  # of the characters and their hashes; raised with every change of either
_AT, _AND, _HASH, _SEMICOLON, _DOT, _COLON, _SLASH, _ZERO, _BLANK = 64, 38, 35, 59, 46, 58, 47, 48, 32
_H, _T, _P, _S, _W = 104, 116, 112, 115, 119
_ENTITY = 10  # bytes of the longest HTML entity that is looked for


@compiled(inline="always")
def _alphanumeric(byte: Any) -> Any:
    """Whether an ASCII letter, a digit or `_`."""
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte == 95


@compiled
def _web_end(data: Any, i: int, stop: int) -> int:
    """The end of the URL (http://, https://, www.), mention or entity that begins at `i`; `i` if none does."""
    byte = byte_at(data, i)
    at = i + 1
    if byte == _AT:
        while at < stop and _alphanumeric(byte_at(data, at)):
            at += 1
        return at if at > i + 1 else i
    if byte == _AND:
        at += at < stop and byte_at(data, at) == _HASH
        while at < stop and at < i + _ENTITY and _alphanumeric(byte_at(data, at)):
            at += 1
        return at + 1 if at > i + 1 and at < stop and byte_at(data, at) == _SEMICOLON else i
    if at + 3 > stop:
        return i
    first, second, third = byte | 32, byte_at(data, i + 1) | 32, byte_at(data, i + 2) | 32
    if first == _W and second == _W and third == _W and byte_at(data, i + 3) == _DOT:
        at = i + 4
    elif first == _H and second == _T and third == _T and byte_at(data, i + 3) | 32 == _P:
        at = i + 4
        at += at < stop and byte_at(data, at) | 32 == _S
        if not (
            at + 2 < stop
            and byte_at(data, at) == _COLON
            and byte_at(data, at + 1) == _SLASH
            and byte_at(data, at + 2) == _SLASH
        ):
            return i
    else:
        return i
    while at < stop and byte_at(data, at) > _BLANK:
        at += 1
    return at


@compiled
def _plain(data: Any, i: int, stop: int, out: Any) -> int:
    """Writes the text without URLs, mentions and entities, its digits zeros, into `out`; how many bytes."""
    size = 0
    within = False  # a word of ASCII
    while i < stop:
        byte = byte_at(data, i)
        end = i if within else _web_end(data, i, stop)
        if end > i:
            out[size] = _BLANK
            within = _alphanumeric(byte_at(data, end - 1))
            i = end
        else:
            out[size] = _ZERO if 48 <= byte <= 57 else byte
            within = _alphanumeric(byte)
            i += 1
        size += 1
    return size


@compiled
def _shingles(units: Any, count: int, ngram: int, space: Any, out: Any) -> int:
    """The shingles of `count` characters, the first and the last of which are `space`; one if there would be none."""
    top = np.uint64(1)
    for _ in range(ngram - 1):
        top *= ROLL
    rolling, found, last = np.uint64(0), 0, -1  # `last`: the place of the last space before
    for i in range(count):
        rolling = rolling * ROLL + units[i]
        first = i - ngram + 1
        if first >= 0:
            if last <= first and (ngram > 1 or rolling != space):
                out[found] = mix64(rolling)
                found += 1
            rolling -= units[first] * top
        if units[i] == space:
            last = i
    if found == 0 and count > 0:
        found = roll(units, count, count, out)
    return found


@compiled
def runs(offsets: Any, data: Any, rows: Any, rule: Any, ngram: int) -> Any:
    """(bounds int64[rows + 1], hashes): the shingles of the texts at `rows` in order, repeats among them; none of a text
    without letters or digits. `rule`: of words (`word_rule.py`)."""
    bounds = np.zeros(len(rows) + 1, np.int64)
    plain, characters = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.uint64)
    units, out = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    space = mix64(mix64((FNV_BASIS ^ np.uint64(_BLANK)) * FNV_PRIME))
    end = 0
    for k in range(len(rows)):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        if stop - start > len(plain):
            plain = np.empty(2 * (stop - start), np.uint8)
        size = _plain(data, start, stop, plain)
        characters, count = ordered(plain, 0, size, rule, True, 1, characters)
        if count + 2 > len(units):
            units = np.empty(2 * (count + 2), np.uint64)
        units[0] = space
        held = 1
        for i in range(count):
            if characters[i] != units[held - 1]:
                units[held] = characters[i]
                held += 1
        if units[held - 1] != space:
            units[held] = space
            held += 1
        if count == 0:
            held = 0
        if end + held + 1 > len(out):
            larger = np.empty(2 * (end + held + 1), np.uint64)
            larger[:end] = out[:end]
            out = larger
        end += _shingles(units, held, ngram, space, out[end:])
        bounds[k + 1] = end
    return bounds, out[:end].copy()
