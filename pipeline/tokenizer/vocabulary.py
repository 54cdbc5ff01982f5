"""What a vocabulary holds: tokens by script, the longest, those that repeat a unit, those that no text uses."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.bpe.load import Bpe

SHOWN = 20
_COMMON = {
    "masculine": "latin",
    "feminine": "latin",
    "micro": "greek",
    "fullwidth": "latin",
    "halfwidth": "katakana",
}
MIN_REPEATS = 3  # of a unit, for a token to count as a repetition


class Vocabulary(NamedTuple):
    """By id: the bytes of each token (empty where there is none), which are special or added, which were made by merging."""

    tokens: list[bytes]
    special: npt.NDArray[np.bool_]
    merged: npt.NDArray[np.bool_]

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """The tokens that text may become: no special ones, no ids without a token."""
        return np.array([bool(token) for token in self.tokens]) & ~self.special

    @property
    def texts(self) -> list[str]:
        """Tokens to be shown; bytes that are no whole character appear as U+FFFD."""
        return [token.decode(errors="replace") for token in self.tokens]


def vocabulary(bpe: Bpe) -> Vocabulary:
    """Of a loaded tokenizer."""
    data, bounds = bpe.pieces
    raw = data.tobytes()
    tokens = [raw[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    special = np.zeros(len(tokens), dtype=bool)
    special[list(bpe.tokenizer.get_added_tokens_decoder())] = True
    merged = ~special & (np.diff(bounds) > 1)
    return Vocabulary(tokens, special, merged)


def describe(words: Vocabulary, used: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The figures; `used` (bool[V]): tokens that occur in the documents measured."""
    there = words.there
    texts = words.texts
    unused = there & ~used
    longest = sorted(np.flatnonzero(there).tolist(), key=lambda i: (-len(words.tokens[i]), words.tokens[i]))
    unused_longest = [i for i in longest if unused[i]]
    repeats = [
        (count, unit, i)
        for i in np.flatnonzero(words.merged).tolist()
        for count, unit in [repetition(words.tokens[i])]
        if count >= MIN_REPEATS
    ]
    repeats.sort(key=lambda row: (-row[0], words.tokens[row[2]]))
    return {
        "special_tokens": int(words.special.sum()),
        "merged_tokens": int(words.merged.sum()),
        "unused_tokens": int(unused.sum()),
        "unused_longest": [texts[i] for i in unused_longest[:SHOWN]],
        "longest_tokens": [texts[i] for i in longest[:SHOWN]],
        "repetitions": {
            "tokens": len(repeats),
            "most_repeated": [
                {"token": texts[i], "unit": unit.decode(errors="replace"), "times": count}
                for count, unit, i in repeats[:SHOWN]
            ],
        },
        "scripts": scripts(words.tokens[i] for i in np.flatnonzero(there).tolist()),
    }


def repetition(token: bytes) -> tuple[int, bytes]:
    """(times, unit) for the shortest unit of which the token is a whole number of repetitions: (4, b"-") for b"----"."""
    place = (token + token).find(token, 1)
    return len(token) // place, token[:place]


def scripts(tokens: Iterable[bytes]) -> dict[str, int]:
    """Tokens by the script of their letters, most frequent first: the first word of the letters' Unicode names ("latin", "cyrillic",
    "cjk"), `mixed` for several, and for tokens without letters `digits`, `white space`, `signs`, `part of a character`."""
    counts = Counter(_script(token) for token in tokens)
    return dict(sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def _script(token: bytes) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        # A cut character at either end: the whole ones in between identify it.
        text = token.decode(errors="ignore")
        if not any(char.isalpha() for char in text):
            return "part of a character"
    found = {_script_of(char) for char in text if char.isalpha()}
    found -= {"modifier"} if len(found) > 1 else set()
    if found:
        return found.pop() if len(found) == 1 else "mixed"
    if text.isspace():
        return "white space"
    return "digits" if any(char.isnumeric() for char in text) else "signs"


@lru_cache(maxsize=1 << 16)
def _script_of(char: str) -> str:
    name = unicodedata.name(char, "unnamed").split()[0].split("-")[0].lower()
    return _COMMON.get(name, name)
