"""The one pass over the bytes: characters, words, lines and paragraphs of a batch, into flat arrays.

Definitions, the same for every rule:
- a **word** is a run of code points that are not white space (the Gopher paper's; Dolma, DCLM and NeMo split
  so too, datatrove uses a tokenizer). Text in scripts written without spaces has few, long words.
- a **line** ends at U+000A. Blank lines count nowhere; white space around a line is not part of it.
- a **paragraph** is a run of lines between blank ones.
- two lines or paragraphs are equal when their words are (inner white space and length of it play no part).
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from pipeline.filter.text.unicode import ALPHA, BULLET, CLOSER, DIGIT, PUNCT, SPACE, SPECIAL, TERMINAL, UPPER

# Bits of `line_flags`.
LINE_BULLET = 1  # starts with a bullet
LINE_ELLIPSIS = 2  # ends in "..." or "…"
LINE_TERMINAL = 4  # ends in a terminal mark of any script, closing quotes and brackets aside
LINE_C4_END = 8  # ends in . ! ? or an end quotation mark, not in "..."; citation marks such as [1] aside
LINE_JAVASCRIPT = 16
LINE_POLICY = 32
LINE_LONG_WORD = 64  # a word longer than 1,000 characters

# Columns of `counts`.
(
    CHARS,
    NEWLINES,
    SPACES,
    ALPHAS,
    DIGITS,
    UPPERS,
    PUNCTS,
    HASHES,
    ELLIPSES,
    BRACES,
    LOREMS,
    ALPHA_WORDS,
    STOPS,
) = range(13)
COUNTS = 13

LONG_WORD = 1000

_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ZERO = np.uint64(0)
_SHIFT = np.uint64(32)

_JAVASCRIPT = np.frombuffer(b"javascript", np.uint8)
_LOREM = np.frombuffer(b"lorem ipsum", np.uint8)
_PRIVACY = np.frombuffer(b"privacy policy", np.uint8)
_TERMS = np.frombuffer(b"terms of use", np.uint8)
_COOKIE = np.frombuffer(b"cookie policy", np.uint8)
_USES = np.frombuffer(b"uses cookies", np.uint8)
_USE_OF = np.frombuffer(b"use of cookies", np.uint8)
_USE = np.frombuffer(b"use cookies", np.uint8)


def _packed(word: str) -> int:
    return int.from_bytes(word.encode(), "big")


# The Gopher paper's list; bit i of `counts[STOPS]` is word i.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_STOPS = np.array([_packed(word) for word in STOP_WORDS], np.int64)


@nb.njit(cache=True, nogil=True, inline="always")
def decode(data: Any, i: Any) -> Any:
    """(code point, bytes) of the valid UTF-8 sequence at `i`."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        return (b & 0x1F) << 6 | (np.int64(data[i + 1]) & 0x3F), 2
    if b < 0xF0:
        return (b & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | (np.int64(data[i + 2]) & 0x3F), 3
    return (
        (b & 0x07) << 18
        | (np.int64(data[i + 1]) & 0x3F) << 12
        | (np.int64(data[i + 2]) & 0x3F) << 6
        | (np.int64(data[i + 3]) & 0x3F)
    ), 4


@nb.njit(cache=True, nogil=True)
def _before(data: Any, first: int, i: int) -> int:
    """Start of the character that ends before byte `i`."""
    i -= 1
    while i > first and data[i] & 0xC0 == 0x80:
        i -= 1
    return i


@nb.njit(cache=True, nogil=True)
def _at(data: Any, start: int, first: int, last: int, phrase: Any) -> bool:
    """Whether the lower-case ASCII `phrase` is at `start`, in either case, inside [first, last)."""
    if start < first or start + len(phrase) > last:
        return False
    for k in range(len(phrase)):
        b = data[start + k]
        if 65 <= b <= 90:
            b |= 32
        if b != phrase[k]:
            return False
    return True


@nb.njit(cache=True, nogil=True)
def _class_at_end(data: Any, table: Any, first: Any, last: Any) -> Any:
    """Class of the last character of [first, last) that is no closing quote or bracket; 0 if none."""
    while last > first:
        i = _before(data, first, last)
        c = table[decode(data, i)[0]]
        if not c & CLOSER:
            return np.int64(c)
        last = i
    return 0


@nb.njit(cache=True, nogil=True)
def _ends_in_ellipsis(data: Any, first: int, last: int) -> Any:
    if last - first < 3:
        return False
    a, b, c = data[last - 3], data[last - 2], data[last - 1]
    return (a == 46 and b == 46 and c == 46) or (a == 0xE2 and b == 0x80 and c == 0xA6)


@nb.njit(cache=True, nogil=True)
def _without_citations(data: Any, first: int, last: int) -> int:
    """End of [first, last) without the `[1]`, `[edit]`, `[citation needed]` that stand at it."""
    while last - first >= 3 and data[last - 1] == 93:
        i = last - 2
        digits = True
        while i > first and data[i] != 91 and last - i < 20:
            digits = digits and 48 <= data[i] <= 57
            i -= 1
        if data[i] != 91 or last - i < 3:
            break
        size = last - i - 2
        edit = (
            size == 4
            and data[i + 1] == 101
            and data[i + 2] == 100
            and data[i + 3] == 105
            and data[i + 4] == 116
        )
        needed = size == 15 and data[i + 1] == 99 and data[i + 9] == 32 and data[i + 10] == 110
        if not (digits or edit or needed):
            break
        last = i
        while last > first and data[last - 1] == 32:
            last -= 1
    return last


@nb.njit(cache=True, nogil=True)
def _c4_end(data: Any, first: int, last: int) -> bool:
    last = _without_citations(data, first, last)
    if last <= first or _ends_in_ellipsis(data, first, last):
        return False
    b = data[last - 1]
    if b == 46 or b == 63 or b == 33 or b == 34 or b == 39:  # . ? ! " '
        return True
    # ” and ’ are E2 80 9D and E2 80 99
    return (
        last - first >= 3 and data[last - 3] == 0xE2 and data[last - 2] == 0x80 and (b == 0x9D or b == 0x99)
    )


@nb.njit(cache=True, nogil=True)
def _stop_bit(data: Any, table: Any, first: int, last: int) -> int:
    """1 << index of the stop word in [first, last), case and ASCII punctuation around it aside; else 0."""
    while first < last and data[first] < 128 and table[data[first]] & PUNCT:
        first += 1
    while first < last and data[last - 1] < 128 and table[data[last - 1]] & PUNCT:
        last -= 1
    if last - first < 2 or last - first > 4:
        return 0
    packed = np.int64(0)
    for i in range(first, last):
        packed = packed << 8 | np.int64(data[i] | 32)
    for k in range(len(_STOPS)):
        if packed == _STOPS[k]:
            return 1 << k
    return 0


@nb.njit(cache=True, nogil=True)
def scan(
    data: Any, offsets: Any, table: Any, counts: Any,
    word_offsets: Any, word_hash: Any, word_chars: Any,
    line_offsets: Any, line_hash: Any, line_chars: Any, line_words: Any, line_sentences: Any, line_flags: Any,
    line_start: Any, line_end: Any,
    para_offsets: Any, para_hash: Any, para_chars: Any,
) -> None:  # fmt: skip
    """Fill the arrays of `view.TextView` from documents `data[offsets[d]:offsets[d + 1]]` of valid UTF-8."""
    words, lines, paras = 0, 0, 0
    word_offsets[0] = line_offsets[0] = para_offsets[0] = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        chars, newlines, spaces, alphas, digits, uppers, puncts = 0, 0, 0, 0, 0, 0, 0
        hashes, ellipses, braces, lorems, alpha_words, stops = 0, 0, 0, 0, 0, 0
        dot_at, dots = first - 2, 0
        in_word, w_start, w_chars, w_bits, h = False, first, 0, np.int64(0), _SEED
        l_words, l_sentences, l_flags, l_hash = 0, 0, 0, _ZERO
        l_first, l_last, l_char, l_chars = (
            first,
            first,
            0,
            0,
        )  # bytes, and characters up to the last word's end
        p_open, p_hash, p_chars = False, _ZERO, 0
        i = first
        while True:
            at_end = i >= last
            if at_end:
                point, size, c = 10, 0, np.int64(SPACE)
            else:
                point, size = decode(data, i)
                c = np.int64(table[point])
            if c & SPACE:
                if in_word:
                    in_word = False
                    word_hash[words] = (h ^ (h >> _SHIFT)) * _MIX
                    word_chars[words] = w_chars
                    l_hash = (l_hash ^ word_hash[words]) * _PRIME
                    words += 1
                    l_words += 1
                    if w_bits & ALPHA:
                        alpha_words += 1
                        if i - w_start < 12:
                            stops |= _stop_bit(data, table, w_start, i)
                    if w_bits & TERMINAL and _class_at_end(data, table, w_start, i) & TERMINAL:
                        l_sentences += 1
                    if w_chars > LONG_WORD:
                        l_flags |= LINE_LONG_WORD
                    l_last, l_chars = i, chars - l_char
                if point == 10:
                    if l_words:
                        if _ends_in_ellipsis(data, l_first, l_last):
                            l_flags |= LINE_ELLIPSIS
                        if _class_at_end(data, table, l_first, l_last) & TERMINAL:
                            l_flags |= LINE_TERMINAL
                        if _c4_end(data, l_first, l_last):
                            l_flags |= LINE_C4_END
                        line_hash[lines], line_chars[lines], line_words[lines] = l_hash, l_chars, l_words
                        line_sentences[lines], line_flags[lines] = l_sentences, l_flags
                        line_start[lines], line_end[lines] = l_first, l_last
                        lines += 1
                        p_hash = (p_hash ^ l_hash) * _MIX
                        p_chars += l_chars + (1 if p_open else 0)
                        p_open = True
                    if p_open and (l_words == 0 or at_end):
                        para_hash[paras], para_chars[paras] = p_hash, p_chars
                        paras += 1
                        p_open, p_hash, p_chars = False, _ZERO, 0
                    l_words, l_sentences, l_flags, l_hash = 0, 0, 0, _ZERO
                    if at_end:
                        break
                    newlines += 1
                spaces += 1
            else:
                if not in_word:
                    in_word, w_start, w_chars, w_bits, h = True, i, 0, np.int64(0), _SEED
                    if l_words == 0:
                        l_first, l_char = i, chars
                        if c & BULLET:
                            l_flags |= LINE_BULLET
                h = (h ^ np.uint64(point)) * _PRIME
                w_chars += 1
                w_bits |= c
                alphas += (c & ALPHA) != 0
                digits += (c & DIGIT) != 0
                uppers += (c & UPPER) != 0
                puncts += (c & PUNCT) != 0
                if c & SPECIAL:
                    if point == 46:
                        dots = dots + 1 if dot_at == i - 1 else 1
                        dot_at = i
                        if dots == 3:
                            ellipses += 1
                            dots = 0
                    elif point == 35:
                        hashes += 1
                    elif point == 0x2026:
                        ellipses += 1
                    elif point == 123:
                        braces += 1
                    elif point | 32 == 106:  # j
                        if _at(data, i, first, last, _JAVASCRIPT):
                            l_flags |= LINE_JAVASCRIPT
                    elif point | 32 == 107:  # k
                        if (
                            _at(data, i - 3, first, last, _COOKIE)
                            or _at(data, i - 8, first, last, _USES)
                            or _at(data, i - 10, first, last, _USE_OF)
                            or _at(data, i - 7, first, last, _USE)
                        ):
                            l_flags |= LINE_POLICY
                    elif point | 32 == 118:  # v
                        if _at(data, i - 3, first, last, _PRIVACY):
                            l_flags |= LINE_POLICY
                    elif point | 32 == 102:  # f
                        if _at(data, i - 7, first, last, _TERMS):
                            l_flags |= LINE_POLICY
                    elif _at(data, i - 7, first, last, _LOREM):  # p
                        lorems += 1
            chars += 1
            i += size
        row = counts[d]
        row[CHARS], row[NEWLINES], row[SPACES], row[ALPHAS] = chars, newlines, spaces, alphas
        row[DIGITS], row[UPPERS], row[PUNCTS], row[HASHES] = digits, uppers, puncts, hashes
        row[ELLIPSES], row[BRACES], row[LOREMS] = ellipses, braces, lorems
        row[ALPHA_WORDS], row[STOPS] = alpha_words, stops
        word_offsets[d + 1], line_offsets[d + 1], para_offsets[d + 1] = words, lines, paras
