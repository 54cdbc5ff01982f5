"""Noise of words, which are what stands between white space; white space stays where it is."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from corpusmill.common.perturb.draw import some
from corpusmill.common.perturb.tables import Synonyms

WORD = re.compile(r"\S+")
LETTERS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def drop(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Of the words, `rate` are left out with the white space behind them, but never all."""
    spans = [(match.start(), match.end()) for match in re.finditer(r"\S+\s*", text)]
    gone = set(some(range(len(spans)), len(spans), rate, draw))
    if len(gone) == len(spans):
        gone.discard(draw.randrange(len(spans)) if spans else 0)
    kept = [text[start:end] for number, (start, end) in enumerate(spans) if number not in gone]
    return text[: spans[0][0] if spans else len(text)] + "".join(kept)


def swap(text: str, rate: float, draw: random.Random, _: object = None) -> str:
    """Of the words, `rate` change places with the next one; each is moved once at most."""
    spans = [match.span() for match in WORD.finditer(text)]
    order, moved = list(range(len(spans))), set[int]()
    wanted = some(range(len(spans)), len(spans), rate / 2, draw)
    for first in wanted:
        if first + 1 < len(spans) and not {first, first + 1} & moved:
            order[first], order[first + 1] = first + 1, first
            moved |= {first, first + 1}
    parts, at = list[str](), 0
    for (start, end), source in zip(spans, order, strict=True):
        parts += [text[at:start], text[slice(*spans[source])]]
        at = end
    return "".join([*parts, text[at:]])


def synonyms(text: str, rate: float, draw: random.Random, table: Synonyms) -> str:
    """Of the words that have synonyms in the table, `rate` become one of them, with a capital where they had one (EDA's replacement,
    Wei and Zou 2019)."""
    spans = [match.span() for match in LETTERS.finditer(text) if match[0].lower() in table]
    parts, at = list[str](), 0
    for start, end in some(spans, len(spans), rate, draw):
        word = text[start:end]
        other = draw.choice(table[word.lower()])
        parts += [text[at:start], other[:1].upper() + other[1:] if word[0].isupper() else other]
        at = end
    return "".join([*parts, text[at:]])


def distractor(text: str, rate: float, draw: random.Random, table: Sequence[str]) -> str:
    """With probability `rate`, a sentence of the table and a space stand before the text."""
    return f"{draw.choice(table)} {text}" if draw.random() < rate else text
