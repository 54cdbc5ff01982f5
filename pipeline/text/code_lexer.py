"""Source text of any common language to tokens, in one pass: the lexer of the preset `code`.

The language is not known, so a rule must hold in many. Where marks conflict the reading that does least damage is taken, and
no mistake reaches beyond the line: a string that its line does not close is none, a block that nothing closes is none.

- White space, `,`, `;` and `\\` give no token: line breaks, trailing commas and missing semicolons make no difference.
- Comments give none either: `/* */` and `//` (not after `:` or `\\`; in texts whose lines so far ended more often with `:`
  than with `{`, `}` or `;`, `//` after an operand is the operator of Python); `#` first on a line or after white space (the C
  preprocessor's lines and Rust's `#[` are code, `#fff;` is a colour); `--` and a space, `--[[ ]]`; `<!-- -->`; `;` or `%`
  first on a line before a letter, a space or itself; `(* *)` and `{- -}` with a space inside; POD and `=begin`, `=end`;
  a string in triple quotes that begins a line after `:` or before all tokens (docstrings).
- A string in `"`, `'` or backticks is one token, and so are several side by side; triple quotes go over lines. An apostrophe
  after a letter, and that of Rust's lifetimes, is passed over.
- A number is one token; a keyword of some language is itself; every other word is an identifier; all other bytes are
  tokens of their own, so that `a ==b` and `a == b` are the same.

`lex` gives each token twice: normalised (`LITERAL_STRING`, `NUMBER`, `IDENTIFIER`, or a hash of a keyword or byte), and as
written. The same rules in plain Python are in `dedup/quality/plain_code.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.code_marks import (
    AMPERSAND,
    BACKSLASH,
    BACKTICK,
    CLOSE_CURLY,
    CLOSE_ROUND,
    CLOSE_SQUARE,
    COLON,
    DIGIT,
    DOT,
    DOUBLE,
    DROPPED,
    GREATER,
    HASH,
    IDENTIFIER,
    KEYWORD,
    LESS,
    LETTER,
    LINE,
    LITERAL_STRING,
    NUMBER,
    OPEN_CURLY,
    OTHER,
    QUOTE,
    SEMICOLON,
    SINGLE,
    SPACE,
    WORD,
    closed_by_three,
    closed_on_line,
    comment_end,
    hash_byte,
    number_end,
    read_word,
)  # fmt: skip
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, byte_at, mix64

RULE = "1"  # of tokens and their hashes; raised with every change of either
LONG = 64  # bytes of a string that are one token; the words of what follows are tokens too: it is data
_NONE = np.uint64(0)


@compiled(inline="always")
def _is_prefix(data: Any, i: int, end: int, stop: int) -> bool:
    """Whether the word is one of strings (b, r, u, f, L, u8, in both cases and pairs) and a quote follows."""
    if end - i > 2 or end >= stop:
        return False
    quote = byte_at(data, end)
    if quote != DOUBLE and quote != SINGLE:
        return False
    for k in range(i, end):
        byte = byte_at(data, k) | 32
        if byte not in (98, 114, 117, 102, 108, 56):
            return False
    return True


@compiled
def _lifetime(data: Any, i: int, stop: int, table: Any, punctuation: int) -> Any:
    """Whether the apostrophe at `i` begins a lifetime of Rust, after the token `punctuation` (its byte, else 0)."""
    _, _, end = read_word(data, i + 1, stop, table)
    if end == i + 1 or (end < stop and byte_at(data, end) == SINGLE):
        return False
    if punctuation in (AMPERSAND, LESS):
        return True
    return end < stop and byte_at(data, end) == GREATER


@compiled
def _content(
    data: Any, i: int, end: int, table: Any, chain: Any, length: int, normal: Any, written: Any, count: int
) -> Any:
    """(chain, length, normal, written, count) after the content of a string: its hash and length so far, and the words past
    its first `LONG` bytes as tokens."""
    word = FNV_BASIS
    while i <= end:
        kind = table.classes[byte_at(data, i)] if i < end else OTHER
        if i < end:
            chain = hash_byte(chain, byte_at(data, i))
            length += 1
        if length > LONG and kind in (LETTER, DIGIT):
            word = hash_byte(word, byte_at(data, i))
        elif word != FNV_BASIS:
            if count == len(normal):
                normal, written = _grown(normal, count), _grown(written, count)
            normal[count], written[count] = WORD, mix64(word)
            count += 1
            word = FNV_BASIS
        i += 1
    return chain, length, normal, written, count


@compiled
def lex(data: Any, begin: int, stop: int, table: Any, normal: Any, written: Any) -> Any:
    """(normal, written, count): the tokens of UTF-8 `data[begin:stop]`, normalised and as written (uint64), in these arrays
    or larger ones."""
    count = 0
    i = begin
    ahead = np.zeros(6, np.int64)  # for `comment_end`
    open_three = False  # triple quotes that nothing closes came before
    unclosed = np.zeros(3, np.int64)  # up to where no `"`, `'` or backtick closes on its line
    first, python, directive, joined = True, False, False, False
    on_line = False  # whether a token of this line came before
    last, punctuation, colons, braces = _NONE, 0, 0, 0
    chain, length, string = FNV_BASIS, 0, 0  # of the last string: its hash so far, bytes, token
    while i < stop:
        if count == len(normal):
            normal, written = _grown(normal, count), _grown(written, count)
        byte = byte_at(data, i)
        kind = table.classes[byte]
        if kind == SPACE:
            i += 1
            continue
        if kind == LINE:
            if on_line:
                colons += punctuation == COLON
                braces += punctuation in (OPEN_CURLY, CLOSE_CURLY, SEMICOLON)
                python = colons > braces
            directive = directive and i > begin and byte_at(data, i - 1) == BACKSLASH
            first, on_line = True, False
            i += 1
            continue
        if kind == LETTER:
            value, known, end = read_word(data, i, stop, table)
            if end - i < 3 and _is_prefix(data, i, end, stop):
                i = end
                kind, byte = QUOTE, byte_at(data, end)
                quoted = True
            else:
                normal[count] = value if known & KEYWORD and punctuation != DOT else IDENTIFIER
                written[count] = value
                last, punctuation = normal[count], 0
                count += 1
                first, on_line = False, True
                i = end
                continue
        else:
            quoted = not (
                byte == SINGLE
                and i > begin
                and (
                    table.classes[byte_at(data, i - 1)] == LETTER
                    or table.classes[byte_at(data, i - 1)] == DIGIT
                )
            )
        if kind == DIGIT:
            end = number_end(data, i, stop, table)
            value = FNV_BASIS
            for k in range(i, end):
                value = hash_byte(value, byte_at(data, k))
            normal[count], written[count] = NUMBER, mix64(value)
            last, punctuation = NUMBER, 0
            count += 1
            first, on_line = False, True
            i = end
            continue
        if kind == QUOTE:
            if not quoted or (byte == SINGLE and _lifetime(data, i, stop, table, punctuation)):
                i += 1
                first = False
                continue
            content, end, width = i + 1, -1, 1
            if (
                byte != BACKTICK
                and i + 2 < stop
                and byte_at(data, i + 1) == byte
                and byte_at(data, i + 2) == byte
            ):
                if not open_three:
                    end = closed_by_three(data, i + 3, stop, byte)
                    open_three = end < 0
                if end >= 0:
                    width = 3
                    content = i + 3
                    if first and (last == _NONE or punctuation == COLON):
                        first = False
                        i = end
                        continue
            mark = 0 if byte == DOUBLE else (1 if byte == SINGLE else 2)
            if end < 0 and i >= unclosed[mark]:
                end = closed_on_line(data, i + 1, stop, byte)
                if end < 0:
                    unclosed[mark] = -1 - end
            first = False
            if end >= 0:
                if not (joined and last == LITERAL_STRING):
                    chain, length, string = FNV_BASIS, 0, count
                    count += 1
                chain, length, normal, written, count = _content(
                    data, content, end - width, table, chain, length, normal, written, count
                )
                normal[string], written[string] = LITERAL_STRING, mix64(chain)
                last, punctuation, joined, on_line = LITERAL_STRING, 0, True, True
                i = end
                continue
        else:
            ended = punctuation == 0 and (last in (IDENTIFIER, NUMBER))
            operand = on_line and (ended or punctuation in (CLOSE_ROUND, CLOSE_SQUARE))
            end = -1
            if not directive or byte != HASH:
                end = comment_end(data, begin, i, stop, table, first, operand, python, last, ahead)
            if end >= 0:
                first = False
                i = end
                continue
            directive = directive or (byte == HASH and first)
            first = False
            if kind == DROPPED:
                joined = joined and byte == BACKSLASH
                if byte != BACKSLASH:
                    punctuation = int(byte)
                i += 1
                continue
        value = mix64(np.uint64(256) + np.uint64(byte))
        normal[count], written[count] = value, value
        last, punctuation, on_line = value, int(byte), True
        count += 1
        i += 1
    return normal, written, count


@compiled
def _grown(array: Any, count: int) -> Any:
    larger = np.empty(2 * len(array), np.uint64)
    larger[:count] = array[:count]
    return larger
