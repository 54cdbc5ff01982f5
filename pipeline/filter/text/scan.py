"""The one pass over the bytes: characters, words, lines and paragraphs of a batch, into flat arrays.

Definitions, the same for every rule:
- a **word** is a run of code points that are not white space (the Gopher paper's; Dolma, DCLM and NeMo split
  so too, datatrove uses a tokenizer). Text in scripts written without spaces has few, long words.
- a **bare word** is what is left of a word in lower case when only letters, marks and numbers stay.
- a **line** ends at U+000A. Blank lines count nowhere; white space around a line is not part of it.
- a **paragraph** is a run of lines between blank ones.
- a **sentence** ends with a word that ends in a terminal mark (closing quotes and brackets aside) and begins
  with the first word after the last one; it may go over lines. What no mark ends is none.
- two lines or paragraphs are equal when their words are (inner white space and length of it play no part).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text import words as w
from corpusmill.pipeline.filter.text.words import bare_word, is_title
from corpusmill.pipeline.text import unicode_tables as classes
from corpusmill.pipeline.text import utf8
from corpusmill.pipeline.text.utf8 import (
    address_at,
    c4_end,
    class_at_end,
    decode,
    ends_in_ellipsis,
    is_at,
    redpajama_end,
)

# Bits of `line_flags`; `para_flags` holds those of any of its lines.
LINE_BULLET = 1  # starts with a bullet
LINE_ELLIPSIS = 2  # ends in "..." or "…"
LINE_TERMINAL = 4  # ends in a terminal mark of any script, closing quotes and brackets aside
LINE_C4_END = 8  # ends in . ! ? or an end quotation mark, not in "..."; citation marks such as [1] aside
LINE_JAVASCRIPT = 16
LINE_POLICY = 32
LINE_LONG_WORD = 64  # a word longer than 1,000 characters
LINE_LIST_MARK = 128  # starts with a bullet of RedPajama-V2's list
LINE_REDPAJAMA_END = 256  # ends in . ! ? or ”

# Columns of `counts`.
(
    CHARS, NEWLINES, SPACES, ALPHAS, DIGITS, UPPERS, PUNCTS, HASHES, ELLIPSES, BRACES, LOREMS, ALPHA_WORDS,
    STOPS,  # which of the eight occur, a bit each
    DOT_ELLIPSES,  # of ELLIPSES those of three dots
    CLOSING_BRACES,
    BRACKETS,  # ( ) [ ] { } ⟨ ⟩
    STOP_MARKS,  # . , ! ?
    MARKS, CJKS, ADDRESS_CHARS,
    STOP_COUNT,  # how often the eight occur
    CAPS_WORDS,  # with an upper case letter and no lower case one
    TITLE_WORDS,  # whose first letter is its one upper case letter
    SHORT_WORDS, LONG_WORDS, LONGEST_WORD, BARE_WORDS, BARE_CHARS, SENTENCE_CHARS, SHORT_SENTENCES, LONG_SENTENCES,
) = range(31)  # fmt: skip
COUNTS = 31

# In characters. The limits of words and sentences are the defaults of datatrove's statistics.
HUGE_WORD = 1000
SHORT_WORD, LONG_WORD = 3, 7
SHORT_SENTENCE, LONG_SENTENCE = 20, 75


@compiled
def _line_flags(data: Any, table: Any, first: int, last: int) -> int:
    """The flags that the ends of a line decide; `last` is after its last character that is no white space."""
    point, _ = decode(data, first)
    c = table[point]
    flags = LINE_BULLET if c & classes.BULLET else 0
    if c & classes.LIST_MARK:
        flags |= LINE_LIST_MARK
    if ends_in_ellipsis(data, first, last):
        flags |= LINE_ELLIPSIS
    if class_at_end(data, table, first, last) & classes.TERMINAL:
        flags |= LINE_TERMINAL
    if c4_end(data, first, last):
        flags |= LINE_C4_END
    if redpajama_end(data, first, last):
        flags |= LINE_REDPAJAMA_END
    return flags


@compiled
def _phrase_flag(data: Any, i: int, first: int, last: int, letter: int) -> int:
    """The flag of the phrase whose rarest letter is at `i`, or 0."""
    if letter == 106:  # j
        return LINE_JAVASCRIPT if is_at(data, i, first, last, utf8.JAVASCRIPT) else 0
    if letter == 102:  # f
        return LINE_POLICY if is_at(data, i - 7, first, last, utf8.TERMS) else 0
    if letter == 118:  # v
        return LINE_POLICY if is_at(data, i - 3, first, last, utf8.PRIVACY) else 0
    if (
        is_at(data, i - 3, first, last, utf8.COOKIE)
        or is_at(data, i - 8, first, last, utf8.USES)
        or is_at(data, i - 10, first, last, utf8.USE_OF)
        or is_at(data, i - 7, first, last, utf8.USE)
    ):
        return LINE_POLICY
    return 0


@compiled
def scan(
    data: Any, offsets: Any, table: Any, lower: Any, counts: Any, of_words: Any, of_lines: Any, of_paras: Any
) -> None:
    """Fill the arrays of `view.TextView` from documents `data[offsets[d]:offsets[d + 1]]` of valid UTF-8."""
    word_offsets, word_hash, word_chars, word_bare = of_words
    (
        line_offsets, line_hash, line_chars, line_words, line_sentences, line_upper, line_digits, line_flags,
        line_start, line_end,
    ) = of_lines  # fmt: skip
    para_offsets, para_hash, para_chars, para_flags = of_paras
    words, lines, paras = 0, 0, 0
    word_offsets[0] = line_offsets[0] = para_offsets[0] = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        row = counts[d]
        chars, spaces, newlines, puncts, alphas, alpha_words, stops, stop_count = 0, 0, 0, 0, 0, 0, 0, 0
        short_words, long_words, longest, bare_words, bare_chars = 0, 0, 0, 0, 0
        dot_at, dots, address_end = first - 2, 0, first
        in_sentence, s_first = False, 0
        # Of the line: where it begins (byte, character), where its last word ends.
        l_first, l_last, l_char, l_chars = first, first, 0, 0
        l_words, l_sentences, l_flags, l_hash, l_upper, l_digits = 0, 0, 0, w.ZERO, 0, 0
        in_para, p_hash, p_chars, p_flags = False, w.ZERO, 0, 0
        i = first
        while True:
            # White space; the end of the text ends its last line.
            at_end = False
            while True:
                if i >= last:
                    at_end = True
                    point, size = np.int64(10), 0
                else:
                    point, size = decode(data, i)
                    if not table[point] & classes.SPACE:
                        break
                if point == 10:
                    if l_words:
                        l_flags |= _line_flags(data, table, l_first, l_last)
                        line_hash[lines], line_chars[lines], line_words[lines] = l_hash, l_chars, l_words
                        line_sentences[lines], line_flags[lines] = l_sentences, l_flags
                        line_upper[lines], line_digits[lines] = l_upper, l_digits
                        line_start[lines], line_end[lines] = l_first, l_last
                        lines += 1
                        p_hash = (p_hash ^ l_hash) * w.MIX
                        p_chars += l_chars + (1 if in_para else 0)
                        p_flags |= l_flags
                        in_para = True
                        row[UPPERS] += l_upper
                        row[DIGITS] += l_digits
                    if in_para and (l_words == 0 or at_end):
                        para_hash[paras], para_chars[paras], para_flags[paras] = p_hash, p_chars, p_flags
                        paras += 1
                        in_para, p_hash, p_chars, p_flags = False, w.ZERO, 0, 0
                    l_words, l_sentences, l_flags, l_hash, l_upper, l_digits = 0, 0, 0, w.ZERO, 0, 0
                    if at_end:
                        break
                    newlines += 1
                spaces += 1
                chars += 1
                i += size
            if at_end:
                break
            # A word.
            w_start, w_chars, w_bits, h = i, 0, np.int64(0), w.SEED
            if l_words == 0:
                l_first, l_char = i, chars
            if not in_sentence:
                in_sentence, s_first = True, chars
            while i < last:
                point, size = decode(data, i)
                c = np.int64(table[point])
                if c & classes.SPACE:
                    break
                h = (h ^ np.uint64(point)) * w.PRIME
                w_chars += 1
                w_bits |= c
                alphas += (c & classes.ALPHA) != 0
                l_digits += (c & classes.DIGIT) != 0
                l_upper += (c & classes.UPPER) != 0
                puncts += (c & classes.PUNCT) != 0
                if c & (classes.SPECIAL | classes.MARK | classes.CJK):
                    letter = point | 32
                    if c & (classes.MARK | classes.CJK):
                        row[MARKS] += (c & classes.MARK) != 0
                        row[CJKS] += (c & classes.CJK) != 0
                    elif letter == 112:  # p
                        row[LOREMS] += is_at(data, i - 7, first, last, utf8.LOREM)
                    elif c & classes.ALPHA:
                        l_flags |= _phrase_flag(data, i, first, last, letter)
                    elif point == 46 or point == 44 or point == 63 or point == 33:
                        row[STOP_MARKS] += 1
                        if point == 46:
                            dots = dots + 1 if dot_at == i - 1 else 1
                            dot_at = i
                            if dots == 3:
                                row[ELLIPSES] += 1
                                row[DOT_ELLIPSES] += 1
                                dots = 0
                    elif point == 58:
                        start, end = address_at(data, i, max(w_start, address_end), last)
                        if end > i:
                            row[ADDRESS_CHARS] += end - start
                            address_end = end
                    elif point == 35:
                        row[HASHES] += 1
                    elif point == 0x2026:
                        row[ELLIPSES] += 1
                    else:
                        row[BRACKETS] += 1
                        row[BRACES] += point == 123
                        row[CLOSING_BRACES] += point == 125
                i += size
            chars += w_chars
            hashed = (h ^ (h >> w.SHIFT)) * w.MIX
            word_hash[words], word_chars[words] = hashed, w_chars
            if w_bits & (classes.OTHER | classes.UPPER):
                bare, left = bare_word(data, w_start, i, table, lower)
                bare_chars += left
                bare_words += left > 0
                if w_bits & classes.UPPER:
                    row[CAPS_WORDS] += (w_bits & classes.LOWER) == 0
                    row[TITLE_WORDS] += is_title(data, w_start, i, table)
            else:
                bare = hashed
                bare_chars += w_chars
                bare_words += 1
            word_bare[words] = bare
            slot = np.int64((bare >> w.STOP_SHIFT) & np.uint64(w.STOP_SLOTS - 1))
            bit = w.STOP_BITS[slot] if w.STOP_KEYS[slot] == bare else 0
            stops |= bit
            stop_count += bit != 0
            l_hash = (l_hash ^ hashed) * w.PRIME
            words += 1
            l_words += 1
            short_words += w_chars <= SHORT_WORD
            long_words += w_chars >= LONG_WORD
            longest = max(longest, w_chars)
            alpha_words += (w_bits & classes.ALPHA) != 0
            if w_bits & classes.TERMINAL and class_at_end(data, table, w_start, i) & classes.TERMINAL:
                l_sentences += 1
                in_sentence = False
                row[SENTENCE_CHARS] += chars - s_first
                row[SHORT_SENTENCES] += chars - s_first <= SHORT_SENTENCE
                row[LONG_SENTENCES] += chars - s_first >= LONG_SENTENCE
            if w_chars > HUGE_WORD:
                l_flags |= LINE_LONG_WORD
            l_last, l_chars = i, chars - l_char
        row[CHARS], row[NEWLINES], row[SPACES] = chars, newlines, spaces
        row[ALPHAS], row[PUNCTS] = alphas, puncts
        row[ALPHA_WORDS], row[STOPS], row[STOP_COUNT] = alpha_words, stops, stop_count
        row[SHORT_WORDS], row[LONG_WORDS], row[LONGEST_WORD] = short_words, long_words, longest
        row[BARE_WORDS], row[BARE_CHARS] = bare_words, bare_chars
        word_offsets[d + 1], line_offsets[d + 1], para_offsets[d + 1] = words, lines, paras
