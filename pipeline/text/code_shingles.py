"""The preset `code`: shingles of tokens that renaming leaves as they are.

A shingle is a run of `ngram` tokens of `code_lexer.py`. An identifier in it is the distance to the one before it in the run
with the same name, 0 for the first: `a = a + b` and `x = x + y` are the same shingle, `a = b + b` is another ("prev
encoding" of parameterised matching, Baker 1995). Some runs keep names and literals as written, since without them they would
say nothing:

- those with fewer than `STRUCTURE` different keywords and symbols: lists of names, tables of constants;
- those that the text has more than `OFTEN` times, in the same form with any names: larger tables, generated code;
- all of a text that would have fewer than `LEAST` different shingles: what is left of a short file is what many have.

Renaming, comments, white space and the order of functions decide none of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.code_lexer import lex
from corpusmill.pipeline.text.code_marks import IDENTIFIER, WORD
from corpusmill.pipeline.text.minhash import ROLL, roll, sort_hashes
from corpusmill.pipeline.text.word_hashes import CHUNK, mix64

STRUCTURE, OFTEN, LEAST = 2, 32, 48
_DISTANCE = np.uint64(512)  # added to a distance, so that it is no other token


@compiled
def _distances(normal: Any, written: Any, count: int, ngram: int) -> Any:
    """int64[count]: how far before each token lies the same one, less than `ngram` away; else 0."""
    before = np.zeros(count, np.int64)
    for i in range(count):
        same = written if normal[i] == IDENTIFIER else normal
        for k in range(i - 1, max(i - ngram, -1), -1):
            if same[k] == same[i] and normal[k] == normal[i]:
                before[i] = i - k
                break
    return before


@compiled
def _times(runs: Any, count: int, times: Any) -> None:
    """Notes in `times` how often each of the first `count` hashes occurs."""
    size = 64
    while size < 2 * count:
        size *= 2
    slots, seen = np.empty(size, np.uint64), np.zeros(size, np.int32)
    last = np.uint64(size - 1)
    for turn in range(2):
        for i in range(count):
            slot = runs[i] & last
            while seen[slot] and slots[slot] != runs[i]:
                slot = (slot + np.uint64(1)) & last
            if turn == 0:
                slots[slot] = runs[i]
                seen[slot] += 1
            else:
                times[i] = seen[slot]


@compiled
def _shingles(normal: Any, written: Any, count: int, ngram: int, out: Any) -> int:
    """The shingles of `count` tokens in order into `out`; how many."""
    found = count - ngram + 1
    if found < LEAST:
        return roll(written, count, ngram, out)
    before = _distances(normal, written, count, ngram)
    times = np.empty(found, np.int32)
    plain = np.zeros(found, np.bool_)
    for i in range(found):
        value, different = np.uint64(0), 0
        for k in range(i, i + ngram):
            back = before[k] if before[k] <= k - i else 0
            token = normal[k]
            if token == IDENTIFIER:
                token = mix64(np.uint64(back) + _DISTANCE)
            elif token > WORD and back == 0:
                different += 1
            value = value * ROLL + token
        out[i] = mix64(value)
        plain[i] = different < STRUCTURE
    _times(out, found, times)
    for i in range(found):
        if plain[i] or times[i] > OFTEN:
            value = np.uint64(0)
            for k in range(i, i + ngram):
                value = value * ROLL + written[k]
            out[i] = mix64(value)
    sort_hashes(out, found, normal)
    different = 0
    for i in range(found):
        different += i == 0 or normal[i] != normal[i - 1]
    return found if different >= LEAST else roll(written, count, ngram, out)


@compiled
def runs(offsets: Any, data: Any, rows: Any, table: Any, ngram: int) -> Any:
    """(bounds int64[rows + 1], hashes): the shingles of the texts at `rows` in order, repeats among them; none of a text
    without tokens, one of a text with fewer than `ngram`."""
    bounds = np.zeros(len(rows) + 1, np.int64)
    normal, written = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    out = np.empty(CHUNK, np.uint64)
    end = 0
    for k in range(len(rows)):
        normal, written, count = lex(data, offsets[rows[k]], offsets[rows[k] + 1], table, normal, written)
        if end + count > len(out):
            larger = np.empty(2 * (end + count), np.uint64)
            larger[:end] = out[:end]
            out = larger
        end += _shingles(normal, written, count, ngram, out[end:])
        bounds[k + 1] = end
    return bounds, out[:end].copy()
