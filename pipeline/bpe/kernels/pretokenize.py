"""Where the patterns of published pre-tokenizers cut: each function returns the end of the piece that begins at `at`.

They read a regular expression's alternatives in its order, greedily, as the engine would; no pattern here looks behind, so a
piece depends only on what stands at and after its start.
"""

from __future__ import annotations

from typing import Any, Final

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.classes import (
    CAPITAL,
    CJK,
    LETTER,
    MARK,
    NUMBER,
    NUMERIC,
    SMALL,
    SPACE,
    SYMBOL,
    look,
    run,
    run_latin,
    run_without,
)

# What a step cuts by; its `most` is the number of digits in a piece, 0 for any number.
GPT2: Final = 0
CL100K: Final = 1  # Llama 3, Qwen 2
O200K: Final = 2  # GPT-4o
TEKKEN: Final = 3  # GPT-4o's without contractions: Mistral
DIGITS: Final = 4  # `Digits`: Rust's numeric characters
NUMBERS: Final = 5  # \p{N} and `most`, isolated
IDEOGRAPHS: Final = 6  # DeepSeek's range, isolated
DEEPSEEK: Final = 7  # DeepSeek V3's third pattern

# The classes of characters that each looks at.
CLASSES: Final = {
    GPT2: LETTER | NUMBER | SPACE, CL100K: LETTER | NUMBER | SPACE,
    O200K: LETTER | NUMBER | SPACE | CAPITAL | SMALL | MARK, TEKKEN: LETTER | NUMBER | SPACE | CAPITAL | SMALL | MARK,
    DIGITS: NUMERIC, NUMBERS: NUMBER, IDEOGRAPHS: CJK, DEEPSEEK: LETTER | MARK | SPACE | SYMBOL,
}  # fmt: skip
_APOSTROPHE, _BLANK, _CR, _LF, _SLASH = 39, 32, 13, 10, 47


@compiled
def cut(kind: int, most: int, data: Any, at: int, stop: int, classes: Any) -> int:
    """One past the last byte of the piece that begins at `at`, of text that ends at `stop`."""
    if kind <= CL100K and data[at] == _APOSTROPHE:
        end = _contraction(data, at, stop, kind == CL100K)
        if end > at:
            return end
    if kind == GPT2:
        return _gpt2(data, at, stop, classes, most)
    if kind == CL100K:
        return _cl100k(data, at, stop, classes, most)
    if kind == O200K:
        return _o200k(data, at, stop, classes, most, True)
    if kind == TEKKEN:
        return _o200k(data, at, stop, classes, most, False)
    if kind == DEEPSEEK:
        return _deepseek(data, at, stop, classes)
    return _isolated(
        data, at, stop, classes, most, NUMERIC if kind == DIGITS else NUMBER if kind == NUMBERS else CJK
    )


@compiled
def _gpt2(data: Any, at: int, stop: int, classes: Any, most: int) -> int:
    r"""After `'s|'t|'re|'ve|'m|'ll|'d`: ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`"""
    lead = data[at]
    bits, after = look(data, at, stop, classes)
    if lead == _BLANK and after < stop:
        next_bits, next_after = look(data, after, stop, classes)
        if not next_bits & SPACE:
            bits, after = next_bits, next_after
    if bits & LETTER:
        return _letters(data, after, stop, classes)
    if bits & SPACE:
        return _blanks(data, at, stop, classes, False)
    if bits & NUMBER:
        return _numbers(data, after, stop, classes, NUMBER, most)
    return run_without(data, after, stop, classes, SPACE | LETTER | NUMBER)


@compiled
def _cl100k(data: Any, at: int, stop: int, classes: Any, most: int) -> int:
    r"""After `(?i:'s|'t|'re|'ve|'m|'ll|'d)`: `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`"""
    lead = data[at]
    bits, after = look(data, at, stop, classes)
    if bits & LETTER:
        return _letters(data, after, stop, classes)
    if bits & NUMBER:
        return _numbers(data, after, stop, classes, NUMBER, most)
    if lead != _CR and lead != _LF and after < stop:
        next_bits, next_after = look(data, after, stop, classes)
        if next_bits & LETTER:
            return _letters(data, next_after, stop, classes)
    return _others(data, at, after, bits, stop, classes, False)


@compiled
def _o200k(data: Any, at: int, stop: int, classes: Any, most: int, contractions: bool) -> int:
    r"""With U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, D = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, C = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`:
    `[^\r\n\p{L}\p{N}]?U*D+C|[^\r\n\p{L}\p{N}]?U+D*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`"""
    lead = data[at]
    bits, after = look(data, at, stop, classes)
    if bits & NUMBER:
        return _numbers(data, after, stop, classes, NUMBER, most)
    end = at
    newline = lead in (_CR, _LF)
    if newline or bits & LETTER:
        if bits & (CAPITAL | SMALL):
            end = _small_at_the_end(data, at, stop, classes)
            if end == at:
                end = run(data, at, stop, classes, CAPITAL)
    else:
        end = _small_at_the_end(data, after, stop, classes)
        if end == after:
            end = _small_at_the_end(data, at, stop, classes) if bits & MARK else at
        if end == at:
            end = run(data, after, stop, classes, CAPITAL)
            if end == after:
                end = at
    if end == at:
        return _others(data, at, after, bits, stop, classes, True)
    if contractions and end < stop and data[end] == _APOSTROPHE:
        return _contraction(data, end, stop, True)
    return end


@compiled
def _small_at_the_end(data: Any, at: int, stop: int, classes: Any) -> int:
    """The end of `U*D+` at `at`, or `at`: what is of both kinds (ideographs, marks) is given back by `U*` if it must be."""
    i, both = at, at
    while i < stop:
        bits, after = look(data, i, stop, classes)
        if not bits & CAPITAL:
            if bits & SMALL:
                return run(data, run_latin(data, after, stop, False), stop, classes, SMALL)
            break
        i = after
        if bits & SMALL:
            both = i
    return both


@compiled
def _deepseek(data: Any, at: int, stop: int, classes: Any) -> int:
    r"""`[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, where
    `[!-/:-~]` stands for ASCII's punctuation; what none matches is a piece up to the next match."""
    lead = data[at]
    bits, after = look(data, at, stop, classes)
    if lead < 128 and bits & SYMBOL and after < stop and _latin(data[after]):
        while after < stop and _latin(data[after]):
            after += 1
        return after
    if bits & (LETTER | MARK):
        return run(data, after, stop, classes, LETTER | MARK)
    if not bits & SYMBOL and lead != _CR and lead != _LF and after < stop:
        next_bits, next_after = look(data, after, stop, classes)
        if next_bits & (LETTER | MARK):
            return run(data, next_after, stop, classes, LETTER | MARK)
        if lead == _BLANK and next_bits & SYMBOL:
            bits, after = next_bits, next_after
    if bits & SYMBOL:
        return _newlines(data, run(data, after, stop, classes, SYMBOL), stop, False)
    if bits & SPACE:
        return _blanks(data, at, stop, classes, True)
    while after < stop:  # no alternative matches at `at`: up to where one does
        bits, beyond = look(data, after, stop, classes)
        if bits & (LETTER | MARK | SYMBOL | SPACE):
            break
        if beyond < stop and look(data, beyond, stop, classes)[0] & (LETTER | MARK):
            break
        after = beyond
    return after


@compiled
def _isolated(data: Any, at: int, stop: int, classes: Any, most: int, wanted: int) -> int:
    """Up to `most` characters of a class (0: any number), or all up to the next one."""
    bits, after = look(data, at, stop, classes)
    if bits & wanted:
        return _numbers(data, after, stop, classes, wanted, most)
    return run_without(data, after, stop, classes, wanted)


@compiled
def _numbers(data: Any, at: int, stop: int, classes: Any, wanted: int, most: int) -> int:
    """The end of a run that has one character before `at`, of at most `most`; 0: any number."""
    if most == 0:
        return run(data, at, stop, classes, wanted)
    for _ in range(most - 1):
        if at >= stop:
            break
        bits, after = look(data, at, stop, classes)
        if not bits & wanted:
            break
        at = after
    return at


@compiled
def _others(data: Any, at: int, after: int, bits: int, stop: int, classes: Any, slash: bool) -> int:
    r"""` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+` at `at`, whose character ends at `after` and has `bits`;
    `slash`: `[\r\n/]*`."""
    if bits & SPACE:
        if data[at] != _BLANK or after >= stop:
            return _blanks(data, at, stop, classes, True)
        bits, beyond = look(data, after, stop, classes)
        if bits & (SPACE | LETTER | NUMBER):
            return _blanks(data, at, stop, classes, True)
        after = beyond
    return _newlines(data, run_without(data, after, stop, classes, SPACE | LETTER | NUMBER), stop, slash)


@compiled
def _newlines(data: Any, at: int, stop: int, slash: bool) -> int:
    r"""The end of `[\r\n]*`, or of `[\r\n/]*`."""
    while at < stop and (data[at] == _LF or data[at] == _CR or (slash and data[at] == _SLASH)):
        at += 1
    return at


@compiled
def _blanks(data: Any, at: int, stop: int, classes: Any, lines: bool) -> int:
    r"""White space at `at`. `lines`: `\s*[\r\n]+` first; then all but the last before something else (`\s+(?!\S)`), or
    all (`\s+`)."""
    i, last, newline = at, at, at
    while i < stop:
        bits, after = look(data, i, stop, classes)
        if not bits & SPACE:
            break
        if data[i] == _LF or data[i] == _CR:
            newline = after
        last, i = i, after
    if lines and newline > at:
        return newline
    return i if i == stop or last == at else last


@compiled
def _letters(data: Any, at: int, stop: int, classes: Any) -> int:
    r"""The end of `\p{L}*`."""
    return run(data, run_latin(data, at, stop, True), stop, classes, LETTER)


@compiled
def _contraction(data: Any, at: int, stop: int, any_case: bool) -> int:
    """The end of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at the apostrophe at `at`, or `at`. In any case, the long s
    (U+017F) is an s too."""
    if at + 1 >= stop:
        return at
    a = data[at + 1]
    b = data[at + 2] if at + 2 < stop else a & 0
    if any_case:
        if a == 0xC5 and b == 0xBF:
            return at + 3
        if 65 <= a <= 90:
            a |= 32
        if 65 <= b <= 90:
            b |= 32
    if a == 115 or a == 116 or a == 109 or a == 100:
        return at + 2
    if (b == 101 and (a == 114 or a == 118)) or (a == 108 and b == 108):
        return at + 3
    return at


@compiled
def _latin(byte: int) -> bool:
    return 65 <= byte <= 90 or 97 <= byte <= 122
