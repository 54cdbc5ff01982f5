"""Tokens: words with what follows them, compared by their raw bytes.

A token begins where a word begins, by the word rule of `kernels/unicode.py`, and ends where the next one begins or
the text ends. What precedes the first word of a text is no token. Nothing is folded: two runs of tokens are
equal if every byte is, from the first letter of the first word to the last separator before the next word. A
token hashes to 64 bits by FNV-1a over its bytes, finished by MurmurHash3's mixer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, FNV_PRIME, code_point, mix64

# What a character does: end a word, go on with whatever is there, belong to a word of several, be one alone.
BETWEEN, GOES_ON, INSIDE, ALONE = range(4)
RULE = f"1/{word_rule.RULE}"  # of tokens and their hashes; raised with every change of either


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """uint8[0x110000]: what each code point does."""
    rule = word_rule.rule()
    kind = (rule.entries >> word_rule.CLASS_SHIFT).astype(np.uint8)
    composed = kind == word_rule.COMPOSED
    piece = rule.entries[composed] & ((1 << word_rule.CLASS_SHIFT) - 1)
    kind[composed] = rule.pieces[piece, 0] >> word_rule.CLASS_SHIFT
    found = np.full(len(kind), GOES_ON, np.uint8)  # marks and what is passed over
    found[kind == word_rule.SEPARATOR] = BETWEEN
    found[np.isin(kind, (word_rule.LETTER, word_rule.JOIN, word_rule.HANGUL))] = INSIDE
    found[kind == word_rule.ALONE] = ALONE
    return found


@compiled
def most_tokens(offsets: Any, rows: Any) -> int:
    """Room for the tokens of the longest text: two words of one byte have another between them."""
    longest = 0
    for row in rows:
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest // 2 + 2


@compiled
def tokens(data: Any, start: int, stop: int, table: Any, hashes: Any, starts: Any) -> int:
    """Tokens of UTF-8 `data[start:stop]`, `table` from `classes`: their hashes, and where they start, in bytes
    from `start`, with the end of the text as one more; how many. Both arrays have `most_tokens` elements."""
    count = 0
    state = np.int64(BETWEEN)
    token = FNV_BASIS
    i = start
    while i < stop:
        byte = data[i]
        if byte < 0x80:
            kind, end = table[byte], i + 1
        else:
            point, end = code_point(data, i, stop)
            kind = table[point] if point < 0x110000 else np.uint8(BETWEEN)
        if kind == ALONE or (kind == INSIDE and state != INSIDE):
            if count:
                hashes[count - 1] = mix64(token)
            starts[count] = i - start
            count += 1
            token = FNV_BASIS
        if kind != GOES_ON:
            state = np.int64(kind)
        while i < end:
            token = (token ^ np.uint64(data[i])) * FNV_PRIME
            i += 1
    if count:
        hashes[count - 1] = mix64(token)
    starts[count] = stop - start
    return count
