"""Marked sentences and pieces, which the files of the fuzz bench are made of."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

MARK = re.compile(r"mark[0-9a-f]{10}")
WORDS = [
    "river",
    "stone",
    "lamp",
    "morning",
    "the",
    "a",
    "of",
    "to",
    "and",
    "in",
    "was",
    "window",
    "letter",
    "road",
    "under",
    "seven",
    "slowly",
    "garden",
    "bright",
    "winter",
    "paper",
    "voice",
    "with",
    "from",
    "house",
    "small",
    "after",
    "table",
    "water",
    "another",
    "evening",
    "year",
    "found",
    "market",
]
OTHER = ("café", "naïve", "Übergröße", "слово", "日本語", "—", "“quoted”", "emoji 🙂", "ﬁ")


class Piece(NamedTuple):
    """Bytes of the file; `mark` of the record that they are, None for what is no record (a header, a request)."""

    data: bytes
    mark: str | None = None


def mark(random: random.Random) -> str:
    return f"mark{random.getrandbits(40):010x}"


def sentence(random: random.Random, words: int) -> str:
    """Plain words, now and then one beyond ASCII."""
    chosen = random.choices(WORDS, k=words)
    if random.random() < 0.3:
        chosen[random.randrange(words)] = random.choice(OTHER)
    return " ".join(chosen)


def text_of(random: random.Random, name: str) -> str:
    return f"{sentence(random, random.randint(2, 20))} {name} {sentence(random, random.randint(2, 20))}."
