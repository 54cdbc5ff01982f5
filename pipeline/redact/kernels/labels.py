"""Words with a digit behind what may be a label (`identifier_labels`), and digits beside masked ones: necessary conditions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.identifier_labels import BETWEEN, LABELS, NUMBERED, PREFIXES, fold
from corpusmill.pipeline.redact.kernels import IS_ALNUM, IS_LETTER, LABELLED, MASKED, put
from corpusmill.pipeline.redact.kernels.hints import SMALL

MIN_VALUE: Final = 4  # letters and digits of a value
MAX_PREFIX: Final = 20  # bytes of a value before the word with the digit
MAX_WORD: Final = 40  # bytes of a label's last word
MAX_FILL: Final = 8  # bytes between a label and its value
MAX_WORDS: Final = 6
# Bits of a word: the last of a label; one in whose script a label may be the end of a longer word; `no` and `is`, behind which a
# label must stand; `id`, with a label some words before it; a single letter.
LABEL, SUFFIX, STEP, FAR, LETTER = 1, 2, 4, 8, 16
_SIZE: Final = 1 << 17
_MIX: Final = 0x9E3779B1
_PRIME: Final = 0x01000193  # of FNV-1
_MARKS = b" \t:#.=()]\"'*|-_[>"  # between a label and its value


def _flags() -> dict[str, int]:
    """Word -> its bits."""
    found: dict[str, int] = {}
    for label in LABELS:
        last = label[-1]
        if last in NUMBERED:  # `order no`, `case id`: the word before tells
            for word in label[-2:-1]:
                found[word] = found.get(word, 0) | LABEL
        else:
            found[last] = found.get(last, 0) | (LABEL | SUFFIX if last[-1] > "\u0e00" else LABEL)
    for prefix in PREFIXES:
        found[prefix.decode().lower()] = LABEL
    for word in (*NUMBERED, *BETWEEN):
        more = (SUFFIX | LABEL) if word[-1] > "\u0e00" else FAR if word == "id" else STEP
        found[word] = found.get(word, 0) | more
    return {word: LETTER if len(word) == 1 and word.isascii() else bits for word, bits in found.items()}


def _words() -> npt.NDArray[np.uint8]:
    """uint8[_SIZE]: the bits of words per hash, which is read from their end."""
    table = np.zeros(_SIZE, np.uint8)
    for word, bits in sorted(_flags().items()):
        for form in {word, word.upper(), word.capitalize()}:
            code = 0
            for byte in reversed(form.encode().lower()):
                code = (code * _PRIME ^ byte) & 0xFFFFFFFF
            table[(code * _MIX & 0xFFFFFFFF) >> 15] |= bits
    return table


def _bases() -> npt.NDArray[np.uint8]:
    """uint8[3, 64]: the letter without its accent of the characters that begin with C3, C4 and C5; 0 where there is none."""
    table = np.zeros((3, 64), np.uint8)
    for place in range(3 * 64):
        base = fold(bytes([0xC3 + place // 64, 0x80 + place % 64]).decode())
        if base and len(base[0]) == 1 and base[0].isascii():
            table[place // 64, place % 64] = ord(base[0])
    return table


def _is(members: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


WORDS = _words()
BASES = _bases()
IS_FILL = _is(_MARKS)
IS_CODE = _is(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/_.:")


@compiled
def _is_sign(a: Any, b: Any, c: Any) -> bool:
    """The colon of East Asian text, and №."""
    return bool((a == 0xEF and b == 0xBC and c == 0x9A) or (a == 0xE2 and b == 0x84 and c == 0x96))


@compiled
def _is_camel(a: Any, b: Any, c: Any) -> bool:
    """A word's capital right behind another word."""
    return bool(97 <= a <= 122 and 65 <= b <= 90 and 97 <= c <= 122)


@compiled
def _fit(code: Any) -> Any:
    return np.uint32(code * np.uint32(_MIX)) >> np.uint32(15)


@compiled
def ends_label(data: Any, at: int) -> bool:
    """Whether a label may end right before `at`, or before the punctuation that does."""
    i = at
    while i > 0 and at - i < MAX_FILL:
        if IS_FILL[data[i - 1]]:
            i -= 1
        elif (
            i > 1
            and data[i - 2] == 0xC2
            and (data[i - 1] == 0xA0 or data[i - 1] == 0xB0 or data[i - 1] == 0xBA)
        ):
            i -= 2
        elif i > 2 and data[i - 3] >= 0xE2 and _is_sign(data[i - 3], data[i - 2], data[i - 1]):
            i -= 3
        else:
            break
    far = False
    for _word in range(MAX_WORDS):
        code, end = np.uint32(0), i
        while i > 0 and end - i < MAX_WORD and (IS_LETTER[data[i - 1]] or data[i - 1] >= 128):
            if i > 1 and data[i - 2] == 0xC2 and (data[i - 1] == 0xB0 or data[i - 1] == 0xBA):  # NºCol
                break
            if i + 1 < end and _is_camel(data[i - 1], data[i], data[i + 1]):  # caseNumber
                break
            i -= 1
            letter = SMALL[data[i]]
            if (
                0x80 <= data[i] < 0xC0
                and i > 0
                and 0xC3 <= data[i - 1] <= 0xC5
                and BASES[data[i - 1] - 0xC3, data[i] - 0x80]
            ):
                i -= 1
                letter = np.uint32(BASES[data[i] - 0xC3, data[i + 1] - 0x80])
            code = np.uint32((code * np.uint32(_PRIME)) ^ letter)
            if data[i] >= 0xE0 and WORDS[_fit(code)] & SUFFIX:
                return True
        if end == i:
            return False
        flag = WORDS[_fit(code)]
        if end - i == 1:
            if flag & LETTER == 0 or end == len(data) or (data[end] != 46 and data[end] != 0xC2):
                return False
            if SMALL[data[i]] != 110:
                return i > 0 and data[i - 1] == 46  # N.I.F.
            flag = np.uint8(STEP)  # nº, n.
        if flag & LABEL:
            return True
        far |= flag & FAR > 0
        if not far and flag & STEP == 0:
            return False
        while i > 0 and (IS_FILL[data[i - 1]] or data[i - 1] == 44):
            i -= 1
        if i > 1 and data[i - 2] == 0xC2:  # º
            i -= 2
    return False


@compiled
def _is_year(data: Any, low: int) -> bool:
    """Whether the four digits at `low` are a year, with nothing behind it that they may be the first group of."""
    if not ((data[low] == 49 and data[low + 1] == 57) or (data[low] == 50 and data[low + 1] == 48)):
        return False
    i = low + 4
    return i + 1 >= len(data) or not (
        IS_ALNUM[data[i + 1]] and (data[i] == 32 or 45 <= data[i] <= 47 or data[i] == 95)
    )


@compiled
def labelled(data: Any, low: int, first: int, high: int, found: Any, count: int) -> Any:
    """A word with a digit (`low` to `high`, its first digit at `first`) that may be a value behind a label."""
    n, size, i = len(data), high - low, high
    if size < MIN_VALUE:  # 28 28 12345, 2-34/19
        while i + 1 < n and size < MIN_VALUE:
            if IS_ALNUM[data[i]]:
                size += 1
            elif not (
                IS_ALNUM[data[i + 1]]
                and (data[i] == 32 or 45 <= data[i] <= 47 or data[i] == 95 or data[i] == 58)
            ):
                break
            i += 1
        if low > 0 and (IS_CODE[data[low - 1]] or IS_ALNUM[data[low - 1]]):
            size = MIN_VALUE
    if size < MIN_VALUE or (high - low == 4 and low == first and _is_year(data, low)):
        return count
    if ends_label(data, first):
        return put(found, count, LABELLED, first, high)
    begin = low
    while begin > 0 and low - begin < MAX_PREFIX and IS_CODE[data[begin - 1]]:
        begin -= 1
    if (low < first or begin < low) and ends_label(data, low):
        return put(found, count, LABELLED, first, high)
    if begin < low and ends_label(data, begin):
        return put(found, count, LABELLED, first, high)
    return count


@compiled
def masked(data: Any, start: int, end: int, found: Any, count: int) -> Any:
    """Digits from `start` to `end` beside two or more signs that hide others, one separator apart at most."""
    n, i = len(data), start - 1
    for _ in range(2):
        if i > 0 and (data[i] == 32 or data[i] == 45 or data[i] == 46 or data[i] == 41 or data[i] == 40):
            i -= 1
    j = end
    for _ in range(2):
        if j + 1 < n and (data[j] == 32 or data[j] == 45 or data[j] == 46 or data[j] == 41 or data[j] == 40):
            j += 1
    if (i > 0 and _hides(data, i) and _hides(data, i - 1)) or (
        j + 1 < n and _hides(data, j) and _hides(data, j + 1)
    ):
        return put(found, count, MASKED, start, end)
    if (i > 1 and data[i] == 0xA2 and data[i - 1] == 0x80) or (
        j + 2 < n and data[j] == 0xE2 and data[j + 2] == 0xA2
    ):
        return put(found, count, MASKED, start, end)
    return count


@compiled
def _hides(data: Any, i: int) -> bool:
    return bool(data[i] == 42 or (data[i] | 32) == 120 or data[i] == 35)
