"""Edits of short texts that leave them duplicates, for `bench decisions --task near_duplicates`.

Each takes a text and a seeded generator; None where the text has nothing to edit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_WORD = re.compile(r"[^\W\d_]+")
_NAMES = ("Anna", "Marek", "Priya", "Tom", "Olga", "Luis", "Chen", "Fatima")
_TAILS = (
    " 😂😂",
    " 🔥",
    " 🙏🏽 ❤️",
    " https://t.co/Ab3dEf9",
    " http://example.com/x?id=7",
    " @someone_else",
    " :-)",
    " &lt;3",
)


def typo(text: str, chance: random.Random) -> str | None:
    """One letter of a longer word replaced, dropped, doubled or exchanged with the next."""
    words = [match for match in _WORD.finditer(text) if len(match[0]) > 3]
    if not words:
        return None
    word = chance.choice(words)
    at = chance.randrange(word.start() + 1, word.end() - 1)
    kind, letter = chance.randrange(4), chance.choice("aeinorst")
    put = (letter, "", text[at] + letter, text[at + 1] + text[at])[kind]
    return text[:at] + put + text[at + (2 if kind == 3 else 1) :]


def number(text: str, chance: random.Random) -> str | None:
    """Every digit replaced by another."""
    return re.sub(r"\d", lambda m: chance.choice("0123456789"), text) if re.search(r"\d", text) else None


def name(text: str, chance: random.Random) -> str | None:
    """A word with a capital inside the text, or else its first word, replaced by a name."""
    found = [match for match in _WORD.finditer(text) if match.start() and match[0][0].isupper()] or list(
        _WORD.finditer(text)
    )
    if len(_WORD.findall(text)) < 4:
        return None
    word = chance.choice(found)
    return text[: word.start()] + chance.choice(_NAMES) + text[word.end() :]


def appended(text: str, chance: random.Random) -> str:
    """Emoji, a URL, a mention or a smiley at the end."""
    return text + chance.choice(_TAILS)


def dropped(text: str, chance: random.Random) -> str | None:
    """A word left out."""
    words = text.split()
    if len(words) < 4:
        return None
    del words[chance.randrange(len(words))]
    return " ".join(words)


def reordered(text: str, chance: random.Random) -> str | None:
    """The part after some word put before the rest."""
    words = text.split()
    if len(words) < 4:
        return None
    at = chance.randrange(1, len(words))
    return " ".join(words[at:] + words[:at])


def cased(text: str, chance: random.Random) -> str | None:
    """Capitals, small letters or title case; other punctuation."""
    other = chance.choice((str.upper, str.lower, str.title))(text)
    other = re.sub(r"[.!?,]+", chance.choice(("", "!!!", " ... ")), other)
    return other if other != text else None


def stretched(text: str, chance: random.Random) -> str | None:
    """The vowels of a word drawn out."""
    words = [match for match in _WORD.finditer(text) if re.search("[aeiou]", match[0])]
    if not words:
        return None
    word = chance.choice(words)
    return text[: word.start()] + re.sub("([aeiou])", r"\1\1\1\1", word[0]) + text[word.end() :]


EDITS: dict[str, Callable[[str, random.Random], str | None]] = {
    "typo": typo,
    "other digits": number,
    "other name": name,
    "emoji, URL or mention appended": appended,
    "word dropped": dropped,
    "words reordered": reordered,
    "case and punctuation": cased,
    "letters stretched": stretched,
}
