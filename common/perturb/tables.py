"""Files that perturbations take words and sentences from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from corpusmill.common.errors import UserError

Synonyms = Mapping[str, Sequence[str]]
Table = Synonyms | Sequence[str]


def read_synonyms(file: str) -> Synonyms:
    """Lines of a word and its synonyms, with tabs between them; words in lower case. Raises `UserError`."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(file), 1):
        word, *others = [part.strip() for part in line.split("\t")]
        others = [other for other in others if other]
        if not word or not others:
            raise UserError(f"{file}:{number}: must be a word and its synonyms, with tabs between them")
        found.setdefault(word.lower(), []).extend(others)
    return found


def read_sentences(file: str) -> Sequence[str]:
    """Lines of text, without empty ones. Raises `UserError`."""
    return [line.strip() for line in _lines(file)]


def _lines(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    found = [line for line in lines if line.strip()]
    if not found:
        raise UserError(f"{file}: has no line")
    return found
