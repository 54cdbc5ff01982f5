"""Words and shingles in plain Python, straight from `unicodedata`: a second opinion on the kernels.

Follows the rule that `pipeline/text/word_rule.py` states in words, and shares nothing with the kernels but the lists
of blocks. Shingles are the words themselves, not hashes of them: no collision can hide here. Of code points newer
than Unicode 14 the kernels know nothing and a later Python does; texts made of them may be judged otherwise here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from corpusmill.pipeline.text.word_rule import CONJOINING, UNSPACED

Shingles = set[tuple[str, ...]]
# What a character is to the limits of words, and a word of such: one letter and what goes with it, or one that stands alone.
_PLACES = {"letter": "L", "join": "L", "alone": "A", "mark": "M", "skip": "M", "space": " "}
_WORD = re.compile("L[LM]*|AM*")


class Kind(NamedTuple):
    """What a character does, and how it reads in a word."""

    name: str  # letter, join, alone, mark, skip or space
    folded: str


@lru_cache(maxsize=1 << 16)
def kind_of(character: str) -> Kind:
    """The kind of one character, by the class of the first one that it decomposes into."""
    first = unicodedata.normalize("NFD", character)[0]
    category, point = unicodedata.category(first), ord(first)
    if category.startswith("M"):
        return Kind("mark", first)
    if category[0] in "LN":
        folded = first.casefold()
        folded = folded if len(folded) == 1 else first.lower()[0]
        if any(low <= point <= high for low, high in CONJOINING):
            return Kind("join", folded)
        unspaced = category != "Nd" and any(low <= point <= high for low, high in UNSPACED)
        return Kind("alone" if unspaced else "letter", folded)
    return Kind("skip" if category == "Cf" and point != 0x200B else "space", " ")


def words(text: str) -> list[str]:
    """The words of a text in order; marks of one letter stand in the order of their code points."""
    text, kinds = _read(text)
    # At the speed of `str`: all but words with marks or unspaced letters, which are few in most texts.
    table = {ord(c): {"space": " ", "skip": ""}.get(kind.name, kind.folded) for c, kind in kinds.items()}
    names = {kind.folded: kind.name for kind in kinds.values()}
    special = {folded for folded, name in names.items() if name in ("mark", "alone")}
    found: list[str] = []
    for run in text.translate(table).split():
        if special.isdisjoint(run):
            found.append(run)
            continue
        word: list[str] = []
        alone = False
        for character in run:
            kind = names[character]
            if word and (kind == "mark" or (kind != "alone" and not alone)):
                word.append(character)
            elif kind != "mark":
                if word:
                    found.append(_ordered(word, special))
                word, alone = [character], kind == "alone"
        if word:
            found.append(_ordered(word, special))
    return found


def _ordered(word: list[str], special: set[str]) -> str:
    """The characters of a word, each run of marks sorted; its first one is no mark."""
    parts = word[:1]
    for character in word[1:]:
        if character in special:
            place = len(parts)
            while place > 1 and parts[place - 1] in special and parts[place - 1] > character:
                place -= 1
            parts.insert(place, character)
        else:
            parts.append(character)
    return "".join(parts)


def characters(text: str) -> list[str]:
    """The letters of a text with their marks, and one space wherever something separates two of them."""
    text, kinds = _read(text)
    marks = {kind.folded for kind in kinds.values() if kind.name == "mark"}
    found: list[str] = []
    unit: list[str] = []
    alone, gap = False, False
    for character in text:
        kind, folded = kinds[character]
        if kind == "skip" or (kind == "mark" and not unit):
            continue
        if unit and (kind == "mark" or (kind == "join" and not alone)):
            unit.append(folded)
            continue
        if unit:
            found.append(_ordered(unit, marks))
        unit = []
        if kind != "space":
            if gap and found:
                found.append(" ")
            unit, alone = [folded], kind == "alone"
        gap = kind == "space"
    return [*found, _ordered(unit, marks)] if unit else found


def _read(text: str) -> tuple[str, dict[str, Kind]]:
    """The decomposed text, and what each of its characters does."""
    text = unicodedata.normalize("NFD", text)
    return text, {character: kind_of(character) for character in set(text)}


def shingles(found: list[str], ngram: int) -> Shingles:
    """The set of the n-grams of words or characters in order; fewer than `ngram` of them are one shingle."""
    if len(found) < ngram:
        return {tuple(found)} if found else set()
    return set(zip(*(found[i : len(found) - ngram + 1 + i] for i in range(ngram)), strict=True))


def jaccard(a: AbstractSet[Any], b: AbstractSet[Any]) -> float:
    """Jaccard similarity of two sets; 0 of two empty ones."""
    both = len(a & b)
    return both / max(1, len(a) + len(b) - both)


def spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text lie: (start, end) of each, in order; for edits of the text itself."""
    places = {ord(character): _PLACES[kind_of(character).name] for character in set(text)}
    return [match.span() for match in _WORD.finditer(text.translate(places))]


_WEB = re.compile(
    r"(?<![A-Za-z0-9_])(?:@[A-Za-z0-9_]+|&(?:#[A-Za-z0-9_]{0,8}|[A-Za-z0-9_]{1,9});|www\.[^\x00-\x20]*|https?://[^\x00-\x20]*)",
    re.I | re.A,
)


def short_shingles(text: str, ngram: int) -> set[tuple[str, ...]]:
    """As the preset `short` has them (`text/short_shingles.py`): the set of the runs of `ngram` characters that lie in one word and the spaces around it."""
    text = re.sub(r"[0-9]", "0", _WEB.sub(" ", text))
    found = characters(text)
    if not found:
        return set()
    units = [unit for unit, _ in groupby([" ", *found, " "])]
    runs = [tuple(units[i : i + ngram]) for i in range(len(units) - ngram + 1)]
    inside = {run for run in runs if " " not in run[1:-1] and run != (" ",)}
    return inside or {tuple(units)}
