"""The word rule and shingles in plain Python, a character at a time, straight from `unicodedata`."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from corpusmill.pipeline.text.word_rule import (
    ALONE,
    JOIN,
    LETTER,
    MARK,
    SEPARATOR,
    SKIP,
    classify,
    fold,
)

M64 = 2**64 - 1
ROLL = 0x9E3779B97F4A7C15
BASIS, PRIME, OTHER_PRIME = 0xCBF29CE484222325, 0x100000001B3, 0xD6E8FEB86659FD93

HARD = [
    "The quick brown fox jumps over the lazy dog, and the QUICK brown fox again.",
    "",
    "   \n\t ... !!! \u200b",
    "word",
    "two words",
    "five words are one shingle",
    "six words are two shingles here",
    "أرقام ٠١٢٣٤٥٦٧٨٩ عربية في نص قصير جدا هنا",
    "漢字かな交じり文。日本語の文章は空白なしで書かれます",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Re\u0301sume\u0301 de\u0301ja\u0300 vu \u0301orphan a\u0308o\u0308 x y",
    "soft\u00adhyphen zero\u200bwidth join\u200der naïve don't l'été under_score",
    "ΟΔΥΣΣΕΥΣ ὀδυσσεύς Straße STRAẞE İstanbul ISTANBUL ısı",
    "emoji 😀 between 👩‍👩‍👧 words 𝐁𝐨𝐥𝐝 𐐀𐐨 deseret 𠀀𠀁 end",
    "a1b2漢c3字d4 mixed漢字runs ก1ข2",
    "a b c d e " * 50,
    "\x00nul\x00bytes\x7f are separators \ufeff too",
    "한국어 문장 각 갂 \u1112\u1161\u11ab\u1100\u1173\u11af \u1161alone 漢\u11a8 가\u11a8 a\u1161",
    "ᾳ ᾼ ΐ Å Å Ω K が ガ か\u3099 \u0344x x\u0344 a\u0323\u0301 a\u0301\u0323 ệ ệ ≠ =\u0338a 𝅗𝅥 豈 豈",
    "ক\u09cb ক\u09c7\u09be  \u0915\u093c क़ \u0f43 \u0344",
]
MILLION = "".join(f"{(i * 2654435761) % 99991:x} " for i in range(190_000))[:1_000_000]


def mix64(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & M64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


@lru_cache(maxsize=100_000)
def kind_of(character: str) -> int:
    return classify(character)


# A character: (folded code point, whether it is a mark), of a letter and what belongs to it.
Character = list[tuple[str, bool]]
SPACE: Character = [(" ", False)]


def words_of(text: str) -> list[list[Character]]:
    """The word rule: each word a list of characters, letters with their marks."""
    found: list[list[Character]] = []
    inside, alone = False, False
    for point in unicodedata.normalize("NFD", text):
        kind, folded = kind_of(point), fold(point)
        if kind == SKIP:
            continue
        if inside and (kind == MARK or (kind == JOIN and not alone)):
            found[-1][-1].append((folded, kind == MARK))
        elif kind in (LETTER, JOIN) and inside and not alone:
            found[-1].append([(folded, False)])
        elif kind in (LETTER, JOIN, ALONE):
            found.append([[(folded, False)]])
            inside, alone = True, kind == ALONE
        else:
            assert kind in (MARK, SEPARATOR)
            inside = False
    return found


def characters_of(text: str) -> list[Character]:
    """Letters with their marks, and one space wherever something separates two of them."""
    found: list[Character] = []
    inside, alone = False, False
    for point in unicodedata.normalize("NFD", text):
        kind, folded = kind_of(point), fold(point)
        if kind == SKIP:
            continue
        if inside and (kind == MARK or (kind == JOIN and not alone)):
            found[-1].append((folded, kind == MARK))
        elif kind in (LETTER, JOIN, ALONE):
            if found and not inside:
                found.append(SPACE)
            found.append([(folded, False)])
            inside, alone = True, kind == ALONE
        else:
            inside = False
    return found


def hash_of(characters: list[Character], prime: int = PRIME) -> int:
    """The 64-bit hash of a word or of one character."""
    state = BASIS
    for point, mark in (pair for character in characters for pair in character):
        if mark:
            state = state + mix64(ord(point) * prime & M64) & M64
        else:
            state = (state ^ ord(point)) * prime & M64
    return mix64(state)


@lru_cache(maxsize=1000)
def units_of(text: str, characters: bool) -> list[int]:
    """Hashes of the words or characters in order."""
    units = [[unit] for unit in characters_of(text)] if characters else words_of(text)
    return [hash_of(unit) for unit in units]


@lru_cache(maxsize=1000)
def shingles_of(text: str, ngram: int, characters: bool = False) -> list[int]:
    """64-bit shingle hashes in order, by the formulas in the kernels' docstrings."""
    hashes = units_of(text, characters)
    if not hashes:
        return []
    found = []
    for i in range(max(1, len(hashes) - ngram + 1)):
        total = 0
        for h in hashes[i : i + ngram]:
            total = (total * ROLL + h) & M64
        found.append(mix64(total))
    return found


def expected_sets(text: str, ngram: int, characters: bool = False) -> list[int]:
    """What `sets` gives for one text."""
    return sorted(set(shingles_of(text, ngram, characters)))


def expected_fingerprint(text: str) -> tuple[int, int]:
    """What `fingerprints` gives for one text: (hi, lo)."""
    words = words_of(text)
    halves = []
    for prime in (OTHER_PRIME, PRIME):
        value = prime
        for word in words:
            value = mix64(value + hash_of(word, prime) & M64)
        halves.append(mix64(value ^ len(words)) if words else 0)
    return halves[0], halves[1]
