"""What the preset `code` knows of source text in any language: classes of bytes, keywords, where comments and literals end.

The rules are those that `code_lexer.py` states. Kernels over UTF-8 bytes `data[:stop]`; places are indices of bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.word_hashes import FNV_BASIS, FNV_PRIME, byte_at, mix64

_WORDS = (
    "if else elif elsif elseif unless then for foreach while until do loop switch case break continue return goto yield try"
    " catch except finally rescue ensure throw throws raise with async await def fn func function lambda class struct enum"
    " union interface trait impl namespace import export extern public private protected static const final abstract virtual"
    " override let var mut new delete this self super null nil None true false True False and or not in is typedef template"
    " typename sizeof void int char float double long short unsigned signed bool boolean inline extends implements instanceof"
    " typeof pass assert global nonlocal del defer pub constexpr noexcept mutable volatile define undef ifdef ifndef endif"
    " pragma"
)
# After `#` they make the line code: whatever follows, or if the line does not end with a colon (`#else:` is Python, commented
# out).
_DIRECTIVES = "include define undef ifdef ifndef endif pragma error warning region endregion"
_WEAK = "if elif else"
_POD = "pod head1 head2 head3 head4 over item back begin for encoding"
KEYWORDS, DIRECTIVES, WEAK, POD = (frozenset(words.split()) for words in (_WORDS, _DIRECTIVES, _WEAK, _POD))
SPACE, LINE, LETTER, DIGIT, QUOTE, DROPPED, OTHER = range(7)  # classes of bytes
KEYWORD, DIRECTIVE, WEAK_DIRECTIVE, OF_POD = 1, 2, 4, 8  # what a word is, as flags
LITERAL_STRING, NUMBER, IDENTIFIER, WORD = (np.uint64(kind) for kind in range(1, 5))  # no hash is as small
LF, CR, EXCLAMATION, DOUBLE, HASH, PERCENT, AMPERSAND, SINGLE = 10, 13, 33, 34, 35, 37, 38, 39
OPEN_ROUND, CLOSE_ROUND, STAR, PLUS, COMMA, DASH, DOT, SLASH = range(40, 48)
COLON, SEMICOLON, LESS, EQUALS, GREATER = range(58, 63)
OPEN_SQUARE, BACKSLASH, CLOSE_SQUARE, CARET, BACKTICK, OPEN_CURLY, CLOSE_CURLY = 91, 92, 93, 94, 96, 123, 125
_STAR_SLASH, _LINE_END, _SQUARE_SQUARE, _ARROW, _STAR_ROUND, _DASH_CURLY = range(6)
_NEVER = 1 << 62  # where what closes a block never comes
_SLOTS = 1024
_SLOT = np.uint64(_SLOTS - 1)
_FREE = np.uint64(0)


class Lexicon(NamedTuple):
    """What the lexer looks up."""

    classes: npt.NDArray[np.uint8]  # [256] of each byte
    words: npt.NDArray[np.uint64]  # [_SLOTS] hashes of known words; 0: free
    kinds: npt.NDArray[np.uint8]  # [_SLOTS] what each of them is


@compiled(inline="always")
def hash_byte(value: Any, byte: Any) -> Any:
    """The hash of a run of bytes after one more."""
    return (value ^ np.uint64(byte)) * FNV_PRIME


def hash_word(word: bytes) -> int:
    """The hash of a word as `lex` computes it."""
    value = int(FNV_BASIS)
    for byte in word:
        value = (value ^ byte) * int(FNV_PRIME) & (1 << 64) - 1
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * multiplier & (1 << 64) - 1
    return value ^ value >> 33


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The tables of the rules above."""
    classes = np.full(256, OTHER, np.uint8)
    classes[:33], classes[127] = SPACE, SPACE
    classes[[10, 13]] = LINE
    classes[128:] = LETTER
    for kind, members in ((LETTER, b"_$"), (QUOTE, b"\"'`"), (DROPPED, b",;\\")):
        classes[list(members)] = kind
    classes[48:58] = DIGIT
    classes[65:91], classes[97:123] = LETTER, LETTER
    words, kinds = np.zeros(_SLOTS, np.uint64), np.zeros(_SLOTS, np.uint8)
    flags = {KEYWORD: _WORDS, DIRECTIVE: _DIRECTIVES, WEAK_DIRECTIVE: _WEAK, OF_POD: _POD}
    known: dict[str, int] = {}
    for flag, some in flags.items():
        for word in some.split():
            known[word] = known.get(word, 0) | flag
    for word, kind in known.items():
        value = hash_word(word.encode())
        slot = value & (_SLOTS - 1)
        while words[slot]:
            slot = (slot + 1) & (_SLOTS - 1)
        words[slot], kinds[slot] = value, kind
    return Lexicon(classes, words, kinds)


@compiled
def read_word(data: Any, i: int, stop: int, table: Any) -> Any:
    """(hash, kind, end) of the word that begins at `i`; kind 0 if it is not a known one."""
    value = FNV_BASIS
    while i < stop:
        byte = byte_at(data, i)
        kind = table.classes[byte]
        if kind != LETTER and kind != DIGIT:
            break
        value = hash_byte(value, byte)
        i += 1
    value = mix64(value)
    slot = value & _SLOT
    while table.words[slot] != _FREE:
        if table.words[slot] == value:
            return value, table.kinds[slot], i
        slot = (slot + np.uint64(1)) & _SLOT
    return value, np.uint8(0), i


@compiled
def line_end(data: Any, i: int, stop: int) -> int:
    """The place of the next line break, or the end."""
    while i < stop and byte_at(data, i) != LF and byte_at(data, i) != CR:
        i += 1
    return i


@compiled
def _closed(data: Any, i: int, stop: int, first: int, second: int) -> int:
    """Where the two bytes end that come next, -1 if none do."""
    while i + 1 < stop:
        if byte_at(data, i) == first and byte_at(data, i + 1) == second:
            return i + 2
        i += 1
    return -1


@compiled
def closed_by_three(data: Any, i: int, stop: int, mark: int) -> int:
    """The same for three times `mark`; a backslash takes away the meaning of the byte after it."""
    while i + 2 < stop:
        if byte_at(data, i) == BACKSLASH:
            i += 2
        elif byte_at(data, i) == mark and byte_at(data, i + 1) == mark and byte_at(data, i + 2) == mark:
            return i + 3
        else:
            i += 1
    return -1


@compiled
def closed_on_line(data: Any, i: int, stop: int, mark: int) -> int:
    """Where a string ends that `mark` closes; if its line ends before, at `n`, then -1 - n. A backslash takes away the meaning
    of the byte after it, also of a line break."""
    while i < stop:
        byte = byte_at(data, i)
        if byte == mark:
            return i + 1
        if byte == BACKSLASH:
            i += 2
        elif byte in (LF, CR):
            return -1 - i
        else:
            i += 1
    return -1 - i


@compiled
def _pod_end(data: Any, i: int, stop: int) -> int:
    """The end of the line that begins with `=cut` or `=end`; of the text, if none does."""
    while True:
        i = line_end(data, i, stop) + 1
        if i >= stop:
            return stop
        if i + 4 <= stop and byte_at(data, i) == EQUALS:
            a, b, c = byte_at(data, i + 1), byte_at(data, i + 2), byte_at(data, i + 3)
            if (a == 99 and b == 117 and c == 116) or (a == 101 and b == 110 and c == 100):
                return line_end(data, i, stop)


@compiled
def _spaces(data: Any, i: int, stop: int, table: Any) -> int:
    """Past white space, but no line break."""
    while i < stop and table.classes[byte_at(data, i)] == SPACE:
        i += 1
    return i


@compiled
def _is_directive(data: Any, i: int, stop: int, table: Any) -> Any:
    """Whether the `#` at `i`, the first on its line, is code."""
    if i + 1 < stop and byte_at(data, i + 1) == OPEN_SQUARE:
        return True
    if i + 2 < stop and byte_at(data, i + 1) == EXCLAMATION and byte_at(data, i + 2) == OPEN_SQUARE:
        return True
    at = _spaces(data, i + 1, stop, table)
    _, kind, end = read_word(data, at, stop, table)
    if kind & DIRECTIVE:
        return end >= stop or byte_at(data, end) != COLON
    if kind & WEAK_DIRECTIVE and at == i + 1:
        last = line_end(data, i, stop) - 1
        while table.classes[byte_at(data, last)] == SPACE:
            last -= 1
        return byte_at(data, last) != COLON
    return False


@compiled
def _is_colour(data: Any, i: int, stop: int) -> bool:
    """Whether 3 to 8 hexadecimal digits follow the `#` at `i`, and then one of `;,)}!`."""
    at = i + 1
    while at < stop and at < i + 10:
        byte = byte_at(data, at)
        if not (48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102):
            break
        at += 1
    if at < i + 4 or at > i + 9 or at >= stop:
        return False
    byte = byte_at(data, at)
    return byte in (SEMICOLON, COMMA, CLOSE_ROUND, CLOSE_CURLY, EXCLAMATION)


@compiled
def number_end(data: Any, i: int, stop: int, table: Any) -> int:
    """The end of the number that begins at `i`: 0x1F, 1_000, 1'000, 2.5e-3f; not of the range 1..9."""
    decimal = not (i + 1 < stop and byte_at(data, i) == 48 and byte_at(data, i + 1) | 32 == 120)
    i += 1
    while i < stop:
        byte = byte_at(data, i)
        kind = table.classes[byte]
        before_digit = i + 1 < stop and table.classes[byte_at(data, i + 1)] == DIGIT
        if kind in (LETTER, DIGIT):
            i += 1
            signed = i < stop and (byte_at(data, i) == PLUS or byte_at(data, i) == DASH)
            exponent = decimal and byte | 32 == 101 and signed and i + 1 < stop
            if exponent and table.classes[byte_at(data, i + 1)] == DIGIT:
                i += 1
        elif (byte in (DOT, SINGLE)) and before_digit:
            i += 1
        else:
            break
    return i


@compiled
def _spaced_block(data: Any, i: int, stop: int, table: Any, close: int, ahead: Any, kind: int) -> int:
    """The end of the block at `i` whose second mark and `close` end it, if white space follows its two marks; else -1."""
    if ahead[kind] == _NEVER or i + 2 >= stop or table.classes[byte_at(data, i + 2)] not in (SPACE, LINE):
        return -1
    end = int(_closed(data, i + 2, stop, byte_at(data, i + 1), close))
    ahead[kind] = _NEVER if end < 0 else 0
    return end


@compiled
def comment_end(
    data: Any, begin: int, i: int, stop: int, table: Any, first: bool, operand: bool, python: bool, after: Any,
    ahead: Any,
) -> Any:  # fmt: skip
    """The end of the comment that begins at `i`, -1 if none does. `first`: on its line; `operand`: after one on the line;
    `python`: `//` is then an operator; `after`: the token before. `ahead`: int64[6], 0 at first, what is known of the text ahead, so that no part
    of it is searched twice."""
    byte = byte_at(data, i)
    next_byte = byte_at(data, i + 1) if i + 1 < stop else np.uint8(LF)
    before = byte_at(data, i - 1) if i > begin else np.uint8(LF)
    if byte == SLASH:  # /
        if before == BACKSLASH or (next_byte != STAR and next_byte != SLASH):
            return -1
        if next_byte == SLASH:
            return -1 if before == COLON or (python and operand) else line_end(data, i, stop)
        if i + 4 > ahead[_STAR_SLASH]:
            end = _closed(data, i + 2, stop, STAR, SLASH)
            ahead[_STAR_SLASH] = end if end >= 0 else _NEVER
        if ahead[_STAR_SLASH] == _NEVER:
            return -1
        end = ahead[_STAR_SLASH]
        kind = table.classes[before]
        if kind in (LETTER, DIGIT, QUOTE) or before in (DOT, STAR, CLOSE_SQUARE, CARET, CLOSE_CURLY):
            if i > ahead[_LINE_END]:
                ahead[_LINE_END] = line_end(data, i, stop)
            if end > ahead[_LINE_END]:  # a glob, or a regular expression
                return -1
        return end
    if byte == HASH:  # #
        kind = table.classes[before]
        if first:
            return -1 if _is_directive(data, i, stop, table) else line_end(data, i, stop)
        if kind == SPACE or before in (SEMICOLON, CLOSE_ROUND):
            return -1 if _is_colour(data, i, stop) else line_end(data, i, stop)
        return -1
    if byte == DASH and next_byte == DASH:  # --
        if (
            i + 3 < stop
            and byte_at(data, i + 2) == OPEN_SQUARE
            and byte_at(data, i + 3) == OPEN_SQUARE
            and ahead[_SQUARE_SQUARE] != _NEVER
        ):
            end = _closed(data, i + 4, stop, CLOSE_SQUARE, CLOSE_SQUARE)
            ahead[_SQUARE_SQUARE] = _NEVER if end < 0 else 0
            if end >= 0:
                return end
        if not first and table.classes[before] != SPACE:
            return -1
        while i < stop and byte_at(data, i) == DASH:
            i += 1
        if i >= stop or table.classes[byte_at(data, i)] == SPACE or table.classes[byte_at(data, i)] == LINE:
            return line_end(data, i, stop)
        return -1
    if byte == LESS:  # <!--
        if (
            next_byte == EXCLAMATION
            and i + 3 < stop
            and byte_at(data, i + 2) == DASH
            and byte_at(data, i + 3) == DASH
        ):
            at = i + 4
            while ahead[_ARROW] != _NEVER:
                at = _closed(data, at, stop, DASH, DASH)
                if at < 0:
                    ahead[_ARROW] = _NEVER
                elif at < stop and byte_at(data, at) == GREATER:
                    return at + 1
                else:
                    at -= 1
        return -1
    if byte in (SEMICOLON, PERCENT):  # ; %
        if not first or (byte == PERCENT and after == LITERAL_STRING):
            return -1
        letter = table.classes[next_byte] == LETTER or table.classes[next_byte] == SPACE
        return line_end(data, i, stop) if letter or next_byte == byte else -1
    if byte == OPEN_ROUND and next_byte == STAR:  # (*
        return _spaced_block(data, i, stop, table, CLOSE_ROUND, ahead, _STAR_ROUND)
    if byte == OPEN_CURLY and next_byte == DASH:  # {-
        return _spaced_block(data, i, stop, table, CLOSE_CURLY, ahead, _DASH_CURLY)
    if byte == EQUALS and (i == begin or table.classes[before] == LINE):  # =
        _, known, _ = read_word(data, i + 1, stop, table)
        return _pod_end(data, i, stop) if known & OF_POD else -1
    return -1
